"""Tests at desks: a named identity for a test, which waits its turn, and the fixture ``peaks_pool``."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pytest_peaks import marker
from pytest_peaks.desks.browsing import Browsing
from pytest_peaks.desks.errors import LeaseLostError
from pytest_peaks.desks.lease import Claim
from pytest_peaks.desks.pool import Pool
from pytest_peaks.desks.settings import read_settings
from pytest_peaks.desks.turns import Turn, Turns, owner_process
from pytest_peaks.errors import InvalidOptionError, PeaksError
from pytest_peaks.reuse import BorrowedSession, ignored_in_ci
from pytest_peaks.session import processes
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.spec import SessionSpec

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_peaks.handle import PeaksSession
    from pytest_peaks.owner import Owner

# Seconds. One that falls silent for the pool's idle timeout may lose its desk to `cleanup`, so at most a third of that.
HEARTBEAT = 10.0


class Heart:
    """Tells the ledger again and again that a lease's owner lives, and learns if the lease is lost."""

    def __init__(self, pool: Pool, claim: Claim) -> None:
        self._pool = pool
        self._claim = claim
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="peaks-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(min(HEARTBEAT, self._pool.settings.idle_timeout / 3)):
            try:
                self.check()
            except LeaseLostError:
                return
            except PeaksError:
                continue  # a ledger that can't be read now is met again at the end of the turn

    def check(self) -> None:
        """
        :raises LeaseLostError: somebody has taken the lease away.
        """
        with self._pool.changing() as rules:
            rules.heartbeat(self._claim)

    def stop(self) -> None:
        self._stop.set()


class DeskSeats:
    """The seats that one pytest process has at desks."""

    def __init__(self, owner: Owner, say: Callable[[str], None]) -> None:
        self._owner = owner
        settings = read_settings(root=owner.config.root)
        if owner.config.reuse == "off" or ignored_in_ci(owner.config.reuse):
            # What a run starts ends with it.
            settings = dataclasses.replace(settings, until=owner.run.controller)
        self.pool = Pool(settings, Browsing(owner.door), say=say)
        self.turns = Turns(self.pool, owner_process(self.pool.me))
        self._hearts: dict[LiveSession, tuple[Heart, Claim]] = {}

    def seat(self, spec: SessionSpec) -> LiveSession:
        """Wait for a desk, and for the identity to be free; its state is in the browser then.

        :raises SessionBusyError: the identity was not free in time.
        :raises NoFreeDeskError: no desk was.
        :raises DeskFailedError: no desk works.
        """
        turn = self.turns.seat(spec.desk, wait=self._owner.config.desk_wait)
        heart = Heart(self.pool, turn.claim)
        try:
            live = self._borrowed(turn, spec)
        except BaseException:
            heart.stop()
            self._end(turn.claim)
            raise
        self._hearts[live] = heart, turn.claim
        return live

    def save(self, live: LiveSession) -> None:
        """Save what the identity holds.

        :raises LeaseLostError: somebody has taken the desk away; nothing is saved.
        :raises NotSavedError: the browser does not answer.
        """
        claim = self._hearts[live][1]
        self.turns.save(claim.session, lease=claim.id)

    def check(self, live: LiveSession) -> None:
        """
        :raises LeaseLostError: somebody has taken the desk away.
        """
        self._hearts[live][0].check()

    def _borrowed(self, turn: Turn, spec: SessionSpec) -> LiveSession:
        place = turn.place
        if not turn.works or not place.endpoint:
            raise InvalidOptionError(
                f"{turn.claim.desk} is an MCP server of yours, which a test can't drive",
                hint="use desks that peaks hosts, or one with an endpoint, in .peaks/pool.json",
            )
        manager = self._owner.manager
        manager.prepare()
        record = place.record or Record(
            session_id=f"desk-{turn.claim.desk}-{manager.owner.pid}",
            port=0,
            browser=str(spec.browser.browser),
            user_data_dir="",
            started_at=now_iso(),
            owner=manager.owner,
            temp_dir=str(manager.temp_dir),
            status="ready",
        )
        # Doors of the test's own: what it leaves in their connections goes with them.
        record = dataclasses.replace(record, endpoints={"cdp": place.endpoint}, slot=self._owner.run.slot)
        live: list[LiveSession] = []
        borrowed = BorrowedSession(
            manager,
            spec.browser,
            record,
            give_back=lambda: self._give_back(live[0]),
            replace=lambda: _end_browser(record),
        )
        live.append(borrowed)
        return borrowed

    def _give_back(self, live: LiveSession) -> None:
        heart, claim = self._hearts.pop(live)
        heart.stop()
        self._owner.mcp_servers.forget(live)
        self._owner.cli_daemons.forget(live)
        self._end(claim)

    def _end(self, claim: Claim) -> None:
        try:
            self.turns.close(claim.session, save=False, lease=claim.id)
        except LeaseLostError as error:
            self._owner.said.append(f"{claim.session} at {claim.desk}: {error.message}")
        except PeaksError as error:
            self._owner.said.append(f"{claim.session} at {claim.desk} could not be freed: {error}")


def _end_browser(record: Record) -> None:
    browser = record.processes.get("browser")
    if browser is not None:
        processes.end_tree(browser, grace=0.0)


class PeaksPool:
    """The pool of desks, for suites that manage turns themselves (the fixture ``peaks_pool``)."""

    def __init__(self, owner: Owner, base_url: str | None) -> None:
        self._owner = owner
        self._base_url = base_url

    @contextlib.contextmanager
    def seat(self, name: str, *, save: bool = False, url: str | None = None) -> Iterator[PeaksSession]:
        """A turn of the identity `name`: ``with peaks_pool.seat("gmail", save=True) as session:``.

        :param save: save what it holds when the block ends without an error.
        :raises InvalidNameError: the name is not ``[a-z0-9][a-z0-9_-]{0,39}``.
        :raises SessionBusyError: the identity was not free in time.
        :raises NoFreeDeskError: no desk was.
        """
        spec = marker.build_spec({"desk": name, "save": save, "url": url}, self._owner.config)
        with self._owner.open(spec, self._base_url) as session:
            yield session
            session.write_back()

    @property
    def names(self) -> list[str]:
        """The identities that there are, sorted."""
        return sorted(self._owner.desks.pool.look().ledger.sessions)

    def state_file(self, name: str) -> Path:
        """Where the state of an identity is saved."""
        return self._owner.desks.pool.states.path(name)

    def forget(self, name: str) -> bool:
        """Forget an identity that has no turn now, and its state; False if there was none.

        :raises SessionBusyError: it has a turn.
        """
        from pytest_peaks.desks.errors import UnknownSessionError

        try:
            self._owner.desks.turns.close(name, discard=True)
        except UnknownSessionError:
            return self._owner.desks.pool.states.remove(name)
        return True
