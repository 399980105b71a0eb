"""Blanking one context, and finding out whether it is blank."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peaks.recycling.gathered import together
from pytest_peaks.recycling.gathered import try_out as try_out_gathering
from pytest_peaks.recycling.guard import Guard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, Request

# Milliseconds. A context takes 20 to be blank again; one whose page holds on to its document is thrown away. Less
# than what the end of a test may take, or the browser would be ended for it.
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
        try_out_gathering(session)
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
    until = time.monotonic() + BLANK_TIMEOUT / 1000
    # The page before is gone when the blank one is committed; its load is waited for where it matters.
    slot.page.goto("about:blank", timeout=BLANK_TIMEOUT, wait_until="commit")
    log = blank(slot, browser_session(), granted=guard is None or guard.granted, until=until)
    if any(_names_a_user(request.url) for request in log):
        return "a user in a URL"  # the browser remembers the password, and nothing clears that
    if any(_is_under_way(request) for request in log):
        return "a request under way"  # its answer may set a cookie
    slot.log = frozenset(log)
    return None


def blank(slot: Slot, browser_session: CDPSession, *, granted: bool, until: float) -> list[Request]:
    """Clear what a context has in store; its page is blank, or about to be.

    :param granted: whether permissions may have been granted.
    :param until: when it is to be done at the latest, on the monotonic clock.
    :return: the requests in the page's log.
    :raises playwright.sync_api.Error: the browser does not answer, or refuses a step.
    """
    context, page, send = slot.context, slot.page, slot.session.send
    ours = (page, context, slot.session, browser_session)

    def left() -> float:
        return max((until - time.monotonic()) * 1000, 1.0)

    def settle() -> None:
        # The renderer answers when it has done what the page before does when it is left.
        send("Runtime.evaluate", {"expression": "0"})
        _end_workers(slot, browser_session)

    def permit() -> None:
        context.clear_permissions()
        if slot.permissions:
            context.grant_permissions(slot.permissions)

    # First an end to whatever would write again. The history can't be reset before the load.
    together(left(), ours, lambda: page.wait_for_load_state("load", timeout=left()), settle)
    log, *_ = together(
        left(),
        ours,
        page.requests,
        # A string that is no origin clears every origin of the context; not documented, so tried out once.
        lambda: send("Storage.clearDataForOrigin", {"origin": "", "storageTypes": "all"}),
        lambda: send("Network.clearBrowserCookies"),
        lambda: send("Network.clearBrowserCache"),
        lambda: send("Page.resetNavigationHistory"),
        # Twice, since the browser is told of changes only: it may have another one from the page before.
        lambda: send("Runtime.evaluate", {"expression": "window.name = '-'; window.name = ''"}),
        page.clear_console_messages,
        page.clear_page_errors,
        *([permit] if granted else []),
    )
    return list(log)


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
        blank(slot, browser_session, granted=False, until=time.monotonic() + BLANK_TIMEOUT / 1000)
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
