"""What peaks does in a desk's browser: blank it, restore a state, save one, navigate. Bounded in time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_peaks.auth.capture import (
    BLANK,
    READ_SESSION,
    Captured,
    blank_sites,
    capture,
    open_origins,
    visited,
)
from pytest_peaks.auth.model import EXTRAS, State
from pytest_peaks.auth.replay import replay, seed
from pytest_peaks.desks.errors import DeskFailedError
from pytest_peaks.doors.playwright import PlaywrightDoor, bounded, essence
from pytest_peaks.errors import BrowserLostError, WipeFailedError
from pytest_peaks.session import profiles
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import owner_temp_dir
from pytest_peaks.session.urls import shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CONNECT_TIMEOUT = 30.0
# Blanking takes 0.2 s, a state with twenty origins two seconds. Above this something holds it up.
WORK_TIMEOUT = 60.0
GOTO_TIMEOUT = 30.0
POPUP_TIMEOUT = 2.0
# Visiting an origin takes some 30 ms. What a wipe cleared is looked at on so many.
ORIGINS_CHECKED = 20
_LEFT = """async () => [
    localStorage.length, sessionStorage.length, document.cookie.length, (self.caches ? await caches.keys() : []).length,
    (await indexedDB.databases()).length,
].reduce((sum, found) => sum + found, 0)"""


@dataclass(frozen=True, slots=True)
class Visit:
    """What came of taking a desk's page somewhere.

    :ivar problem: why the page is not there; empty if it is.
    """

    url: str
    problem: str = ""


class Browsing:
    """Connections of this process to browsers of desks, over one Playwright driver.

    :param door: the one that this process has already; without it one is started when it is needed.
    """

    def __init__(self, door: PlaywrightDoor | None = None) -> None:
        self._own = door is None
        self._temp: Path | None = None
        self._door = door if door is not None else PlaywrightDoor(self._temp_dir, lambda: None)

    def __enter__(self) -> Browsing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the driver, if it is ours. Idempotent."""
        if self._own:
            self._door.stop()
            if self._temp is not None:
                profiles.remove_tree(self._temp, self._temp.parent)

    def _temp_dir(self) -> Path:
        if self._temp is None:
            self._temp = owner_temp_dir(ProcessIdentity.of_self())
        return self._temp

    @contextlib.contextmanager
    def at(self, endpoint: str, kill: Callable[[], object]) -> Iterator[Work]:
        """Work in the browser at a CDP WebSocket URL; it stays when the work is done.

        :param kill: ends the browser: called if the work takes too long.
        :raises DeskFailedError: the browser does not answer, or not in time.
        """
        from playwright.sync_api import Error

        playwright = self._door.playwright()
        start = time.monotonic()
        try:
            with bounded(WORK_TIMEOUT, kill, self._door.kill_driver):
                browser = playwright.chromium.connect_over_cdp(endpoint, timeout=CONNECT_TIMEOUT * 1000)
                try:
                    yield Work(browser)
                finally:
                    with contextlib.suppress(Error):
                        browser.close()  # a guest leaves; the browser stays
        except (Error, BrowserLostError) as error:
            what = "did not answer in time" if time.monotonic() - start > WORK_TIMEOUT else "does not answer"
            # Playwright's message may hold the URL, whose path is a key to the browser.
            said = essence(error).replace(endpoint, "its URL")
            if "Timeout" in said:
                said += "; a tab with an open dialog, or one that hangs, holds it up"
            raise DeskFailedError(
                f"the desk's browser {what}: {said}", hint="`peaks session pool` shows its state"
            ) from None


