"""A note for each desk of who sits there, or sat there last: what a ledger that was lost is made anew from."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.desks.clock import Moment
from pytest_peaks.desks.ledger import OCCUPIED, Desk, Ledger, Session
from pytest_peaks.desks.settings import PoolSettings
from pytest_peaks.desks.states import States
from pytest_peaks.errors import InvalidNameError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.registry import write_atomically

FOLDER = "desks"


@dataclass(frozen=True, slots=True)
class _Note:
    desk: str
    epoch: int
    session: str | None = None
    seat: Session | None = None
    known: Desk | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> _Note:
        """
        :raises ValueError: it is no note; as :exc:`InvalidNameError`, :exc:`KeyError` or :exc:`TypeError` do.
        """
        desk, epoch = check_name(data["name"], "desk name"), data["epoch"]
        if type(epoch) is not int or epoch < 0:
            raise ValueError("epoch is no count")
        if data["session"] is None:
            return cls(desk, epoch)
        name, seat, known = (
            check_name(data["session"]),
            Session.from_json(data["seat"]),
            Desk.from_json(data["desk"]),
        )
        if seat.desk != desk or seat.lease is None or seat.lease.epoch > epoch or known.state not in OCCUPIED:
            raise ValueError("it contradicts itself")
        return cls(desk, epoch, name, seat, known)


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
        self._write(session.desk, name, session.to_json(), ledger)

    def drop(self, ledger: Ledger, desk: str) -> None:
        """Note that nobody sits at a desk any more; its count of leases goes on from there."""
        self._write(desk, None, None, ledger)

    def _write(self, desk: str, name: str | None, seat: dict[str, Any] | None, ledger: Ledger) -> None:
        known = ledger.desks.get(desk)
        content = {
            "schema": 1,
            "ledger": str(self.settings.ledger),
            "name": desk,
            "epoch": ledger.epochs.get(desk, 0),
            "session": name,
            "seat": seat,
            "desk": known.to_json() if known is not None else None,
        }
        with contextlib.suppress(OSError):  # of use only if the ledger is lost as well
            self.settings.dirs.create()
            self.folder.mkdir(mode=0o700, exist_ok=True)
            write_atomically(self._path(desk), json.dumps(content, indent=2) + "\n")

    def _path(self, desk: str) -> Path:
        from pytest_peaks.desks.hosted import session_id

        return self.folder / f"{session_id(self.settings, desk).removeprefix('desk-')}.json"

    def rebuilt(self, *, with_states: bool = False) -> Ledger:
        """A ledger of what is noted, and of the processes that live.

        :param with_states: sessions that have a saved state and no seat are taken in as detached.
        """
        made = Ledger()
        detached: dict[str, Session] = {}
        for note in self._noted():
            made.epochs[note.desk] = note.epoch
            seat, lease = note.seat, note.seat.lease if note.seat is not None else None
            if seat is None or lease is None or note.session is None or note.known is None:
                continue
            if lease.phase == "held" and lease.seat is not None and lease.seat.state() == "dead":
                detached[note.session] = Session(None, seat.created_at, seat.used)
            elif note.session not in made.sessions:
                made.desks[note.desk], made.sessions[note.session] = note.known, seat
        made.sessions = detached | made.sessions
        for name in States(self.settings.state_dir, self.settings.dirs).names() if with_states else ():
            with contextlib.suppress(InvalidNameError, OSError):
                check_name(name)
                modified = (self.settings.state_dir / f"{name}.json").lstat().st_mtime
                used = Moment(modified, 0.0, "before")
                made.sessions.setdefault(name, Session(None, int(modified), used))
        return made

    def _noted(self) -> Iterator[_Note]:
        try:
            paths = sorted(path for path in self.folder.iterdir() if path.suffix == ".json")
        except OSError:
            return
        for path in paths:
            with contextlib.suppress(
                OSError, ValueError, KeyError, TypeError, InvalidNameError, RecursionError
            ):
                data = json.loads(path.read_text(encoding="utf-8"))
                if data["ledger"] == str(self.settings.ledger):
                    yield _Note.from_json(data)
