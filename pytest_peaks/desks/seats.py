"""A note for each desk of who sits there: what a ledger that was lost is made anew from."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.desks.clock import Moment
from pytest_peaks.desks.ledger import Desk, Ledger, Session
from pytest_peaks.desks.settings import PoolSettings
from pytest_peaks.desks.states import States
from pytest_peaks.errors import InvalidNameError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.registry import write_atomically

FOLDER = "desks"


@dataclass(frozen=True, slots=True)
class Seats:
    """The notes of one pool, ``_runtime/desks/<desk>.json``. Written and removed under the ledger's lock."""

    settings: PoolSettings

    @property
    def folder(self) -> Path:
        return self.settings.dirs.runtime / FOLDER

    def note(self, ledger: Ledger, name: str) -> None:
        """Note that a session sits at its desk."""
        session = ledger.sessions[name]
        assert session.desk is not None, "it has one"
        content = {
            "schema": 1,
            "ledger": str(self.settings.ledger),
            "session": name,
            "seat": session.to_json(),
            "desk": ledger.desks[session.desk].to_json(),
        }
        with contextlib.suppress(OSError):  # of use only if the ledger is lost as well
            self.settings.dirs.create()
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._path(session.desk), json.dumps(content, indent=2) + "\n")

    def drop(self, desk: str) -> None:
        with contextlib.suppress(OSError):
            self._path(desk).unlink(missing_ok=True)

    def _path(self, desk: str) -> Path:
        from pytest_peaks.desks.kinds import session_id

        return self.folder / f"{session_id(self.settings, desk).removeprefix('desk-')}.json"

    def rebuilt(self, *, with_states: bool = False) -> Ledger:
        """A ledger of what is noted, and of the processes that live.

        :param with_states: sessions that have a saved state and no seat are taken in as detached.
        """
        made = Ledger()
        for name, session, desk in self._noted():
            place, lease = session.desk, session.lease
            assert place is not None, "a seat has a desk"
            assert lease is not None, "and a lease"
            if name in made.sessions or place in made.desks:
                continue
            made.epochs[place] = max(int(time.time()), lease.epoch)
            if lease.seat is not None and lease.seat.state() == "dead":
                made.sessions[name] = Session(None, session.created_at, session.used)
            else:
                made.desks[place], made.sessions[name] = desk, session
        for name in States(self.settings.state_dir, self.settings.dirs).names() if with_states else ():
            with contextlib.suppress(InvalidNameError, OSError):
                check_name(name)
                modified = (self.settings.state_dir / f"{name}.json").lstat().st_mtime
                used = Moment(modified, 0.0, "before")
                made.sessions.setdefault(name, Session(None, int(modified), used))
        return made

    def _noted(self) -> Iterator[tuple[str, Session, Desk]]:
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".json")
        except OSError:
            return
        for path in paths:
            with contextlib.suppress(
                OSError, ValueError, KeyError, TypeError, InvalidNameError, RecursionError
            ):
                data = json.loads(path.read_text(encoding="utf-8"))
                session, desk = Session.from_json(data["seat"]), Desk.from_json(data["desk"])
                if data["ledger"] == str(self.settings.ledger) and session.desk is not None:
                    yield check_name(data["session"]), session, desk
