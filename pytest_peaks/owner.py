"""The owner: what one pytest process holds of browsers, from the first session to the last."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_peaks.config import PeaksConfig
from pytest_peaks.doors.cli_daemons import CliDaemons
from pytest_peaks.doors.mcp_servers import McpServers
from pytest_peaks.doors.playwright import PlaywrightDoor, bounded, essence
from pytest_peaks.errors import BrowserLostError, DriverFailedError, InvalidOptionError, PeaksError
from pytest_peaks.handle import OPEN_TIMEOUT, PeaksSession, lost_message
from pytest_peaks.lending import Lending
from pytest_peaks.session import processes
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.paths import ProjectDirs, project_root
from pytest_peaks.session.spec import BrowserSpec, Isolation, Run, SessionSpec
from pytest_peaks.session.watchdog import Watchdog
from pytest_peaks.starting import InThread, Starter

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Playwright

    from pytest_peaks.artifacts.recorder import Recorder
    from pytest_peaks.at_desks import DeskSeats
    from pytest_peaks.auth.model import State
    from pytest_peaks.auth.source import Login, Logins
    from pytest_peaks.doors.driver import SpareDriver
    from pytest_peaks.recycling.slots import Recycler

# A dying browser's connections end before the system calls its process dead: milliseconds, more on a busy machine.
DYING = 1.0
DISCONNECT_TIMEOUT = 1.0


class Owner:
    """Opens and closes sessions; keeps one browser process for all that may share it.

    :ivar make_logins: gives the logins of this process, when they are asked for.
    """

    make_logins: Callable[[], Logins]

    def __init__(
        self,
        config: PeaksConfig,
        run: Run,
        borrow: Callable[[], Playwright | None],
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.run = run
        dirs = ProjectDirs.locate(project_root(config.root))
        self.manager = SessionManager(dirs, run, config.ports)
        self.thread = threading.get_ident()
        self.said: list[str] = []
        self.said_once: set[str] = set()
        self.tell = tell
        self.is_closed = False
        self.door = PlaywrightDoor(lambda: self.manager.temp_dir, borrow)
        self.mcp_servers = McpServers()
        self.cli_daemons = CliDaemons(dirs)
        self.handles: list[PeaksSession] = []
        self.used: list[dict[str, Any]] = []
        self._starter = Starter(config, run, self.manager, self.door, self.said.append)
        self._attached: dict[LiveSession, Browser | BrowserContext] = {}
        self.lending = Lending(self)
        self._wipeable: dict[str, bool] = {}
        self._watchdog: Watchdog | None = None
        if run.controller != self.manager.owner and run.controller.state() == "alive":
            self._watchdog = Watchdog(run.controller, self._orphaned)

    @functools.cached_property
    def logins(self) -> Logins:
        """The saved logins of this process."""
        return self.make_logins()

    @functools.cached_property
    def recycler(self) -> Recycler:
        """The contexts of this process that are used again."""
        from pytest_peaks.recycling.slots import Recycler

        return Recycler()

    @functools.cached_property
    def desks(self) -> DeskSeats:
        """The seats of this process at the project's desks."""
        from pytest_peaks.at_desks import DeskSeats

        return DeskSeats(self, self.tell)

    def open(
        self,
        spec: SessionSpec,
        base_url: str | None = None,
        *,
        state: State | None = None,
        recorder: Recorder | None = None,
    ) -> PeaksSession:
        """Open one session.

        :param state: what it begins with, for one without a login of its own.
        :param recorder: told when its context begins and ends.
        :raises PeaksError: no browser or no login could be had; nothing of it is left.
        """
        from playwright.sync_api import Error

        if spec.device or self.config.device:
            from pytest_peaks import emulation

            spec = emulation.completed(spec, self)
        login = self.logins.login(spec.auth) if spec.auth else None
        try:
            return self._open(spec, base_url, login, state, recorder)
        except (Error, BrowserLostError) as error:
            if not self._is_broken(error):
                raise _refused(spec, error) from None
        # The browser or the driver broke since the last test; once more with new ones.
        self._discard_all()
        try:
            return self._open(spec, base_url, login, state, recorder)
        except Error as error:
            raise _refused(spec, error) from None

    def _open(
        self,
        spec: SessionSpec,
        base_url: str | None,
        login: Login | None,
        state: State | None,
        recorder: Recorder | None,
    ) -> PeaksSession:
        live, own = self.live_for(spec)
        handle = PeaksSession(
            self, spec, live, base_url, owns_process=own, login=login, state=state, recorder=recorder
        )
        self.handles.append(handle)
        try:
            attached = self.attach(live, spec)
            if spec.doors and not own and not self._can_be_wiped(live, attached):
                handle.close()
                spec = replace(spec, isolation=Isolation.BROWSER)
                return self._open(spec, base_url, login, state, recorder)
            handle._open(attached)
        except BaseException:
            handle.close()
            raise
        self._count(live, spec, handle)
        return handle

    def loss(self, seen: BaseException | None) -> PeaksError | None:
        """The failure of a test whose browser, or Playwright's driver, died under it; None if neither did.

        :param seen: what the test saw of it, if anything.
        """

        def anything_died() -> bool:
            return any(handle.is_lost for handle in self.handles) or self.door.is_lost

        if seen is not None:
            self.recycler.taint("a test failed")
        if self.handles and seen is not None and "closed" in str(seen):
            processes.wait_until(anything_died, DYING)
        session = next((handle for handle in self.handles if handle.is_lost), None)
        if session is not None:
            return lost_message(session, seen)
        if seen is not None and self.handles and self.door.is_lost:
            return DriverFailedError(
                f"Playwright's driver died during this test; the test saw: {essence(seen)}",
                hint="the next test gets a new one; memory running out, or a signal to the whole group, ends it",
            )
        return None

    def has(self, browser: Browser) -> bool:
        """Whether a browser is one of this owner's sessions."""
        known = [*self._attached.values(), *(handle._browser for handle in self.handles)]
        return any(found is browser for found in known)

    def is_running(self, browser: object) -> bool:
        """Whether the process behind one of this owner's browsers lives, and the connection to it."""
        live = next((live for live, attached in self._attached.items() if attached is browser), None)
        return live is not None and live.is_alive() and not self.door.is_lost

    def end_shared(self, browser: BrowserSpec) -> None:
        """End the shared browser of a kind, if there is one."""
        live = self._starter.shared.get(browser)
        if live is not None:
            self._discard(live)

    def contexts_in_use(self) -> list[BrowserContext]:
        """Contexts of the sessions that are open now."""
        return [handle._context for handle in self.handles if handle._context is not None]

    def forget(self, handle: PeaksSession) -> None:
        if handle in self.handles:
            self.handles.remove(handle)

    def start_ahead(self, driver: SpareDriver | None) -> None:
        """Begin to start the run's own browser. Never raises: what goes wrong is told when a test needs it.

        :param driver: one that was started already; None where the suite may start one itself.
        """
        with contextlib.suppress(PeaksError, OSError):
            if driver is not None:
                self.door.take(driver)
            self._starter.start_ahead()

    def close(self, *, keep_temp_dir: bool = False) -> bool:
        """End every session and the driver. Idempotent; True if nothing is left.

        :param keep_temp_dir: what was recorded of the last test is still to be taken from it.
        """
        self.is_closed = True
        if self._watchdog is not None:
            self._watchdog.stop()
        self._starter.call_off()
        if self.door.is_borrowed:
            self._disconnect()
        # The browsers first: nothing that a frozen page could hold up comes before them.
        lives = [*self.manager.live, *self._starter.shared.values()]
        if self.handles:
            _release(lives)
            for handle in list(self.handles):
                handle.close()
            self.door.stop()
        else:  # nothing hangs on them any more, so the driver may end at the same time
            releasing = InThread("peaks-release", lambda: _release(lives))
            self.door.stop()
            releasing.result()
        if "logins" in vars(self):
            self.logins.close()
        return self.manager.close(keep_temp_dir=keep_temp_dir)

    def _disconnect(self) -> None:
        """Leave a driver that is not ours in order: its temp files are in no folder of ours to go with."""
        for live, attached in self._attached.items():
            with (
                contextlib.suppress(Exception),
                bounded(DISCONNECT_TIMEOUT, live.kill, self.door.kill_driver),
            ):
                attached.close()
        self._attached.clear()

    def report(self) -> dict[str, Any]:
        """What this owner did, as plain data for the controller's summary."""
        swept, known = self.manager.swept, vars(self)  # what nobody asked for is not made for this
        notes = self.logins.notes if "logins" in known else ()
        line = self.recycler.line() if "recycler" in known else ""
        return {
            "slot": self.run.slot,
            "worker": self.run.worker,
            "browsers": self.used,
            "said_once": sorted(self.said_once),
            "said": [*self.said, *notes, *filter(None, [line])],
            "swept": [record.session_id for record in swept.ended],
            "set_aside": [f"{problem.path.name}: {problem.reason}" for problem, _ in swept.problems],
        }

    def _can_be_wiped(self, live: LiveSession, attached: Browser | BrowserContext) -> bool:
        """Whether a wipe works on a browser; tried out once on each."""
        if live.session_id not in self._wipeable:
            from pytest_peaks.doors.wipe import self_test

            browser: Any = attached
            with bounded(OPEN_TIMEOUT, live.kill, self.door.kill_driver):
                self._wipeable[live.session_id] = self_test(browser, browser.contexts[0])
        return self._wipeable[live.session_id]

    def live_for(self, spec: SessionSpec) -> tuple[LiveSession, bool]:
        """The process for a session, and whether it is the session's own."""
        if spec.desk:
            self._starter.settle()
            return self.desks.seat(spec), True
        key = spec.browser
        # A process has one default context, and doors see the tabs of all: beside a session with doors, each
        # needs a process of its own.
        taken = any(
            (spec.doors or handle._spec.doors) and handle._live is self._starter.shared.get(key)
            for handle in self.handles
        )
        if spec.isolation is Isolation.BROWSER or taken:
            self._starter.settle()
            return self.manager.acquire(spec.browser), True
        live = self._starter.shared.get(key)
        if live is not None and not live.is_alive():
            self._discard(live)
        return self._starter.give(spec), False

    def attach(self, live: LiveSession, spec: SessionSpec) -> Browser | BrowserContext:
        known = self._attached.get(live) if not spec.doors else None
        if known is not None and self._is_connected(known):
            return known
        attached = self.door.attach(live, spec.context_options)
        # A default context gets a connection a test: routes and listeners of one are not the next one's.
        if not ((spec.browser.persistent or spec.doors) and live.endpoint is not None):
            self._attached[live] = attached
        return attached

    def _is_connected(self, attached: Browser | BrowserContext) -> bool:
        if self.door.driver is not None and not self.door.driver.is_alive():
            return False
        browser = attached if hasattr(attached, "is_connected") else attached.browser
        return bool(browser is None or browser.is_connected())

    def _is_broken(self, error: Exception) -> bool:
        """Whether an error means that browser or driver are gone, rather than that an option is wrong."""
        text = str(error)
        return (
            isinstance(error, BrowserLostError)
            or "has been closed" in text
            or "Connection closed" in text
            or "connection closed" in text
            or (self.door.driver is not None and not self.door.driver.is_alive())
            or any(not live.is_alive() for live in self.manager.live)
        )

    def _discard_all(self) -> None:
        for live in list(self.manager.live):
            if not any(handle._live is live and not handle.is_lost for handle in self.handles):
                self._discard(live)
        self._attached.clear()

    def _discard(self, live: LiveSession) -> None:
        self.recycler.forget(self._attached.pop(live, None))
        self._starter.forget(live)
        live.release()

    def _count(self, live: LiveSession, spec: SessionSpec, handle: PeaksSession) -> None:
        for entry in self.used:
            if entry["id"] == live.session_id:
                entry["sessions"] += 1
                return
        version = handle._browser.version if handle._browser is not None else ""
        self.used.append(
            {
                "id": live.session_id,
                "browser": str(spec.browser.browser),
                "version": version,
                "port": live.record.port,
                "pid": live.record.pid,
                "sessions": 1,
            }
        )

    def _orphaned(self) -> None:
        """The controller is dead: let go at once, then end the test that may still run.

        Called in the watchdog's thread, where no Playwright call may be made.
        """
        with contextlib.suppress(Exception):
            self.manager.close()
        self.door.kill_driver()
        with contextlib.suppress(Exception):
            self.manager.close()
        processes.interrupt_main_thread()


def _release(lives: list[LiveSession]) -> None:
    for live in lives:
        live.release()


def _refused(spec: SessionSpec, error: Exception) -> Exception:
    """A context that the browser refused: an option has a value it does not take."""
    if isinstance(error, PeaksError):
        return error
    options = ", ".join(sorted(spec.context_options)) or "none"
    return InvalidOptionError(
        f"the browser refused the session: {essence(error)}", hint=f"context options given: {options}"
    )
