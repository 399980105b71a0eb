"""Putting a saved login into a browser: the whole of it or an error, and never half."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peaks.auth.capture import BLANK, blank_sites
from pytest_peaks.auth.model import State, cookie_key
from pytest_peaks.errors import BrowserLostError, PeaksError, ReplayFailedError

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

# A state with twenty origins takes two seconds. Above this something holds it up; its browser is ended then.
REPLAY_TIMEOUT = 45.0
SEED = "items => { for (const [key, value] of Object.entries(items)) sessionStorage.setItem(key, value); }"


def replay(context: BrowserContext, state: State, *, clear: Iterable[str] = ()) -> None:
    """Put a saved login into a default context, in place of what its sites have there; the caller bounds the time.

    Other sites keep their cookies. After a failure the context is half set and must not be used.

    :param clear: further origins of which nothing is to stay.
    :raises ReplayFailedError: the browser refuses it.
    :raises BrowserLostError: the browser died meanwhile.
    """
    from playwright.sync_api import Error

    cleared = set(clear)
    try:
        # A page that holds a database open would hold this up for ever.
        for page in context.pages:
            if page.url != "about:blank":
                page.goto("about:blank")
        if cleared:
            page = context.pages[0] if context.pages else context.new_page()
            session = context.new_cdp_session(page)
            for origin in cleared:
                session.send("Storage.clearDataForOrigin", {"origin": origin, "storageTypes": "all"})
            session.detach()
        hosts = {cookie_key(cookie)[1].lstrip(".") for cookie in state.cookies}
        hosts |= {urlsplit(origin).hostname or "" for origin in cleared}
        present: Any = context.cookies()
        others = [cookie for cookie in present if not _is_of(cookie["domain"].lstrip("."), hosts)]
        plain: Any = State({**state.plain, "cookies": [*others, *state.cookies]})  # a TypedDict to Playwright
        context.set_storage_state(plain)
    except Error as error:
        raise refused(error) from None


def _is_of(domain: str, hosts: Iterable[str]) -> bool:
    """Whether a cookie of `domain` goes to one of `hosts`, or to one below it."""
    return any(
        domain == host or domain.endswith(f".{host}") or host.endswith(f".{domain}") for host in hosts if host
    )


def refused(error: BaseException) -> PeaksError:
    """The failure of a replay, without what Playwright's message may quote of the state."""
    text = str(error)
    if "has been closed" in text or "onnection closed" in text:
        return BrowserLostError(
            "the browser died while a saved login was put into it", hint="the next test gets a new one"
        )
    reason = told(text)
    return ReplayFailedError(
        "the browser does not take the saved login" + (f": {reason}" if reason else ""),
        hint="save the login anew: `peaks auth save NAME`",
    )


_KNOWN = (
    "Invalid cookie fields",
    "Cookie should have a valid expires",
    "Cookie should have a url or a domain/path pair",
    "exceeded the quota",
    "Unable to restore IndexedDB",
    "Timeout",
)


def told(text: str) -> str:
    """What may be told of Playwright's reason for refusing a state: nothing that quotes it. May be empty."""
    what = re.search(r"(cookies|origins)\[[0-9]+\][\w.\[\]]*: expected [\w |(),]{1,80}", text)
    return what[0] if what else next((words for words in _KNOWN if words in text), "")


def too_slow() -> ReplayFailedError:
    """The failure of a replay that was ended."""
    return ReplayFailedError(
        f"the saved login was not in the browser after {REPLAY_TIMEOUT:.0f} s; the browser was ended",
        hint="save only what the login needs: `peaks auth show NAME` says what is in it",
    )


def seed(page: Page, state: State) -> None:
    """Put sessionStorage into a tab, which is blank before and after, with no history.

    Written into the tab itself, so that a logout takes it away for good, and an MCP client may make the
    first navigation. No request leaves the browser.

    :raises ReplayFailedError: the browser refuses it.
    :raises BrowserLostError: the browser died meanwhile.
    """
    from playwright.sync_api import Error

    wanted = State({origin: items for origin, items in state.session_storage.items() if items})
    if not wanted:
        return
    try:
        with blank_sites(page):
            for origin, items in wanted.items():
                page.goto(origin + BLANK, wait_until="commit")
                page.evaluate(SEED, dict(items))
            page.goto("about:blank")
        browser = page.context.browser
        if browser is None or browser.browser_type.name == "chromium":  # others have no CDP
            session = page.context.new_cdp_session(page)
            session.send("Page.resetNavigationHistory")
            session.detach()
    except Error as error:
        raise refused(error) from None
