"""Saving and trying a login outside of pytest: in a window, from a hosted session, against a URL."""

from __future__ import annotations

import contextlib
import fnmatch
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_peaks.auth.capture import Captured, Watch, capture, open_origins, visited
from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import refused, seed
from pytest_peaks.errors import LoginFailedError, NoDisplayError, StartFailedError
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.spec import BrowserSpec
from pytest_peaks.session.urls import shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# How long a page may take to come to what --until names.
UNTIL_TIMEOUT = 600.0
GOTO_TIMEOUT = 30_000.0
SETTLE_TIMEOUT = 5_000.0
PUMP = 100.0


@contextlib.contextmanager
def _browser(dirs: ProjectDirs, *, headed: bool) -> Iterator[Browser]:
    """A browser of peaks' own, gone afterwards."""
    from pytest_peaks.doors.playwright import PlaywrightDoor

    manager = SessionManager(dirs, None, WORKER_PORTS)
    door = PlaywrightDoor(lambda: manager.temp_dir, lambda: None)
    try:
        attached: Any = door.attach(manager.acquire(BrowserSpec(headed=headed)))
        yield attached
    except NoDisplayError as error:
        raise NoDisplayError(
            error.message,
            hint="use --from TERMINAL, --headless with --until, or a virtual display: xvfb-run -a peaks auth save …",
        ) from None
    finally:
        manager.close()
        door.stop()
        manager.close()


def in_a_window(
    dirs: ProjectDirs, name: str, url: str, *, until: str | None, headless: bool, wait: Callable[[], bool]
) -> Captured:
    """Open `url` and save what the browser holds when the user has logged in.

    :param until: save as soon as the URL matches this; else when `wait` returns.
    :raises LoginFailedError: the page does not open, is closed, or never comes to `until`.
    """
    from playwright.sync_api import Error

    with _browser(dirs, headed=not headless) as browser:
        context = browser.new_context(no_viewport=True) if not headless else browser.new_context()
        watch = Watch(context)
        page = context.new_page()
        try:
            page.goto(url, timeout=GOTO_TIMEOUT)
            if until is None:
                if not _until_enter(page, wait):
                    raise LoginFailedError(
                        f"auth {name!r}: standard input ended before Enter was pressed",
                        hint="run it in a terminal, or say with --until when the login is done",
                    )
            else:
                deadline = time.monotonic() + UNTIL_TIMEOUT
                while not _is_like(page.url, until):
                    if time.monotonic() > deadline:
                        raise LoginFailedError(
                            f"auth {name!r}: the page never came to {until}", hint="look at how it is spelt"
                        )
                    page.wait_for_timeout(PUMP)
            last = next((tab for tab in reversed(context.pages) if tab.url.startswith("http")), page)
            return watch.captured(last, name=name)
        except Error as error:
            text = str(error).splitlines()[0]
            closed = "has been closed" in text
            raise LoginFailedError(
                f"auth {name!r}: {text}",
                hint="keep the window open until the login is saved" if closed else "is the application up?",
            ) from None


def _until_enter(page: Page, wait: Callable[[], bool]) -> bool:
    """What `wait` gives, called in a thread of its own: the browser's events are let through meanwhile."""
    import threading

    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(wait()), daemon=True)
    waiting.start()
    while waiting.is_alive():
        page.wait_for_timeout(PUMP)
    return answers == [True]


def from_hosted(dirs: ProjectDirs, name: str, terminal: str) -> Captured:
    """Save the login of a terminal's hosted session; its tabs stay as they are.

    :raises NoSessionError: there is no such session.
    :raises StartFailedError: its browser does not answer.
    """
    from playwright.sync_api import Error, sync_playwright

    from pytest_peaks.hosting import sessions, terminals
    from pytest_peaks.session.spawning import secrets_aside

    found, _ = sessions.look(dirs)
    hosted = sessions.choose(found, terminals.current(terminal), None)
    endpoint = hosted.record.endpoints.get("cdp", "")
    with secrets_aside():
        starting = sync_playwright()
        playwright = starting.start()
    try:
        try:
            browser = playwright.chromium.connect_over_cdp(endpoint)
            context = browser.contexts[0]
            with visited(context, open_origins(context)) as page:
                captured = capture(context, page, name=name)
            browser.close()  # a guest leaves; the browser stays
        except (Error, IndexError) as error:
            raise StartFailedError(
                f"the browser of session {hosted.name} does not answer: {str(error).splitlines()[0]}",
                hint="`peaks playwright ls` shows its state",
            ) from None
    finally:
        playwright.stop()
    return captured


def refusal(dirs: ProjectDirs, name: str, state: State, url: str) -> str | None:
    """Try a login at `url`: why it does not take it, or None if it does.

    Taken means: no error status, and the browser is not sent to another page.
    """
    from playwright.sync_api import Error

    with _browser(dirs, headed=False) as browser:
        try:
            plain: Any = state.plain
            page = browser.new_context(storage_state=plain).new_page()
        except Error as error:
            raise refused(error) from None
        seed(page, state)
        try:
            answer = page.goto(url, timeout=GOTO_TIMEOUT)
        except Error as error:
            raise LoginFailedError(
                f"auth {name!r} could not be tried: {str(error).splitlines()[0]}",
                hint="is the application up?",
            ) from None
        # A page may look at its login only when it runs, and leave then.
        with contextlib.suppress(Error):
            page.wait_for_load_state("networkidle", timeout=SETTLE_TIMEOUT)
        if answer is not None and answer.status >= 400:
            return f"auth {name!r} is not taken: {shown(url)} answers {answer.status}"
        if shown(page.url) != shown(url):
            return f"auth {name!r} is not taken: {shown(url)} leads to {shown(page.url)}"
    return None


def _is_like(url: str, pattern: str) -> bool:
    """Whether a URL is like `pattern`. What comes after the path counts only if the pattern has a ``?`` or ``#``."""
    if not any(mark in pattern for mark in "?#"):
        url = re.split("[?#]", url)[0]
    return fnmatch.fnmatchcase(url, pattern.replace("**", "*").replace("?", "[?]"))
