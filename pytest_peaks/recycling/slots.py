"""Contexts that wait for the next test."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_peaks.recycling.reset import Slot, is_blank, reset, try_out

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, CDPSession

# Downloads stay on disk until their context is closed, and Playwright keeps a little of each request.
MOST_USES = 100
# Each that waits has a renderer of its own.
MOST_WAITING = 4
# What is recorded for a whole context, or is in it from the beginning.
UNFIT = ("record_video_dir", "record_har_path", "storage_state", "client_certificates", "http_credentials")


class Recycler:
    """The contexts of one pytest process that are used again.

    :ivar counts: how often a context was ``made``, ``reused``, ``thrown away`` and ``not taken``.
    :ivar thrown_away: why contexts were thrown away.
    :ivar not_taken: why tests got a fresh one to begin with.
    """

    def __init__(self) -> None:
        self._waiting: list[Slot] = []
        self._busy: list[Slot] = []
        self._sessions: dict[Browser, CDPSession] = {}
        self._proved: dict[Browser, bool] = {}
        self.counts: Counter[str] = Counter()
        self.thrown_away: Counter[str] = Counter()
        self.not_taken: Counter[str] = Counter()

    @property
    def contexts(self) -> list[BrowserContext]:
        """All contexts that are kept or in use."""
        return [slot.context for slot in [*self._waiting, *self._busy]]

    def take(
        self, browser: Browser, options: Mapping[str, Any], make: Callable[[], BrowserContext]
    ) -> Slot | None:
        """A blank context with these options, used before or new; None if one like it can't be used again.

        :raises playwright.sync_api.Error: the browser does not answer, or refuses an option.
        """
        self._forget_dead()
        unfit = next((name for name in UNFIT if options.get(name) is not None), None)
        if unfit is not None:
            self.leave_out(unfit)
            return None
        key = (browser, json.dumps(dict(options), sort_keys=True, default=repr))
        slot = next((slot for slot in self._waiting if slot.key == key), None)
        if slot is not None:
            self._waiting.remove(slot)
            slot = self._proved_blank(slot)
        if self._proved.get(browser) is False:
            self.leave_out("the wipe does not work in this browser")
            return None
        if slot is None:
            slot = self._new(key, browser, options, make)
        else:
            self.counts["reused"] += 1
        slot.uses += 1
        self._busy.append(slot)
        return slot

    def leave_out(self, reason: str) -> None:
        """Note that a test gets a fresh context to begin with."""
        self.counts["not taken"] += 1
        self.not_taken[reason] += 1

    def taint(self, reason: str) -> None:
        """None of the contexts in use is used again."""
        for slot in self._busy:
            if slot.guard is not None:
                slot.guard.taints.append(reason)

    def give_back(self, slot: Slot) -> None:
        """Blank a context for the next test, or close it.

        :raises playwright.sync_api.Error: the browser does not answer.
        """
        if slot not in self._busy:
            return
        self._busy.remove(slot)
        guard, slot.guard = slot.guard, None
        try:
            if guard is not None:
                guard.let_go()
                if guard.reaches_all:
                    self._throw_away_waiting(slot.browser, "a test reached into the browser")
            reason = self._reset(slot, guard)
        except BaseException:  # Ctrl-C as well: nobody knows what it is like now
            with contextlib.suppress(Exception):
                slot.context.close()
            raise
        if reason is not None:
            self._throw_away(slot, reason)
            return
        self._waiting.append(slot)
        if len(self._waiting) > MOST_WAITING:
            self._throw_away(self._waiting.pop(0), "too many kinds")

    def forget(self, browser: object) -> None:
        """The browser is gone, and what was in it."""
        self._waiting = [slot for slot in self._waiting if slot.browser is not browser]
        self._sessions = {known: session for known, session in self._sessions.items() if known is not browser}
        self._proved = {known: proved for known, proved in self._proved.items() if known is not browser}

    def line(self) -> str:
        """What to say at the end of a run; empty if no test asked for such a context."""
        counts = self.counts
        if not counts:
            return ""
        text = f"contexts: {counts['made']} made, {counts['reused']} used again"
        if counts["thrown away"]:
            text += f", {counts['thrown away']} thrown away ({_told(self.thrown_away)})"
        if counts["not taken"]:
            text += f", {counts['not taken']} fresh instead ({_told(self.not_taken)})"
        return text

    def _forget_dead(self) -> None:
        for browser in {*self._sessions, *self._proved, *(slot.browser for slot in self._waiting)}:
            if not browser.is_connected():
                self.forget(browser)

    def _new(
        self, key: object, browser: Browser, options: Mapping[str, Any], make: Callable[[], BrowserContext]
    ) -> Slot:
        context = make()
        try:
            slot = Slot.open(key, browser, context, options)
        except BaseException:
            with contextlib.suppress(Exception):
                context.close()
            raise
        self.counts["made"] += 1
        return slot

    def _proved_blank(self, slot: Slot) -> Slot | None:
        """The context, if it is known to be blank; else it is thrown away."""
        try:
            if not is_blank(slot):
                reason = "something came late"
            elif not self._works_in(slot.browser):
                reason = "the wipe does not work in this browser"
            else:
                return slot
        except BaseException:
            with contextlib.suppress(Exception):
                slot.context.close()
            raise
        self._throw_away(slot, reason)
        return None

    def _reset(self, slot: Slot, guard: Any) -> str | None:
        from playwright.sync_api import Error

        if slot.uses >= MOST_USES:
            return "many uses"
        try:
            return reset(slot, guard, lambda: self._session_of(slot.browser))
        except Error as error:
            if not slot.browser.is_connected():
                raise
            return f"an error: {str(error).splitlines()[0][:60]}"

    def _session_of(self, browser: Browser) -> CDPSession:
        if browser not in self._sessions:
            self._sessions[browser] = browser.new_browser_cdp_session()
        return self._sessions[browser]

    def _throw_away_waiting(self, browser: Browser, reason: str) -> None:
        for slot in [slot for slot in self._waiting if slot.browser is browser]:
            self._waiting.remove(slot)
            self._throw_away(slot, reason)

    def _throw_away(self, slot: Slot, reason: str) -> None:
        self.counts["thrown away"] += 1
        self.thrown_away[reason] += 1
        slot.context.close()

    def _works_in(self, browser: Browser) -> bool:
        """Whether the wipe works in a browser; tried out before the first context is used again."""
        from playwright.sync_api import Error

        if browser not in self._proved:
            try:
                self._proved[browser] = try_out(browser, self._session_of(browser))
            except Error:
                if not browser.is_connected():
                    raise
                self._proved[browser] = False
        return self._proved[browser]


def _told(reasons: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in reasons.most_common(5))
