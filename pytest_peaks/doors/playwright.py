"""The Playwright door: one driver for a worker, one connection a browser, every call bounded in time."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_peaks.doors.driver import SpareDriver, driver_children, driver_environment
from pytest_peaks.errors import BrowserLostError, DriverFailedError
from pytest_peaks.session import machine, processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import LiveSession, child_environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, BrowserType, Playwright

# Attaching takes 0.05 s; this is for a machine that starts eight browsers at once.
ATTACH_TIMEOUT = 30.0
# Closing a context takes 0.01 s, on a machine that starts eight browsers at once a hundred times as
# long. Playwright itself would wait half a minute for a browser that does not answer; the end of a
# run has five seconds.
CLOSE_TIMEOUT = 4.0
STOP_TIMEOUT = 2.0


@contextlib.contextmanager
def bounded(seconds: float, *expiry: Callable[[], object]) -> Iterator[None]:
    """Run a block that has no time limit of its own; when `seconds` are over, pull the plug.

    Playwright's sync calls can't be interrupted, but they return with an error as soon as the
    browser or the driver on the other side is gone. The actions of `expiry` are called one after
    the other, `seconds` apart, until the block ends.
    """
    done = threading.Event()

    def wait() -> None:
        for action in expiry:
            if done.wait(seconds):
                return
            action()

    thread = threading.Thread(target=wait, name="peaks-bound", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


class PlaywrightDoor:
    """Playwright's driver in this process, and connections to sessions.

    :param borrow: gives a Playwright that somebody else started and will stop, or None. A second
        sync driver in one thread is not possible, so one that is there has to be used.
    """

    def __init__(self, temp_dir: Callable[[], Path], borrow: Callable[[], Playwright | None]) -> None:
        self._temp_dir = temp_dir
        self._borrow = borrow
        self._playwright: Playwright | None = None
        self._borrowed = False
        self._driver: ProcessIdentity | None = None
        self._spare: SpareDriver | None = None

    @property
    def driver(self) -> ProcessIdentity | None:
        """Playwright's driver process, where it is known."""
        return self._driver

    @property
    def is_started(self) -> bool:
        """Whether a driver runs, or ran."""
        return self._playwright is not None

    @property
    def is_borrowed(self) -> bool:
        """Whether the driver is somebody else's."""
        return self._borrowed and self._playwright is not None

    @property
    def is_lost(self) -> bool:
        """Whether the driver died since it was last used."""
        return self._playwright is not None and self._driver is not None and not self._driver.is_alive()

    def borrow_by(self, borrow: Callable[[], Playwright | None]) -> None:
        """Say how a Playwright of somebody else's can be had."""
        self._borrow = borrow

    def take(self, spare: SpareDriver) -> None:
        """Use a driver that was started ahead, if none runs yet."""
        if self._playwright is None and self._spare is None:
            self._spare = spare
        else:
            spare.discard()

    def playwright(self) -> Playwright:
        """The running Playwright; starts it, or starts it anew if its driver died.

        :raises DriverFailedError: it can't be started.
        """
        if self._playwright is not None and (self._driver is None or self._driver.is_alive()):
            return self._playwright
        lost, self._playwright = self._playwright, None
        if lost is not None:
            # Also one that is not ours: it is dead, and stopping it frees the thread's event loop.
            with contextlib.suppress(Exception), bounded(STOP_TIMEOUT, self.kill_driver):
                lost.stop()
        spare, self._spare = self._spare, None
        with driver_environment(self._temp_dir()):
            # One that is there already has to be used, whatever was started ahead.
            before = set(driver_children()) if spare is None else {spare.identity}
            borrowed = self._borrow() if lost is None else None
            self._borrowed = borrowed is not None
            started = borrowed
            if spare is not None:
                started = started or self._start_with(spare)
                spare.discard()
            self._playwright = started if started is not None else _start()
        if spare is None or self._driver != spare.identity:
            after = driver_children()
            new = [child for child in after if child not in before] or (after if self._borrowed else [])
            self._driver = new[0] if len(new) == 1 else None
        return self._playwright

    def _start_with(self, spare: SpareDriver) -> Playwright | None:
        """Playwright with a driver that was started ahead, if it takes that one; None if it did not start."""
        try:
            with spare.offered():
                started = _start()
        except DriverFailedError:
            return None  # once more, and then it is told
        finally:
            self._driver = spare.identity if spare.is_taken else None
        return started

    def attach(
        self, session: LiveSession, context_options: Mapping[str, Any] | None = None
    ) -> Browser | BrowserContext:
        """Connect to a session. The default context itself where Playwright launches a profile.

        :param context_options: for the default context of a browser that the driver is to launch.
        :raises BrowserLostError: the browser does not answer.
        """
        playwright = self.playwright()
        from playwright.sync_api import Error

        if session.endpoint is None:
            return self._launch(session, playwright, context_options or {})
        try:
            # The WebSocket URL and not the HTTP one: that would go through HTTP_PROXY.
            with bounded(ATTACH_TIMEOUT, session.kill, self.kill_driver):
                chromium, limit, slow_mo = playwright.chromium, ATTACH_TIMEOUT * 1000, session.spec.slow_mo
                if _is_playwright_server(session.endpoint):
                    return chromium.connect(session.endpoint, timeout=limit, slow_mo=slow_mo)
                return chromium.connect_over_cdp(session.endpoint, timeout=limit, slow_mo=slow_mo)
        except Error as error:
            # A server's URL may hold its token.
            said = essence(error).replace(session.endpoint, "its URL")
            where = f" on port {session.record.port}" if session.record.port else ""
            raise BrowserLostError(
                f"{session.found} does not answer{where}: {said}",
                hint="`peaks doctor` says what is wrong with this machine",
            ) from None

    def _launch(
        self, session: LiveSession, playwright: Playwright, context_options: Mapping[str, Any]
    ) -> Browser | BrowserContext:
        """Let Playwright launch the browser through its own pipe."""
        from playwright.sync_api import Error

        spec = session.spec
        kind = getattr(playwright, "chromium" if spec.browser.is_chromium else str(spec.browser))
        options: dict[str, Any] = {
            "headless": not spec.headed,
            "slow_mo": spec.slow_mo,
            "env": dict(child_environment(session.session_id, Path(session.record.temp_dir))),
        }
        # A channel is for Playwright to find.
        if session.found.executable is not None and "channel" not in spec.launch:
            options["executable_path"] = session.found.executable
        if spec.browser.is_chromium:
            options["chromium_sandbox"] = machine.sandbox().usable
        options.update(spec.launch)
        options["args"] = [*options.get("args", ()), *spec.switches]
        if spec.by_driver:
            options["args"].append(f"--remote-debugging-port={session.record.port}")
        launched: Browser | BrowserContext
        try:
            with bounded(ATTACH_TIMEOUT, self.kill_driver):
                if spec.by_driver:
                    launched = self._launch_with_options(session, kind, {**options, **context_options})
                elif spec.persistent:
                    launched = kind.launch_persistent_context(session.user_data_dir, **options)
                else:
                    launched = kind.launch(**options)
        except Error as error:
            raise BrowserLostError(
                f"Playwright could not launch {session.found}: {essence(error)}",
                hint="`peaks doctor` says what is wrong with this machine",
            ) from None
        return launched

    def _launch_with_options(
        self, session: LiveSession, kind: BrowserType, options: dict[str, Any]
    ) -> BrowserContext:
        """A browser whose default context has options, and which has a debugging port for other doors."""
        state = options.pop("storage_state", None)
        context = kind.launch_persistent_context(str(session.user_data_dir), **options)
        if state is not None:
            context.set_storage_state(state)
        session.found_running(_cdp_endpoint(session.record.port))
        return context

    def kill_driver(self) -> None:
        spare = self._spare
        for driver in (self._driver, spare.identity if spare is not None else None):
            if driver is not None:
                processes.end_tree(driver, grace=0.0)

    def stop(self) -> None:
        """Stop the driver, unless it is somebody else's. Idempotent."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.discard()
        playwright, self._playwright = self._playwright, None
        if playwright is None and not self._borrowed:
            self.kill_driver()  # its start was interrupted
        if playwright is None or self._borrowed:
            return
        with contextlib.suppress(Exception), bounded(STOP_TIMEOUT, self.kill_driver):
            playwright.stop()
        self.kill_driver()


def _is_playwright_server(url: str) -> bool:
    """Whether a WebSocket URL is a Playwright server's; a browser's has ``/devtools/`` in its path."""
    return url.startswith(("ws://", "wss://")) and "/devtools/" not in url


def _cdp_endpoint(port: int) -> str:
    """The WebSocket URL of the browser on a debugging port.

    :raises BrowserLostError: nothing on that port answers like one.
    """
    import http.client

    # And not urllib: a proxy in the environment is not for loopback.
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLOSE_TIMEOUT)
    try:
        connection.request("GET", "/json/version")
        return str(json.loads(connection.getresponse().read())["webSocketDebuggerUrl"])
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise BrowserLostError(f"the browser does not answer on port {port}: {error}") from None
    finally:
        connection.close()


def essence(error: BaseException) -> str:
    """What an error says in at most 300 characters, without Playwright's call log and boxes."""
    text = str(error).partition("Call log:")[0]
    lines = [line.strip(" ║╔╗╚╝═\t") for line in text.splitlines()]
    kept = " ".join(line for line in lines if line)
    return kept[:300] or type(error).__name__


def _start() -> Playwright:
    from playwright.sync_api import Error, sync_playwright

    try:
        return sync_playwright().start()
    except Error as error:
        if "asyncio loop" in str(error):
            raise DriverFailedError(
                "another event loop runs in this thread, so Playwright's sync API cannot start",
                hint="if the suite starts Playwright itself, do it in a session fixture named `playwright`, which "
                "peaks then uses; an async test cannot use a peaks fixture",
            ) from None
        raise DriverFailedError(f"Playwright did not start: {essence(error)}") from None
    except Exception as error:
        raise DriverFailedError(
            f"Playwright's driver did not start: {essence(error)}",
            hint="`python -m playwright --version` shows whether the installed Playwright is whole",
        ) from error