class Work:
    """One connection to a desk's browser."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @property
    def _context(self) -> BrowserContext:
        if not self._browser.contexts:
            raise DeskFailedError(
                "the desk's browser has no context of its own", hint="give its CDP endpoint"
            )
        return self._browser.contexts[0]

    def prove(self) -> None:
        """Try out once whether a wipe of this browser works. Leaves it blank.

        :raises WipeFailedError: it does not.
        """
        from pytest_peaks.doors.wipe import self_test

        if not self_test(self._browser, self._context):
            raise WipeFailedError("a wipe does not clear this browser", hint="a desk needs another browser")

    def blank(self, *, all_contexts: bool) -> None:
        """Blank the browser, and look whether it is.

        :param all_contexts: the browser is a desk and nothing else: contexts that somebody made in it go.
        :raises WipeFailedError: something is left.
        """
        from pytest_peaks.doors.wipe import wipe, wipe_all

        origins = self._origins()[:ORIGINS_CHECKED]
        if all_contexts:
            wipe_all(self._browser)
        else:
            wipe(self._browser, self._context)
        left = self._left_on(origins)
        if left:
            raise WipeFailedError(f"something of {len(left)} sites is left after a wipe")

    def restore(self, state: State) -> None:
        """Put a state into a blank browser.

        :raises ReplayFailedError: the browser refuses it; it is to be blanked.
        """
        context = self._context
        replay(context, state)
        seed(context.pages[0] if context.pages else context.new_page(), state)

    def capture(self, name: str, *, more_origins: Iterable[str] = ()) -> Captured:
        """What the browser holds; its tabs stay as they are.

        :param more_origins: sites that may have something, besides those in the tabs and their history.
        """
        context = self._context
        origins = dict.fromkeys([*self._origins(), *more_origins])
        with visited(context, list(origins)) as page:
            found = capture(context, page, name=name)
        session = found.state[EXTRAS]["sessionStorage"]
        for page in context.pages:
            session.update(_left_behind(page, [o for o in self._history(page) if o not in session]))
        return found

    def visit(self, url: str) -> Visit:
        """Take the first tab to `url`."""
        from playwright.sync_api import Error

        context = self._context
        page = context.pages[0] if context.pages else context.new_page()
        try:
            page.goto(url, timeout=GOTO_TIMEOUT * 1000)
        except Error as error:
            if self._browser.is_connected():
                return Visit(shown(page.url), essence(error).split(" at http")[0])
            raise
        return Visit(shown(page.url))

    def _origins(self) -> list[str]:
        """The origins of all tabs, of their frames and of what they showed before."""
        found = dict.fromkeys(open_origins(self._context))
        for page in self._context.pages:
            found.update(dict.fromkeys(self._history(page)))
        return list(found)

    def _history(self, page: Page) -> list[str]:
        """The origins that a tab has shown."""
        found: dict[str, None] = {}
        with contextlib.suppress(Exception):  # a tab that is on its way somewhere tells nothing
            session = self._context.new_cdp_session(page)
            for entry in session.send("Page.getNavigationHistory")["entries"]:
                url = urlsplit(entry["url"])
                if url.scheme in ("http", "https") and url.netloc:
                    found[f"{url.scheme}://{url.netloc}"] = None
            session.detach()
        return list(found)

    def _left_on(self, origins: Iterable[str]) -> list[str]:
        """Those of `origins` on which something is stored. No request leaves the browser."""
        from playwright.sync_api import Error

        wanted = list(origins)
        if not wanted:
            return []
        page = self._context.pages[0]
        left = []
        with blank_sites(page):
            for origin in wanted:
                with contextlib.suppress(Error):
                    page.goto(origin + BLANK, wait_until="commit")
                    if page.evaluate(_LEFT):
                        left.append(origin)
            page.goto("about:blank")
        session = self._context.new_cdp_session(page)
        session.send("Page.resetNavigationHistory")
        session.detach()
        return left


def _left_behind(page: Page, origins: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """sessionStorage that a tab has of origins which it has left.

    Read in a tab that the page opens, which gets a copy of it all: the tab itself stays where it is.
    No request leaves the browser.
    """
    from playwright.sync_api import Error

    wanted = list(origins)
    if not wanted:
        return
    with contextlib.suppress(Error):  # a page may be forbidden to open any
        with page.expect_popup(timeout=POPUP_TIMEOUT * 1000) as opening:
            page.evaluate("() => { window.open('about:blank'); }")
        with contextlib.closing(opening.value) as copy, blank_sites(copy):
            for origin in wanted:
                copy.goto(origin + BLANK, wait_until="commit")
                seen, items = copy.evaluate(READ_SESSION)
                if seen == origin and items:
                    yield origin, items
