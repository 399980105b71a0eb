"""``--peaks-reuse`` and ``--peaks-attach``: sessions that outlive the run, or were there before it."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass

from pytest_peaks.errors import InvalidOptionError, NoSessionError
from pytest_peaks.hosting import sessions, supervisor
from pytest_peaks.hosting.endpoint import websocket_of
from pytest_peaks.hosting.order import Order
from pytest_peaks.hosting.terminals import Terminal, check_terminal_id
from pytest_peaks.session import browsers, guardian, processes, spawning
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.reservations import Reservations, allocating
from pytest_peaks.session.spec import BrowserSpec, Hosting, McpOptions

SLOT_NAME = "pytest-slot"
# The lease of a session that is being ended; it is free in a moment.
ENDING = "ending"
ENDING_WAIT = 2 * sessions.STOP_WAIT


class BorrowedSession(LiveSession):
    """A session whose browser is somebody else's: released without being ended."""

    def __init__(
        self,
        manager: SessionManager,
        spec: BrowserSpec,
        record: Record,
        *,
        give_back: Callable[[], None],
        replace: Callable[[], None],
    ) -> None:
        found = browsers.Found(spec.browser, spec.executable, "borrowed")
        super().__init__(manager, spec, found, record)
        self._give_back = give_back
        self._replace = replace

    def adopt(self, part: str, spawned: spawning.Spawned) -> None:  # noqa: ARG002 - as in LiveSession
        """Keep a process until the session is given back; its record is its owner's to write."""
        self._pipes.append(spawned.pipe)

    def kill(self) -> None:
        """End it if it may be ended: it is sick, or could not be blanked."""
        self._replace()

    def release(self) -> bool:
        if not self.released:
            self.released = True
            self.close_pipes()
            self._give_back()
        return True


@dataclass(frozen=True, slots=True)
class SlotSessions:
    """The hosted sessions that runs of this project use again, one a slot.

    :ivar say: tells the user, once a run, what was done and why.
    """

    manager: SessionManager
    slot: int
    say: Callable[[str], None]

    @property
    def name(self) -> str:
        return f"{SLOT_NAME}{self.slot}"

    def borrow(self, spec: BrowserSpec) -> LiveSession | None:
        """This slot's session, started if it is missing, replaced if it is sick or of another kind.

        None if another run has it now: then this run uses one of its own.

        :raises PeaksError: none could be started.
        """
        dirs = self.manager.dirs
        processes.wait_until(lambda: not self._is_ending(dirs), ENDING_WAIT)
        if not self._take(dirs, self.name, self.name):
            self.say(f"{self.name} is in use by another run: this one starts its own browser")
            return None
        try:
            found = self._current(dirs)
            launch = launch_mark(spec)
            sick = found is not None and not sessions.responds(found)
            if found is not None and (sick or found.record.launch != launch):
                why = "does not answer" if sick else "was started with other options"
                self.say(f"{self.name} {why}: replaced")
                sessions.stop(found)
                found = None
            record = found.record if found is not None else self._start(dirs, spec, launch)
            if found is None:
                self.say(f"{self.name} is kept for the next run (port {record.port})")
        except BaseException:
            self._drop(dirs, self.name, self.name)
            raise
        if found is not None:
            self.say(f"{self.name} is used again (port {record.port}, {found.age_seconds} s old)")
        return BorrowedSession(
            self.manager,
            spec,
            dataclasses.replace(record, slot=self.slot),
            give_back=lambda: self._drop(dirs, self.name, self.name),
            replace=self.end,
        )

    def end_unused(self) -> None:
        """End the sessions of all slots that no run uses now."""
        dirs = self.manager.dirs
        for hosted in sessions.look(dirs)[0]:
            name = hosted.record.session_id
            if not name.startswith(SLOT_NAME) or not self._take(dirs, name, ENDING):
                continue
            try:
                sessions.stop(hosted)
            finally:
                self._drop(dirs, name, ENDING)
            self.say(f"{name} is ended")

    def end(self) -> None:
        """End this slot's session, if there is one."""
        found = self._current(self.manager.dirs)
        if found is not None:
            sessions.stop(found)

    def _current(self, dirs: ProjectDirs) -> sessions.Hosted | None:
        found, _ = sessions.look(dirs)
        return next((hosted for hosted in found if hosted.record.session_id == self.name), None)

    def _start(self, dirs: ProjectDirs, spec: BrowserSpec, launch: str) -> Record:
        asked = self.manager.port_range
        ports = dataclasses.replace(asked if asked.first else WORKER_PORTS, strict=True)
        hosting = Hosting(self.name, with_port=False, ports=ports, launch=launch)
        return supervisor.start(Order(dirs, spec, hosting, McpOptions(settle=0)))

    def _take(self, dirs: ProjectDirs, name: str, what: str) -> bool:
        """Take the lease of a slot's session; False if somebody uses it, or is ending it."""
        with allocating() as runtime:
            uses = Reservations(runtime, "uses")
            key = guardian.name_key(dirs, name)
            if uses.holder(key) is not None:
                return False
            uses.take(key, self.manager.owner, what)
        return True

    def _is_ending(self, dirs: ProjectDirs) -> bool:
        with allocating() as runtime:
            holder = Reservations(runtime, "uses").holder(guardian.name_key(dirs, self.name))
        return holder is not None and holder[1] == ENDING

    def _drop(self, dirs: ProjectDirs, name: str, what: str) -> None:
        with allocating() as runtime:
            Reservations(runtime, "uses").drop(guardian.name_key(dirs, name), what)


