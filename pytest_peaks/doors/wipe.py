"""Blanking a default context, which cannot be thrown away like one of its own.

``Storage.clearDataForOrigin`` with the origin ``*`` clears every origin of one context and leaves the
others alone. That is not documented, so it is tried out once on each browser before it is relied on;
where it fails the browser is replaced instead.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from pytest_peaks.errors import WipeFailedError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

# Two sites that exist nowhere: requests to them are answered here and never leave the browser.
_SELF_TEST = ("https://one.peaks-self-test.invalid/", "https://two.peaks-self-test.invalid/")
_LEAVE = """async () => {
    localStorage.setItem("k", "v");
    document.cookie = "k=v; Secure; SameSite=None; Max-Age=3600";
    await (await caches.open("k")).put("/k", new Response("v"));
    await new Promise((done, fail) => {
        const open = indexedDB.open("k");
        open.onupgradeneeded = () => open.result.createObjectStore("k");
        open.onsuccess = done; open.onerror = fail;
    });
}"""
_FIND = """async () => [
    localStorage.length, document.cookie.length, (await caches.keys()).length, (await indexedDB.databases()).length,
].reduce((sum, found) => sum + found, 0)"""


def wipe(browser: Browser, context: BrowserContext) -> Page:
    """Blank the default context; gives its one page, blank as well.

    Clears cookies, localStorage, sessionStorage, IndexedDB, Cache API, OPFS and service workers of
    every origin, the HTTP cache, permissions, the page's history, tabs and shared workers. What no
    call clears: credentials of HTTP basic auth that the browser remembers.

    :raises playwright.sync_api.Error: the browser does not answer.
    :raises WipeFailedError: something is left.
    """
    page = context.new_page()
    for other in context.pages:
        if other != page:
            other.close()
    session = context.new_cdp_session(page)
    own = session.send("Target.getTargetInfo")["targetInfo"].get("browserContextId")
    # Workers first: a living one would write again.
    _end_workers(browser, own)
    session.send("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    session.send("Network.clearBrowserCookies")
    session.send("Network.clearBrowserCache")
    session.send("Page.resetNavigationHistory")
    session.detach()
    context.clear_permissions()
    left = context.cookies()
    if left or len(context.pages) != 1:
        raise WipeFailedError(f"{len(left)} cookies and {len(context.pages) - 1} tabs are left after a wipe")
    return page


def wipe_all(browser: Browser) -> None:
    """Blank the default context, and end every other one: whoever made it has left.

    :raises playwright.sync_api.Error: the browser does not answer.
    :raises WipeFailedError: something is left.
    """
    session = browser.new_browser_cdp_session()
    # Playwright knows only those that it made itself.
    for left in session.send("Target.getBrowserContexts")["browserContextIds"]:
        session.send("Target.disposeBrowserContext", {"browserContextId": left})
    session.detach()
    wipe(browser, browser.contexts[0])


def _end_workers(browser: Browser, own: str | None) -> None:
    session = browser.new_browser_cdp_session()
    kinds: list[dict[str, Any]] = [{"type": "shared_worker"}, {"type": "service_worker"}]
    for target in session.send("Target.getTargets", {"filter": kinds})["targetInfos"]:
        if target.get("browserContextId") == own:
            with contextlib.suppress(Exception):  # it may have ended by itself meanwhile
                session.send("Target.closeTarget", {"targetId": target["targetId"]})
    session.detach()


def self_test(browser: Browser, context: BrowserContext) -> bool:
    """Whether a wipe of this browser's default context clears all origins. Takes about 0.3 s."""
    from playwright.sync_api import Error

    try:
        wipe(browser, context)
        _visit(context, _LEAVE)
        before = _visit(context, _FIND)
        wipe(browser, context)
        after = _visit(context, _FIND)
        wipe(browser, context)
    except (Error, WipeFailedError):
        return False
    # Four kinds on each of two origins; a browser may refuse a cookie for a site that is none.
    return before >= 3 * len(_SELF_TEST) and after == 0


def _visit(context: BrowserContext, script: str) -> int:
    page = context.pages[0]
    context.route("**/*", lambda route: route.fulfill(body="<!doctype html>", content_type="text/html"))
    total = 0
    for url in _SELF_TEST:
        page.goto(url)
        total += page.evaluate(script) or 0
    context.unroute_all()
    return total
