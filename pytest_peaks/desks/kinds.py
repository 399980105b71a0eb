"""The kinds of desks: to the pool something to ``acquire``, ``release``, ask for its ``health`` and ``drain``."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pytest_peaks.desks.browsing import Browsing, Work
from pytest_peaks.desks.errors import DeskFailedError
from pytest_peaks.desks.settings import DeskSettings, PoolSettings
from pytest_peaks.doors.mcp import McpOptions
from pytest_peaks.errors import (
    BrowserLostError,
    ConflictError,
    PeaksError,
    PortExhaustedError,
    WipeFailedError,
)
from pytest_peaks.hosting import lasting, sessions, supervisor
from pytest_peaks.hosting.order import Order
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.spec import Hosting

# Another start of the same desk takes a second; this is for a machine that is out of breath.
OTHER_START = 90.0
PROVED = "wipe-proved"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a desk is, when it is up.

    :ivar endpoint: the CDP WebSocket URL of its browser; empty where peaks can't work in it.
    :ivar mcp_url: its MCP server; empty where peaks knows of none.
    :ivar process: what the desk lives and dies with, on this machine; None if that is not known.
    :ivar record: of a desk that is hosted here.
    """

    endpoint: str = ""
    mcp_url: str = ""
    process: ProcessIdentity | None = None
    record: Record | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """How a desk is.

    :ivar up: it could be used at once.
    :ivar idle: seconds since it was last used through any door; None if nobody can tell.
    :ivar place: where it is, if it is up.
    """

    up: bool
    idle: float | None = None
    place: Place = Place()


class Desk(Protocol):
    """A desk of any kind.

    :ivar works: whether peaks can blank, restore and save by itself.
    """

    settings: DeskSettings
    works: bool

    def start(self) -> None:
        """Have the desk up, as it is.

        :raises PeaksError: it can't be.
        """
        ...

    def acquire(self) -> Place:
        """Have the desk up and blank.

        :raises PeaksError: it can't be.
        """
        ...

    def release(self) -> None:
        """Blank the desk for whoever comes next.

        :raises PeaksError: it can't be; it is not to be used before it was drained.
        """
        ...

    def health(self) -> Health: ...

    def drain(self) -> None:
        """End what runs for the desk; the next :meth:`acquire` begins anew."""
        ...

    def work(self, place: Place) -> AbstractContextManager[Work]:
        """Work in its browser."""
        ...


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


class EndpointDesk:
    """A browser that somebody else runs, reached over CDP."""

    works = True

    def __init__(self, settings: DeskSettings, pool: PoolSettings, browsing: Browsing) -> None:  # noqa: ARG002
        self.settings = settings
        self._browsing = browsing
        self._proved = False

    def start(self) -> None:
        self._place()

    def acquire(self) -> Place:
        place = self._place()
        with self.work(place) as work:
            if not self._proved:
                work.prove()
                self._proved = True
            work.blank(all_contexts=False)
        return place

    def release(self) -> None:
        self.acquire()

    def health(self) -> Health:
        try:
            return Health(up=True, place=self._place())
        except PeaksError:
            return Health(up=False)

    def drain(self) -> None:
        """Nothing of it is ours to end."""

    def work(self, place: Place) -> AbstractContextManager[Work]:
        return self._browsing.at(place.endpoint, lambda: None)

    def _place(self) -> Place:
        """
        :raises DeskFailedError: nothing answers there.
        """
        from pytest_peaks.hosting.endpoint import websocket_of

        endpoint = self.settings.endpoint
        try:
            found = websocket_of(endpoint, f"the endpoint of {self.settings.name}")
        except PeaksError as error:
            # The path of the URL is a key to the browser.
            raise DeskFailedError(
                error.message.replace(endpoint, shown_host(endpoint)), hint=error.hint
            ) from None
        return Place(found, self.settings.mcp_url)


class ExternalDesk:
    """An MCP server that the user registered: peaks leases it and says what the agent is to call."""

    works = False

    def __init__(self, settings: DeskSettings) -> None:
        self.settings = settings

    def start(self) -> None:
        """Its user starts it."""

    def acquire(self) -> Place:
        return Place(mcp_url=self.settings.mcp_url)

    def release(self) -> None:
        """Only its clients can blank it."""

    def health(self) -> Health:
        from pytest_peaks.desks.registered import listens

        url = self.settings.mcp_url
        return Health(up=bool(url) and listens(url), place=Place(mcp_url=url))

    def drain(self) -> None:
        """Nothing of it is ours to end."""

    def work(self, place: Place) -> AbstractContextManager[Work]:  # noqa: ARG002 - as the other kinds
        raise DeskFailedError(
            f"{self.settings.name} is an MCP server of yours, in which peaks can do nothing",
            hint="its own tools do: see `next`",
        )


def make(settings: DeskSettings, pool: PoolSettings, browsing: Browsing) -> Desk:
    if settings.kind == "hosted":
        return HostedDesk(settings, pool, browsing)
    if settings.kind == "endpoint":
        return EndpointDesk(settings, pool, browsing)
    return ExternalDesk(settings)


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


def shown_host(endpoint: str) -> str:
    """An endpoint without its path."""
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


Maker = Callable[[DeskSettings, PoolSettings, Browsing], Desk]
