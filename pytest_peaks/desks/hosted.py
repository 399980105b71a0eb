"""Desks that this project hosts: a Chromium and an MCP server on it, on a port that never changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_peaks.desks.browsing import Browsing, Work
from pytest_peaks.desks.desk import Health, Place
from pytest_peaks.desks.errors import DeskFailedError
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.doors.mcp import McpOptions
from pytest_peaks.errors import BrowserLostError, ConflictError, PortExhaustedError, WipeFailedError
from pytest_peaks.hosting import lasting, sessions, supervisor
from pytest_peaks.hosting.order import Order
from pytest_peaks.session import processes
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.spec import Hosting

# Another start of the same desk takes a second; this is for a machine that is out of breath.
OTHER_START = 90.0
PROVED = "wipe-proved"


class HostedDesk:
    """A hosted session of this project with a fixed port: a Chromium, and an MCP server on it."""

    works = True

    def __init__(self, settings: DeskSettings, pool: PoolSettings, browsing: Browsing) -> None:
        self.settings = settings
        self._pool = pool
        self._browsing = browsing

    @property
    def session_id(self) -> str:
        return session_id(self._pool, self.settings.name)

    def start(self) -> None:
        found = self._settled()
        if found is None or not found.alive:
            if found is not None:
                sessions.stop(found)
            self._start()

    def acquire(self) -> Place:
        found = self._settled()
        usable = found is not None and sessions.responds(found) and found.record.launch == self._launch()
        if found is not None and usable:
            place = _place(found.record)
            try:
                # Before anything else: if it is ending now, it can't be blanked any more.
                lasting.use(Path(found.record.temp_dir), self._pool.until)
                self._blank(place)
                return place
            except (OSError, DeskFailedError, WipeFailedError, BrowserLostError):
                pass  # a browser that can't be blanked is replaced
        if found is not None:
            sessions.stop(found)
        place = _place(self._start())
        with self.work(place) as work:
            work.prove()
        self._note_proof(place)
        return place

    def release(self) -> None:
        found = self._current()
        if found is None or found.state == "dead":
            return  # the next one gets a new browser
        self._blank(_place(found.record))

    def health(self) -> Health:
        found = self._current()
        if found is None or not found.alive:
            return Health(up=False)
        return Health(True, idle_of(found.record), _place(found.record))

    def drain(self) -> None:
        found = self._current()
        if found is not None and not found.elsewhere:
            sessions.stop(found)

    @contextlib.contextmanager
    def work(self, place: Place) -> Iterator[Work]:
        with self._browsing.at(place.endpoint, lambda: _kill(place)) as work:
            yield work

    def _settled(self) -> sessions.Hosted | None:
        found = self._current()
        if found is not None and found.starting:
            self._wait_for_start()
            found = self._current()
        return found

    def _current(self) -> sessions.Hosted | None:
        record = Registry(self._pool.dirs.records).read(self.session_id)
        return sessions.probe(self._pool.dirs, record) if record is not None else None

    def _blank(self, place: Place) -> None:
        from pytest_peaks.hosting import use

        assert place.record is not None, "of a hosted desk there is one"
        use.end_clients(place.record)
        with self.work(place) as work:
            if not (Path(place.record.temp_dir) / PROVED).exists():
                work.prove()
                self._note_proof(place)
            work.blank(all_contexts=True)

    def _note_proof(self, place: Place) -> None:
        assert place.record is not None, "of a hosted desk there is one"
        with contextlib.suppress(OSError):
            (Path(place.record.temp_dir) / PROVED).touch(mode=0o600)

    def _launch(self) -> str:
        spec = self.settings.spec
        text = f"{spec.browser}|{spec.executable or ''}|{spec.headed}|{self.settings.port}"
        return f"{sessions.DESK}{_digest(self._pool)}:" + hashlib.sha256(text.encode()).hexdigest()[:16]

    def _start(self) -> Record:
        """
        :raises PeaksError: it does not start.
        """
        port = self.settings.port
        hosting = Hosting(self.session_id, False, PortRange(port, port), "", self._launch())
        order = Order(self._pool.dirs, self.settings.spec, hosting, McpOptions(), 0.0, self._pool.until)
        try:
            return supervisor.start(order)
        except ConflictError:
            # `pool --up` may be at it in another process.
            if not self._wait_for_start():
                raise
            found = self._current()
            if found is None or not found.alive:
                raise
            return found.record
        except PortExhaustedError:
            raise PortExhaustedError(
                f"{self.settings.name} needs port {port}, which is taken{_by_whom(self._pool, port)}",
                hint=f'give the desk another port in {self._pool.config}: {{"name": "{self.settings.name}", '
                f'"port": …}}, and register it anew with your client',
            ) from None

    def _wait_for_start(self) -> bool:
        def is_over() -> bool:
            found = self._current()
            return found is not None and not found.starting

        return processes.wait_until(is_over, OTHER_START, pause=0.05)


def session_id(pool: PoolSettings, desk: str) -> str:
    """What the hosted session of a desk is called: each ledger has desks of its own."""
    if pool.own_ledger:
        return f"desk-{desk}"
    return f"desk-{desk}-{_digest(pool)}"


def removed(pool: PoolSettings) -> list[str]:
    """Desks that run for this pool's ledger and are not configured any more."""
    found = []
    for record in Registry(pool.dirs.records).list()[0]:
        if record.kind == "hosted" and record.launch.startswith(f"{sessions.DESK}{_digest(pool)}:"):
            name = record.session_id.removeprefix("desk-")
            name = name if pool.own_ledger else name.removesuffix(f"-{_digest(pool)}")
            if pool.desk(name) is None:
                found.append(name)
    return found


def _digest(pool: PoolSettings) -> str:
    """Tells ledgers of one project apart."""
    return hashlib.sha256(os.fsencode(pool.ledger)).hexdigest()[:8]


def idle_of(record: Record) -> float | None:
    """Seconds since a hosted session was last used through any door; None if it never was."""
    from pytest_peaks.hosting import use

    last = use.last_use(record)
    return None if last is None else max(0.0, time.monotonic() - last)


def _place(record: Record) -> Place:
    return Place(record.endpoints.get("cdp", ""), record.endpoints.get("mcp", ""), record.owner, record)


def _kill(place: Place) -> None:
    if place.record is not None and "browser" in place.record.processes:
        processes.end_tree(place.record.processes["browser"], grace=0.0)


def _by_whom(pool: PoolSettings, port: int) -> str:
    """`` by …``, where a session of this user's has a port."""
    for hosted in sessions.look_everywhere(pool.dirs):
        if hosted.record.port == port:
            return f" by {hosted.name} of {hosted.dirs.root}"
    return ""