def launch_mark(spec: BrowserSpec) -> str:
    """Sixteen hex digits for what a browser is started with."""
    text = f"{spec.browser}|{spec.executable or ''}|{spec.headed}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ignored_in_ci(asked: str) -> bool:
    """Whether reuse was asked for where it has no place: a CI run starts from nothing."""
    return asked == "on" and bool(os.environ.get("CI"))


def attach(manager: SessionManager, spec: BrowserSpec, target: str) -> LiveSession:
    """A session in a browser that is there already.

    :param target: a CDP URL (``http://…``, ``ws://…/devtools/…``), a Playwright server's ``ws://…``, or
        the id of a terminal whose session ``peaks playwright ls`` shows.
    :raises NoSessionError: there is no such terminal's session.
    :raises InvalidOptionError: it is no place to attach to.
    :raises BrowserLostError: nothing answers there.
    """
    hosted = None if "://" in target else _of_terminal(manager.dirs, target).record
    record = Record(
        session_id=f"attached-{manager.owner.pid}",
        port=hosted.port if hosted else 0,
        browser=str(spec.browser),
        user_data_dir="",
        started_at=now_iso(),
        owner=manager.owner,
        pid=hosted.pid if hosted else None,
        processes=hosted.processes if hosted else {},
        endpoints={"cdp": hosted.endpoints["cdp"] if hosted else websocket_of(target, "--peaks-attach")},
        slot=manager.run.slot if manager.run else None,
        temp_dir=str(manager.temp_dir),
        status="ready",
    )
    return BorrowedSession(manager, spec, record, give_back=lambda: None, replace=lambda: None)


def _of_terminal(dirs: ProjectDirs, terminal: str) -> sessions.Hosted:
    found, _ = sessions.look(dirs)
    check_terminal_id(terminal)
    exact = [hosted for hosted in found if hosted.record.session_id == terminal]
    hosted = exact[0] if exact else sessions.choose(found, Terminal(terminal, terminal, typed=True), None)
    if not hosted.alive:
        raise NoSessionError(
            f"the session of {terminal} is not alive", hint="`peaks playwright ls` shows which are"
        )
    if "cdp" not in hosted.record.endpoints:
        raise InvalidOptionError(
            f"{hosted.record.browser} has no CDP, so the session of {terminal} can't be attached to",
            hint="attach to a session of a Chromium",
        )
    return hosted
