"""What Playwright has to be told, and let do, while another door works on the same session."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_peaks.doors.playwright import bounded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext

# A call that needs no page takes milliseconds. After this the browser is ended.
ANSWER_TIMEOUT = 60.0
# A tab that another door opened or closed is known here after some milliseconds.
CATCH_UP_TIMEOUT = 2.0


class Meanwhile:
    """Playwright's part of a session that another door works on.

    :param browser: None for a default context that Playwright launched.
    :param thread: the only one in which Playwright may be called.
    :param kill: what ends a browser, and then the driver, that does not answer.
    """

    def __init__(
        self,
        browser: Browser | None,
        context: BrowserContext,
        thread: int,
        kill: tuple[Callable[[], object], ...],
    ) -> None:
        self._browser = browser
        self._context = context
        self._thread = thread
        self._kill = kill

    def let_handlers_run(self) -> None:
        """Answer what the page asks of the test: routes, exposed functions.

        Playwright's sync API runs their handlers only during a call, and the page waits for them.
        """
        from playwright.sync_api import Error

        if threading.get_ident() != self._thread:
            return
        with contextlib.suppress(Error), bounded(ANSWER_TIMEOUT, *self._kill):
            self._context.cookies("http://nowhere.invalid/")  # a call that needs no page and changes nothing

    def catch_up(self) -> None:
        """Let Playwright see what the other door did: its objects learn of it only during a call.

        The browser is asked for its tabs until Playwright has as many. Those of all contexts are counted:
        one that another door made is to Playwright a tab of the default one.
        """
        from playwright.sync_api import Error

        browser, context = self._browser, self._context
        if threading.get_ident() != self._thread or not context.pages:
            return
        with contextlib.suppress(Error):
            # The browser's, if it can be had: a page's would not be detached while a dialog is open.
            session = (
                browser.new_browser_cdp_session() if browser else context.new_cdp_session(context.pages[0])
            )
            deadline = time.monotonic() + CATCH_UP_TIMEOUT
            while time.monotonic() < deadline:
                targets = session.send("Target.getTargets")["targetInfos"]
                tabs = sum(target["type"] == "page" for target in targets)
                if tabs == self.count_tabs():
                    break
            if browser:
                session.detach()

    def count_tabs(self) -> int:
        """How many tabs Playwright knows, of all contexts."""
        contexts = self._browser.contexts if self._browser is not None else [self._context]
        return sum(len(context.pages) for context in contexts)
