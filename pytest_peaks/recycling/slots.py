"""Contexts that wait for the next test, and the reset that lets them."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_peaks.recycling.guard import Guard

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession, Page

# A page that is blank takes 0.03 s to be so again; one that holds on to its document is thrown away.
BLANK_TIMEOUT = 5_000.0
# Downloads stay on disk until their context is closed, and Playwright keeps a little of each request.
MOST_USES = 100
# What is recorded for a whole context, or is in it from the beginning.
UNFIT = ("record_video_dir", "record_har_path", "storage_state", "client_certificates", "http_credentials")
_SITES = ("https://one.peaks-self-test.invalid/", "https://two.peaks-self-test.invalid/")
_PAGE = f"<!doctype html><iframe src='{_SITES[1]}'></iframe>"
_LEAVE = """async () => {
    localStorage.setItem("k", "v");
    await (await caches.open("k")).put("/k", new Response("v"));
    await new Promise((done, fail) => {
        const open = indexedDB.open("k");
        open.onupgradeneeded = () => open.result.createObjectStore("k");
        open.onsuccess = done; open.onerror = fail;
    });
}"""
_FIND = (
    "async () => localStorage.length + (await caches.keys()).length + (await indexedDB.databases()).length"
)


@dataclass(eq=False)
class Slot:
    """A context with one page.

    :ivar key: what it was made with; only a test that wants the same gets it.
    :ivar uses: how many tests had it.
    """

    key: str
    browser: Browser
    context: BrowserContext
    page: Page
    session: CDPSession
    own: str | None
    permissions: list[str] = field(default_factory=list)
    uses: int = 0
    guard: Guard | None = None


class Recycler:
    """The contexts of one pytest process that are used again.

    :ivar counts: how often a context was ``made``, ``reused`` and ``thrown away``.
    :ivar reasons: why contexts were thrown away.
    """

    def __init__(self) -> None:
        self._free: dict[str, Slot] = {}
        self._busy: list[Slot] = []
        self._sessions: dict[Browser, CDPSession] = {}
        self._proved: dict[Browser, bool] = {}
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    @property
    def contexts(self) -> list[BrowserContext]:
        """All contexts that are kept or in use."""
        return [slot.context for slot in [*self._free.values(), *self._busy]]

    def take(
        self, browser: Browser, options: Mapping[str, Any], make: Callable[[], BrowserContext]
    ) -> Slot | None:
        """A blank context with these options, used before or new; None if one like it can't be used again.

        :raises playwright.sync_api.Error: the browser does not answer, or refuses an option.
        """
        unfit = next((name for name in UNFIT if options.get(name) is not None), None)
        if unfit is not None:
            self.reasons[unfit] += 1
            return None
        key = f"{id(browser)} {json.dumps(dict(options), sort_keys=True, default=repr)}"
        slot = self._free.pop(key, None)
        if slot is not None and not self._is_still_blank(slot):
            self._throw_away(slot, "something came late")
            slot = None
        if slot is None:
            if not self._works_in(browser):
                self.reasons["the wipe does not work in this browser"] += 1
                return None
            slot = self._new(key, browser, make(), options)
            self.counts["made"] += 1
        else:
            self.counts["reused"] += 1
        slot.uses += 1
        self._busy.append(slot)
        return slot

    def watch(self, slot: Slot) -> None:
        """From here on the test has it."""
        slot.guard = Guard(slot.context, slot.page)

    def give_back(self, slot: Slot) -> None:
        """Blank a context for the next test, or close it.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        self._busy.remove(slot)
        reason = self._reset(slot)
        if reason is None and slot.key not in self._free:
            self._free[slot.key] = slot
        else:
            self._throw_away(slot, reason or "one is enough")

    def forget(self, browser: object) -> None:
        """The browser is gone, and what was in it."""
        self._free = {key: slot for key, slot in self._free.items() if slot.browser is not browser}

    def line(self) -> str:
        """What to say at the end of a run; empty if nothing was used again or thrown away."""
        if not self.counts:
            return ""
        why = ", ".join(f"{what} {count}" for what, count in self.reasons.most_common(5))
        text = f"contexts: {self.counts['made']} made, {self.counts['reused']} used again"
        return f"{text}, {self.counts['thrown away']} thrown away ({why})" if why else text

    def _new(self, key: str, browser: Browser, context: BrowserContext, options: Mapping[str, Any]) -> Slot:
        page = context.new_page()
        session = context.new_cdp_session(page)
        own = session.send("Target.getTargetInfo")["targetInfo"].get("browserContextId")
        granted = options.get("permissions") or []
        return Slot(key, browser, context, page, session, own, list(granted))

    def _reset(self, slot: Slot) -> str | None:
        """Blank a context. Why it is not to be used again; None if it is."""
        from playwright.sync_api import Error

        guard, slot.guard = slot.guard, None
        try:
            taints = guard.end() if guard is not None else []
            if taints:
                return taints[0]
            if slot.page.is_closed() or len(slot.context.pages) != 1:
                return "pages"
            if slot.uses >= MOST_USES:
                return "many uses"
            slot.page.goto("about:blank", timeout=BLANK_TIMEOUT)
            self._blank(slot)
            return None if self._is_still_blank(slot) else "something is left"
        except Error as error:
            if not slot.browser.is_connected():
                raise
            return f"an error: {str(error).splitlines()[0][:60]}"

    def _blank(self, slot: Slot) -> None:
        # Workers first: a living one would write again.
        self._end_workers(slot)
        send = slot.session.send
        # A string that is no origin clears every origin of the context; not documented, so tried out once.
        send("Storage.clearDataForOrigin", {"origin": "", "storageTypes": "all"})
        send("Network.clearBrowserCookies")
        send("Network.clearBrowserCache")
        send("Page.resetNavigationHistory")
        send("Runtime.evaluate", {"expression": "window.name = ''"})
        slot.context.clear_permissions()
        if slot.permissions:
            slot.context.grant_permissions(slot.permissions)
        for clear in ("clear_console_messages", "clear_page_errors"):  # older ones have no such log
            if hasattr(slot.page, clear):
                getattr(slot.page, clear)()

    def _end_workers(self, slot: Slot) -> None:
        session = self._session_of(slot.browser)
        kinds: list[dict[str, Any]] = [{"type": "shared_worker"}, {"type": "service_worker"}]
        for target in session.send("Target.getTargets", {"filter": kinds})["targetInfos"]:
            if target.get("browserContextId") == slot.own:
                with contextlib.suppress(Exception):  # it may have ended by itself meanwhile
                    session.send("Target.closeTarget", {"targetId": target["targetId"]})

    def _session_of(self, browser: Browser) -> CDPSession:
        if browser not in self._sessions:
            self._sessions[browser] = browser.new_browser_cdp_session()
        return self._sessions[browser]

    def _is_still_blank(self, slot: Slot) -> bool:
        return (
            not slot.page.is_closed()
            and len(slot.context.pages) == 1
            and slot.page.url == "about:blank"
            and not slot.context.cookies()
        )

    def _throw_away(self, slot: Slot, reason: str) -> None:
        self.counts["thrown away"] += 1
        self.reasons[reason] += 1
        slot.context.close()

    def _works_in(self, browser: Browser) -> bool:
        """Whether a wipe of one context clears all its origins in this browser; tried out once in each."""
        from playwright.sync_api import Error

        if browser not in self._proved:
            try:
                self._proved[browser] = self._try_out(browser)
            except Error:
                if not browser.is_connected():
                    raise
                self._proved[browser] = False
        return self._proved[browser]

    def _try_out(self, browser: Browser) -> bool:
        context = browser.new_context()
        try:
            slot = self._new("", browser, context, {})
            context.route(
                "**/*",
                lambda route: route.fulfill(
                    body=_PAGE if route.request.url == _SITES[0] else "<!doctype html>",
                    content_type="text/html",
                ),
            )

            def both(script: str) -> int:
                slot.page.goto(_SITES[0])
                return sum(frame.evaluate(script) or 0 for frame in slot.page.frames)

            both(_LEAVE)
            before = both(_FIND)
            slot.page.goto("about:blank")
            self._blank(slot)
            return before == 3 * len(_SITES) and both(_FIND) == 0
        finally:
            context.close()
