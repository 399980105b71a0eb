"""What a test holds: one session, with its facts and its Playwright door."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pytest_peaks.doors.playwright import CLOSE_TIMEOUT, bounded, essence
from pytest_peaks.errors import BrowserLostError, DoorNotDeclaredError, InvalidOptionError
from pytest_peaks.recycling.watching import aside
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.spec import Door, Isolation, SessionSpec
from pytest_peaks.session_login import SessionLogin

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from pytest_peaks.artifacts.recorder import Recorder
    from pytest_peaks.auth.model import State
    from pytest_peaks.auth.source import Login
    from pytest_peaks.doors.cli import PeaksCli
    from pytest_peaks.doors.mcp import McpClient
    from pytest_peaks.doors.meanwhile import Meanwhile
    from pytest_peaks.owner import Owner
    from pytest_peaks.recycling.reset import Slot

# A new page takes 0.05 s. This is for a machine that is out of breath; after it the browser is ended.
OPEN_TIMEOUT = 60.0
# Writing a long test's trace and the end of a video, on a machine that is out of breath.
RECORD_TIMEOUT = 20.0


class PeaksSession:
    """One isolated browser session in a test.

    Made by the ``peaks_session`` family of fixtures; a context manager, closed by the fixture that
    made it.

    :ivar name: the name it was asked for with, else ``slot<N>``.
    :ivar slot: this worker's place in the run, 0 to n-1, kept across worker crashes.
    :ivar isolation: ``fresh``, ``recycled``, ``profile`` or ``browser``.
    """

    def __init__(
        self,
        owner: Owner,
        spec: SessionSpec,
        live: LiveSession,
        base_url: str | None,
        *,
        owns_process: bool,
        login: Login | None = None,
        state: State | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._owner = owner
        self._spec = spec
        self._live = live
        self._base_url = base_url
        self._begins_with = SessionLogin(owner, live, spec, login, state)
        self._recorder = recorder
        self._owns_process = owns_process
        self._browser: Browser | None = None
        self._context: BrowserContext | None = None
        self._page: Page | None = None
        self._visited = False
        self._mcp: McpClient | None = None
        self._cli: PeaksCli | None = None
        self._slot: Slot | None = None
        self._first_pages: list[Page] = []
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
        context = self.context
        if self._page is None:
            with bounded(OPEN_TIMEOUT, *self._kill):
                page = context.new_page()
                self._begins_with.seed(page)
                self._page = page
        if self._spec.url is not None and not self._visited:
            self._visited = True
            self._page.goto(urljoin(self._base_url, self._spec.url) if self._base_url else self._spec.url)
        return self._page

    @property
    def mcp(self) -> McpClient:
        """A client of the MCP server on this session; the server is started on first use.

        :raises DoorNotDeclaredError: neither the fixture ``peaks_mcp`` nor ``doors=("mcp",)`` asks for it.
        """
        self._require_door(Door.MCP)
        if self._mcp is None:
            from pytest_peaks.doors.mcp import McpClient

            url = self._owner.mcp_servers.url(self._live, self._spec.mcp)
            playwright = self._meanwhile()
            self._mcp = McpClient(url, after_call=playwright.catch_up, meanwhile=playwright.let_handlers_run)
        return self._mcp

    @property
    def cli(self) -> PeaksCli:
        """playwright-cli on this session: ``cli("click", "e5")``; its daemon is started on first use.

        :raises DoorNotDeclaredError: neither the fixture ``peaks_cli`` nor ``doors=("cli",)`` asks for it.
        """
        self._require_door(Door.CLI)
        if self._cli is None:
            playwright = self._meanwhile()
            self._cli = self._owner.cli_daemons.door(
                self._live,
                after_call=playwright.catch_up,
                meanwhile=playwright.let_handlers_run,
                tabs=playwright.count_tabs,
            )
        return self._cli

    def _require_door(self, door: Door) -> None:
        self._require_open()
        if door not in self._spec.doors:
            raise DoorNotDeclaredError(
                f"session {self.name!r} was opened without the {door.upper()} door",
                hint=f'use the fixture peaks_{door}, or @pytest.mark.peaks_session(doors=("{door}",))',
            )

    def _meanwhile(self) -> Meanwhile:
        from pytest_peaks.doors.meanwhile import Meanwhile

        return Meanwhile(self._browser, self.context, self._owner.thread, self._kill)

    @property
    def _kill(self) -> tuple[Callable[[], object], ...]:
        """What ends the browser, and then the driver, if a call takes too long."""
        return self._live.kill, self._owner.door.kill_driver

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
        if self._recorder is not None and self._context is not None and self._live.is_alive():
            with aside():
                others = [context for context in self._contexts_of_the_test() if context is not self._context]
            self._record(self._recorder.ending, self._context, others)
        if self._mcp is not None and not self._mcp.close():
            self._owner.mcp_servers.replace(self._live, self._spec.mcp)
        if self._cli is not None:
            self._owner.cli_daemons.after(self._live, self._cli)
        with (
            contextlib.suppress(Exception),
            bounded(RECORD_TIMEOUT if self._recorder is not None else CLOSE_TIMEOUT, *self._kill),
            aside(),
        ):
            self._close_contexts()
        if self._recorder is not None and self._context is not None:
            self._record(self._recorder.ended, self._context)
        if self._owns_process:
            self._live.release()

    def _record(self, tell: Callable[..., None], *what: object) -> None:
        """Tell the recorder; what goes wrong with that is not the test's fault."""
        with contextlib.suppress(Exception), bounded(RECORD_TIMEOUT, *self._kill), aside():
            tell(*what)

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

        with aside(), bounded(OPEN_TIMEOUT, *self._kill):
            if isinstance(attached, Browser):
                self._browser = attached
                self._strangers = list(attached.contexts)
            else:  # a default context that Playwright launched
                self._browser, self._context = attached.browser, attached
            if self._context is None:
                self._context = self._choose_context()
            self._first_pages = list(self._context.pages)
            if self._spec.doors:
                # One tab, so that every door means the same one.
                self._page = self._context.pages[0] if self._keeps_data else self._wipe()
            if self._has_default_context or self._slot is not None:
                self._begins_with.put_into(self._context, self._page)
            if self._recorder is not None:
                strangers = [page for page in self._first_pages if page is not self._page]
                self._record(self._recorder.started, self._context, strangers)
            if self._slot is not None:
                self._slot.watch()

    @property
    def _has_default_context(self) -> bool:
        """Whether the session works in a context that was there before it."""
        return bool(self._spec.browser.persistent or self._spec.browser.by_driver or self._spec.doors)

    def write_back(self) -> None:
        """Save the login again, for servers that rotate tokens, or the identity at a desk; for a test that passed.

        Nothing happens without ``write_back`` in the login's settings, or if the test has logged out or closed
        the session.
        """
        if self._spec.desk:
            if not self._closed:
                (self._owner.desks.save if self._spec.save else self._owner.desks.check)(self._live)
        elif self._page is not None and not self._closed:
            with aside():
                self._begins_with.write_back(self.context, self._page)

    def save(self) -> None:
        """Save what a named identity at a desk holds now.

        :raises InvalidOptionError: the session is not at a desk.
        :raises LeaseLostError: the desk was taken away meanwhile; nothing is saved.
        """
        self._require_open()
        if not self._spec.desk:
            raise InvalidOptionError(
                f"session {self.name!r} is no named identity", hint='@pytest.mark.peaks_session(desk="NAME")'
            )
        self._owner.desks.save(self._live)

    @property
    def account(self) -> object:
        """What the hook ``pytest_peaks_accounts`` has for this slot; None without login or hook."""
        return self._begins_with.account

    @property
    def _keeps_data(self) -> bool:
        """Whether what is in the default context is to stay: a kept profile, or a process's first."""
        return self._spec.browser.persistent or self._spec.browser.by_driver

    def _choose_context(self) -> BrowserContext:
        assert self._browser is not None, "without one the context is given"
        if self._spec.browser.persistent or self._spec.doors:
            if not self._browser.contexts:
                raise InvalidOptionError(
                    "the browser that was attached to has no default context",
                    hint="leave out isolation='profile', or attach over CDP",
                )
            return self._browser.contexts[0]
        options = dict(self._spec.context_options)
        if self._recorder is not None:
            options = {**self._recorder.context_options(), **options}
        if self._base_url is not None:
            options.setdefault("base_url", self._base_url)
        if self._spec.isolation is Isolation.RECYCLED:
            self._slot = self._take(self._browser, options)
            if self._slot is not None:
                self._page = self._slot.page
                return self._slot.context
        return self._begins_with.new_context(self._browser, options)

    def _take(self, browser: Browser, options: dict[str, Any]) -> Slot | None:
        """A context that is used again; None where that is not possible."""
        recycler = self._owner.recycler
        if self._live.endpoint is None:
            recycler.leave_out("no debugging port")
            return None
        return recycler.take(browser, options, lambda: browser.new_context(**options))

    def _wipe(self) -> Page:
        from pytest_peaks.doors.wipe import wipe

        assert self._browser is not None, "a default context that is wiped is reached over CDP"
        assert self._context is not None, "it was chosen before"
        return wipe(self._browser, self._context)

    def _contexts_of_the_test(self) -> list[BrowserContext]:
        """Those that end with the session, also what the test made by hand: the next one is to see no tab of it."""
        if self._browser is None:
            return []
        kept = [*self._strangers, *self._owner.contexts_in_use(), *self._owner.recycler.contexts]
        lent = self._owner.lending.is_lent(self._browser)  # then others may be of a wider scope than the test
        found = [self._context] if lent and self._context else self._browser.contexts
        return [context for context in found if context not in kept]

    def _close_contexts(self) -> None:
        if self._browser is not None:
            try:
                for context in self._contexts_of_the_test():
                    context.close()
            finally:
                if self._slot is not None:
                    self._owner.recycler.give_back(self._slot)
        if self._owns_process:
            return  # it ends with all that is in it
        if self._spec.doors and not self._keeps_data:
            try:
                self._wipe()
            except Exception:
                self._live.kill()  # the next test gets a new browser rather than this one's data
                raise
        elif self._spec.browser.persistent and self._context is not None:
            for page in self._context.pages:
                if page not in self._first_pages:  # those stay: they are not the test's
                    page.close()
            self._context.clear_permissions()
        if self._uses_own_connection and self._browser is not None:
            self._browser.close()  # leaves the browser running: routes and listeners go with the connection

    @property
    def _uses_own_connection(self) -> bool:
        return self._live.endpoint is not None and bool(self._spec.browser.persistent or self._spec.doors)


def lost_message(session: PeaksSession, error: BaseException | None) -> BrowserLostError:
    """The failure of a test whose browser died."""
    saw = f"; the test saw: {essence(error)}" if error is not None else ""
    return BrowserLostError(
        f"the browser of session {session.name!r} (process {session.pid}) died during this test{saw}",
        hint="the next test gets a new one; a page that crashes the whole browser, or memory running out, ends it",
    )
