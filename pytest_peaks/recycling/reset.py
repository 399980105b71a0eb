"""Blanking one context, and finding out whether it is blank."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peaks.recycling.guard import Guard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, Request

# A page takes 0.03 s to be blank again; one that holds on to its document is thrown away. Less than what the
# end of a test may take, or the browser would be ended for it.
BLANK_TIMEOUT = 2_000.0
# What makes the size of the window more than two numbers.
SIZED = ("screen", "is_mobile", "no_viewport")
# A request of these kinds may go on when its document is gone.
OUTLIVING = ("fetch", "ping", "other")
_SITES = ("https://one.peaks-self-test.invalid/", "https://two.peaks-self-test.invalid/")
_PAGE = f"<!doctype html><iframe src='{_SITES[1]}'></iframe>"
_FIND = """async () =>
    localStorage.length + (await caches.keys()).length + (await indexedDB.databases()).length
"""
_LEAVE = f"""async () => {{
    localStorage.setItem("k", "v");
    await (await caches.open("k")).put("/k", new Response("v"));
    await new Promise((done, fail) => {{
        const open = indexedDB.open("k");
        open.onupgradeneeded = () => open.result.createObjectStore("k");
        open.onsuccess = done; open.onerror = fail;
    }});
    return ({_FIND})();
}}"""


@dataclass(eq=False)
class Slot:
    """A context with one page.

    :ivar key: what it was made with; only a test that wants the same gets it.
    :ivar own: the browser's id of the context.
    :ivar permissions: those that it was made with.
    :ivar resizable: whether the window can get its first size back.
    :ivar log: the requests of earlier tests that the page still has in its log; None for a new page.
    :ivar uses: how many tests had it.
    """

    key: object
    browser: Browser
    context: BrowserContext
    page: Page
    session: CDPSession
    own: str | None
    permissions: list[str] = field(default_factory=list)
    resizable: bool = True
    log: frozenset[Request] | None = None
    uses: int = 0
    guard: Guard | None = None

    @classmethod
    def open(cls, key: object, browser: Browser, context: BrowserContext, options: Mapping[str, Any]) -> Slot:
        """A slot around a new context.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        page = context.new_page()
        session = context.new_cdp_session(page)
        own = session.send("Target.getTargetInfo")["targetInfo"].get("browserContextId")
        granted = list(options.get("permissions") or [])
        resizable = not any(options.get(name) for name in SIZED)
        return cls(key, browser, context, page, session, own, granted, resizable)

    def watch(self) -> None:
        """From here on a test has it."""
        self.guard = Guard(self.context, self.page, self.log, resizable=self.resizable)


def reset(slot: Slot, guard: Guard | None, browser_session: Callable[[], CDPSession]) -> str | None:
    """Blank a context after a test. Why it is not to be used again; None if it is.

    :param guard: what watched over the test; has let go.
    :raises playwright.sync_api.Error: the browser does not answer, or refuses a step.
    """
    if guard is not None:
        if guard.taints:
            return guard.taints[0]
        guard.undo()
    if slot.page.is_closed() or len(slot.context.pages) != 1:
        return "tabs"
    # The page before is gone when the blank one is committed; its load is waited for where it matters.
    slot.page.goto("about:blank", timeout=BLANK_TIMEOUT, wait_until="commit")
    log = slot.page.requests()
    if any(_names_a_user(request.url) for request in log):
        return "a user in a URL"  # the browser remembers the password, and nothing clears that
    if any(_is_under_way(request) for request in log):
        return "a request under way"  # its answer may set a cookie
    slot.log = frozenset(log)
    blank(slot, browser_session(), granted=guard is None or guard.granted)
    return None


def blank(slot: Slot, browser_session: CDPSession, *, granted: bool) -> None:
    """Clear what a context has in store; its page is blank.

    :param granted: whether permissions may have been granted.
    :raises playwright.sync_api.Error: the browser does not answer, or refuses a step.
    """
    # Workers first: a living one would write again.
    _end_workers(slot, browser_session)
    send = slot.session.send
    # A string that is no origin clears every origin of the context; not documented, so tried out once.
    send("Storage.clearDataForOrigin", {"origin": "", "storageTypes": "all"})
    send("Network.clearBrowserCookies")
    send("Network.clearBrowserCache")
    slot.page.wait_for_load_state("load", timeout=BLANK_TIMEOUT)
    send("Page.resetNavigationHistory")
    send("Runtime.evaluate", {"expression": "window.name = ''"})
    if granted:
        slot.context.clear_permissions()
        if slot.permissions:
            slot.context.grant_permissions(slot.permissions)
    slot.page.clear_console_messages()
    slot.page.clear_page_errors()


def is_blank(slot: Slot) -> bool:
    """Whether nothing has come into a context since it was blanked, of what can come late.

    :raises playwright.sync_api.Error: the browser does not answer.
    """
    return (
        not slot.page.is_closed()
        and len(slot.context.pages) == 1
        and slot.page.url == "about:blank"
        and not slot.context.cookies()
    )


def try_out(browser: Browser, browser_session: CDPSession) -> bool:
    """Whether :func:`blank` clears all origins of a context in this browser. Takes about 0.1 s.

    :raises playwright.sync_api.Error: the browser does not answer, or refuses a step.
    """
    context = browser.new_context()
    try:
        slot = Slot.open("", browser, context, {})
        context.route(
            "**/*",
            lambda route: route.fulfill(
                body=_PAGE if route.request.url == _SITES[0] else "<!doctype html>", content_type="text/html"
            ),
        )

        def both(script: str) -> int:
            slot.page.goto(_SITES[0])
            return sum(frame.evaluate(script) for frame in slot.page.frames)

        before = both(_LEAVE)
        slot.page.goto("about:blank")
        blank(slot, browser_session, granted=False)
        return before == 3 * len(_SITES) and both(_FIND) == 0
    finally:
        context.close()


def _end_workers(slot: Slot, browser_session: CDPSession) -> None:
    kinds: list[dict[str, Any]] = [{"type": "shared_worker"}, {"type": "service_worker"}]
    for target in browser_session.send("Target.getTargets", {"filter": kinds})["targetInfos"]:
        if target.get("browserContextId") == slot.own:
            with contextlib.suppress(Exception):  # it may have ended by itself meanwhile
                browser_session.send("Target.closeTarget", {"targetId": target["targetId"]})


def _names_a_user(url: str) -> bool:
    try:
        return urlsplit(url).username is not None
    except ValueError:
        return True


def _is_under_way(request: Request) -> bool:
    if request.resource_type not in OUTLIVING or request.existing_response is not None:
        return False
    # One with `keepalive` is called aborted, and goes on.
    return request.failure in (None, "net::ERR_ABORTED")
