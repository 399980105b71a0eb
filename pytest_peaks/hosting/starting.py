"""One start of a hosted session: the terminal's own is returned, refused, or joined by another one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pytest_peaks.errors import ConflictError, NoSessionError
from pytest_peaks.hosting import sessions, supervisor
from pytest_peaks.hosting.order import Order
from pytest_peaks.hosting.sessions import Hosted
from pytest_peaks.hosting.terminals import Terminal
from pytest_peaks.session import processes
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Problem, Registry
from pytest_peaks.session.spec import BrowserSpec, Hosting, McpOptions

FIRST_PORT, LAST_PORT = 8931, 8949
# How often a start gives way to another one that ends in the meantime.
ATTEMPTS = 4
RECORD_WAIT = 5.0


@dataclass(frozen=True)
class Started:
    """What came of a start.

    :ivar cleared: dead sessions of the terminal that were cleared away before.
    :ivar problems: files among the records that were none.
    """

    record: Record
    reused: bool
    cleared: list[Hosted]
    problems: list[Problem]


@dataclass(frozen=True)
class Start:
    """A start as it was asked for.

    :ivar any_browser: a session with another browser than that of `spec` may be reused.
    """

    dirs: ProjectDirs
    here: Terminal
    spec: BrowserSpec
    mcp: McpOptions
    port: int | None
    any_browser: bool
    idle_timeout: float

    def run(self, *, reuse: bool) -> Started:
        """Start the session, or return the one that there is.

        :raises PeaksError: neither is possible.
        """
        found, problems = sessions.look(self.dirs)
        cleared = sessions.clear_dead(sessions.of_terminal(found, self.here))
        for attempt in range(1, ATTEMPTS + 1):
            found, _ = sessions.look(self.dirs)
            own = self._own(found, reuse=reuse)
            if reuse and (same := self._on_port(own)):
                record = self._reusable(same[0])
                return Started(record, reused=True, cleared=cleared, problems=problems)
            if own and self.port is None:
                _conflict(own[0])
            order = self._order(found, further=bool(own))
            try:
                record = supervisor.start(order)
            except ConflictError:
                # Another start was faster: its session is this terminal's, or has taken a name that is
                # like ours. Its record comes right after its name.
                file = Registry(self.dirs.records).path_of(order.hosting.base)
                if attempt == ATTEMPTS or (attempt > 1 and file.exists()):
                    raise
                processes.wait_until(file.exists, RECORD_WAIT)
            else:
                break
        return Started(record, reused=False, cleared=cleared, problems=problems)

    def _order(self, found: list[Hosted], *, further: bool) -> Order:
        name = sessions.first_name(found, self.here)
        return Order(
            self.dirs,
            self.spec,
            Hosting(name, further, _walk(self.port), self.here.mark),
            self.mcp,
            self.idle_timeout,
        )

    def _own(self, found: list[Hosted], *, reuse: bool) -> list[Hosted]:
        """The terminal's live sessions, its first one first."""
        own = [hosted for hosted in sessions.of_terminal(found, self.here) if hosted.alive or hosted.starting]
        if own or not reuse or self.here.certain:
            return sorted(own, key=lambda hosted: hosted.name != hosted.base)
        live = [hosted for hosted in found if hosted.alive and not hosted.is_desk]
        if len(self._on_port(live)) > 1:
            raise NoSessionError(
                f"no terminal here, and more than one session: {sessions.listing(live)}",
                hint="name one with --terminal or --port",
            )
        return live

    def _on_port(self, own: list[Hosted]) -> list[Hosted]:
        return [hosted for hosted in own if self.port in (None, hosted.record.port)]

    def _reusable(self, hosted: Hosted) -> Record:
        """The session's record, if it is what was asked for.

        :raises ConflictError: it differs.
        """
        record = hosted.record
        differs = []
        if not self.any_browser and self.spec.browser != record.browser:
            differs.append(f"its browser is {record.browser}, not {self.spec.browser}")
        if self.spec.user_data_dir and str(self.spec.user_data_dir) != record.user_data_dir:
            differs.append(f"its profile is {record.user_data_dir}, not {self.spec.user_data_dir}")
        if not differs and hosted.starting:
            ready = self._when_ready(hosted)
            if ready is not None:
                return ready
            differs.append("its start failed")
        if differs:
            raise ConflictError(
                f"the session on port {record.port} can't be reused: {'; '.join(differs)}",
                hint="`peaks playwright stop` ends it, --port N starts another one",
            )
        return record

    def _when_ready(self, hosted: Hosted) -> Record | None:
        """Wait for a session that another start is at."""
        registry = Registry(hosted.dirs.records)
        while (seen := registry.read(hosted.name)) and seen.status == "starting" and seen.owner.is_alive():
            time.sleep(processes.POLL)
        return seen if seen and seen.status == "ready" else None


def _walk(port: int | None) -> PortRange:
    """From the port that was asked for to the end of the range; outside of it that port alone."""
    first = FIRST_PORT if port is None else port
    return PortRange(first, LAST_PORT if FIRST_PORT <= first <= LAST_PORT else first)


def _conflict(hosted: Hosted) -> None:
    raise ConflictError(
        f"another playwright MCP is already running on port {hosted.record.port} "
        f"(terminal {hosted.name}). Reuse it (--reuse) or pick a new port (--port <n>).",
        hint="--reuse returns it, --port N starts another one, `peaks playwright stop` ends it",
    )
