"""Choosing the browser that a worker's tests share, and starting it: ahead of the first test where that is possible."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pytest_peaks.doors.playwright import bounded
from pytest_peaks.errors import InvalidOptionError, PeaksError
from pytest_peaks.handle import OPEN_TIMEOUT
from pytest_peaks.session import browsers

if TYPE_CHECKING:
    from pytest_peaks.config import PeaksConfig
    from pytest_peaks.doors.playwright import PlaywrightDoor
    from pytest_peaks.session.live import LiveSession
    from pytest_peaks.session.manager import SessionManager
    from pytest_peaks.session.spec import BrowserSpec, Run, SessionSpec

T = TypeVar("T")

# A start that is called off ends within milliseconds: its browser is killed under it. This is for one that sweeps.
CALL_OFF_TIMEOUT = 5.0


class InThread(Generic[T]):
    """What a thread of its own works on meanwhile."""

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def join(self, timeout: float | None = None) -> None:
        self._thread.join(timeout)

    def result(self) -> T:
        """What came of it, when it is done; raises what it raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return cast("T", self._result)


def begin(manager: SessionManager, browser: BrowserSpec) -> InThread[LiveSession]:
    """Start a browser in a thread."""

    def start() -> LiveSession:
        live = manager.acquire(browser)
        import psutil  # noqa: F401 - the end of the run needs it, and nobody waits here

        return live

    _ = manager.temp_dir  # made here, where no other thread is at work
    return InThread("peaks-start", start)


class Starter:
    """Gives the browser process that tests share, one for each kind.

    :param say: what is noted for the end of the run.
    """

    def __init__(
        self,
        config: PeaksConfig,
        run: Run,
        manager: SessionManager,
        door: PlaywrightDoor,
        say: Callable[[str], None],
    ) -> None:
        self.shared: dict[BrowserSpec, LiveSession] = {}
        self._config = config
        self._run = run
        self._manager = manager
        self._door = door
        self._say = say
        self._early: InThread[LiveSession] | None = None
        self._ended_kept = False

    def start_ahead(self) -> None:
        """Begin to start the run's own browser. What goes wrong is told when a test needs it."""
        if self._early is None and not self.shared:
            self._early = begin(self._manager, self._config.browser_spec)

    def settle(self) -> None:
        """Wait for what was started ahead: nothing else is to be started at the same time."""
        if self._early is not None:
            self._early.join()

    def call_off(self) -> None:
        """The run ends: end what was started ahead, also in the middle of it."""
        early, self._early = self._early, None
        if early is None:
            return
        self._manager.refuse()
        for live in list(self._manager.live):
            live.release()
        early.join(CALL_OFF_TIMEOUT)

    def give(self, spec: SessionSpec) -> LiveSession:
        """The shared browser for a session; started if there is none."""
        live = self.shared.get(spec.browser)
        if live is None:
            live = self.shared[spec.browser] = self._start(spec)
        return live

    def forget(self, live: LiveSession) -> None:
        for key in [key for key, value in self.shared.items() if value is live]:
            del self.shared[key]

    def _start(self, spec: SessionSpec) -> LiveSession:
        """A new browser, last run's, or one that is there already, as configured."""
        config = self._config
        if config.attach and replace(spec.browser, persistent=False) == config.browser_spec:
            from pytest_peaks.reuse import attach

            if spec.doors or (spec.browser.persistent and self._run.workers > 1):
                what = "doors" if spec.doors else "isolation='profile' with more than one worker"
                raise InvalidOptionError(
                    f"{what} and --peaks-attach contradict each other: the browser's own context is not this test's",
                    hint="leave it out: each test then has a context of its own in that browser",
                )
            return attach(self._manager, spec.browser, config.attach)
        if spec.browser != config.browser_spec:
            return self._acquire(spec.browser)
        if config.reuse == "off" and not config.fresh:
            return self._acquire(spec.browser)
        return self._reused(spec.browser) or self._acquire(spec.browser)

    def _acquire(self, browser: BrowserSpec) -> LiveSession:
        """Start a browser, and meanwhile Playwright's driver, which takes longer, if it does not run yet."""
        early = self._early
        if early is not None and browser == self._config.browser_spec:
            self._door.playwright()  # where that fails, the browser is for the next test
            self._early = None
            with contextlib.suppress(Exception):  # it is tried once more, and then it is told
                live = early.result()
                if live.is_alive():
                    return live
                live.release()
        self.settle()
        if self._door.is_started or not browser.own_process:
            return self._manager.acquire(browser)
        browsers.find(browser)  # without one there is nothing to overlap
        self._manager.prepare()
        beginning = begin(self._manager, browser)
        try:
            self._door.playwright()
        except BaseException:
            with contextlib.suppress(Exception):
                beginning.result().release()
            raise
        return beginning.result()

    def _reused(self, spec: BrowserSpec) -> LiveSession | None:
        from pytest_peaks.reuse import SlotSessions, ignored_in_ci

        slot = SlotSessions(self._manager, self._run.slot, self._say)
        if self._config.fresh and not self._ended_kept:
            self._ended_kept = True
            slot.end_unused()
        if self._config.reuse == "off" or not spec.own_process:
            return None
        if ignored_in_ci(self._config.reuse):
            self._say("--peaks-reuse is ignored in CI; --peaks-reuse=force insists")
            return None
        self._manager.prepare()
        live = slot.borrow(spec)
        if live is not None and not self._blank(live):
            self._say(f"{slot.name} could not be blanked: replaced")
            live.kill()
            live.release()
            live = slot.borrow(spec)
        return live

    def _blank(self, live: LiveSession) -> bool:
        """Wipe what the last run left in a kept browser; whether that worked."""
        from playwright.sync_api import Error

        from pytest_peaks.doors.wipe import wipe_all

        try:
            browser: Any = self._door.attach(live)
            with bounded(OPEN_TIMEOUT, live.kill, self._door.kill_driver):
                wipe_all(browser)
                browser.close()
        except (Error, PeaksError):
            return False
        return True
