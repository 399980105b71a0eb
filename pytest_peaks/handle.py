"""What a test holds: one session, with its facts and its Playwright door."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from pytest_peaks.doors.playwright import CLOSE_TIMEOUT, bounded, essence
from pytest_peaks.errors import BrowserLostError
from pytest_peaks.session.manager import LiveSession
from pytest_peaks.session.spec import Isolation, SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from pytest_peaks.owner import Owner

# A new page takes 0.05 s. This is for a machine that is out of breath; after it the browser is ended.
OPEN_TIMEOUT = 60.0


class PeaksSession:
    """One isolated browser session in a test.

    Made by the ``peaks_session`` family of fixtures; a context manager, closed by the fixture that
    made it.

    :ivar name: the name it was asked for with, else ``slot<N>``.
    :ivar slot: this worker's place in the run, 0 to n-1, kept across worker crashes.
    :ivar isolation: ``fresh``, ``profile`` or ``browser``.
    """

    def __init__(self, owner: Owner, spec: SessionSpec, live: LiveSession, base_url: str | None) -> None:
        self._owner = owner
        self._spec = spec
        self._live = live
        self._base_url = base_url
        self._browser: Browser | None = None
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._strangers: list[BrowserContext] = []
        self._closed = False
        self.slot: int = live.record.slot or 0
        self.name: str = spec.name or f"slot{self.slot}"
        self.isolation: Isolation = spec.isolation

    def __repr__(self) -> str:
        return f"<PeaksSession {self.name!r} slot={self.slot} port={self.port} pid={self.pid}>"

    def __enter__(self) -> PeaksSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int | None:
        """The browser's debugging port on 127.0.0.1; None for one that Playwright launches itself."""
        return self._live.record.port or None

    @property
    def pid(self) -> int | None:
        """The browser's process; None for one that Playwright launches itself."""
        return self._live.record.pid

    @property
    def endpoint(self) -> str | None:
        """The browser's CDP WebSocket URL, for ``connect_over_cdp``; None where there is no port."""
        return self._live.endpoint

    @property
    def user_data_dir(self) -> Path | None:
        """The browser's profile folder; None for one that Playwright launches without one."""
        return self._live.user_data_dir

    @property
    def browser_name(self) -> str:
        """``chromium``, ``chrome``, ``msedge``, ``firefox`` or ``webkit``."""
        return self._live.record.browser

    @property
    def browser(self) -> Browser:
        """Playwright's browser of this session. Contexts that a test makes in it end with the test.

        :raises BrowserLostError: the session is closed, or has no browser object (a profile that
            Playwright launched by itself).
        """
        self._require_open()
        if self._browser is None:
            raise BrowserLostError(
                f"session {self.name!r} is a profile launched by Playwright and has no browser object",
                hint="use its context",
            )
        return self._browser

    @property
    def context(self) -> BrowserContext:
        """The session's own browser context."""
        self._require_open()
        assert self._context is not None, "an open session has a context"
        return self._context

    @property
    def page(self) -> Page:
        """The session's page; opened on first use, at ``url`` if the marker names one."""
        if self._page is None:
            context = self.context
            with bounded(OPEN_TIMEOUT, self._live.kill, self._owner.door.kill_driver):
                self._page = context.new_page()
            if self._spec.url is not None:
                self._page.goto(urljoin(self._base_url, self._spec.url) if self._base_url else self._spec.url)
        return self._page

    @property
    def is_lost(self) -> bool:
        """Whether the browser died under the session."""
        return not self._closed and not self._live.is_alive()

    def close(self) -> None:
        """Close what the session opened; never raises, since the browser may be gone. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._owner.forget(self)
        with (
            contextlib.suppress(Exception),
            bounded(CLOSE_TIMEOUT, self._live.kill, self._owner.door.kill_driver),
        ):
            self._close_contexts()
        if self._spec.isolation is Isolation.BROWSER:
            self._live.release()

    def _require_open(self) -> None:
        if self._closed:
            raise BrowserLostError(
                f"session {self.name!r} is closed", hint="it ends with the test or fixture that opened it"
            )

    def _open(self, attached: Browser | BrowserContext) -> None:
        """Make or take the context. Called once, by the owner.

        :raises playwright.sync_api.Error: the browser does not answer, or refuses an option.
        """
        from playwright.sync_api import Browser

        if not isinstance(attached, Browser):
            self._context = attached  # a profile that Playwright launched
            return
        self._browser = attached
        self._strangers = list(self._browser.contexts)
        with bounded(OPEN_TIMEOUT, self._live.kill, self._owner.door.kill_driver):
            if self._spec.browser.persistent:
                self._context = self._browser.contexts[0]
                return
            options = dict(self._spec.context_options)
            if self._base_url is not None:
                options.setdefault("base_url", self._base_url)
            self._context = self._browser.new_context(**options)

    def _close_contexts(self) -> None:
        if self._browser is not None:
            # Also those that the test made by hand, so that no tab of it is seen by the next one.
            kept = [*self._strangers, *self._owner.contexts_in_use()]
            for context in self._browser.contexts:
                if context not in kept:
                    context.close()
        if self._spec.browser.persistent and self._context is not None:
            pages = self._context.pages
            # The first tab stays: a browser without any may end.
            for page in pages[1:] if self._page is None or pages[0] != self._page else pages:
                page.close()
            self._context.clear_permissions()
            if self._browser is not None:
                self._browser.close()  # leaves the browser running: routes and listeners go with the connection


def lost_message(session: PeaksSession, error: BaseException | None) -> BrowserLostError:
    """The failure of a test whose browser died."""
    saw = f"; the test saw: {essence(error)}" if error is not None else ""
    return BrowserLostError(
        f"the browser of session {session.name!r} (process {session.pid}) died during this test{saw}",
        hint="the next test gets a new one; a page that crashes the whole browser, or memory running out, ends it",
    )
