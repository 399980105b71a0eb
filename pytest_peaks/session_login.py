"""The login that one session begins with, on its way into the session's contexts and tabs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pytest_peaks.doors.playwright import bounded
from pytest_peaks.errors import BrowserLostError
from pytest_peaks.session.live import LiveSession
from pytest_peaks.session.spec import SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from pytest_peaks.auth.model import State
    from pytest_peaks.auth.source import Login
    from pytest_peaks.owner import Owner

# Saving it again takes a tenth of a second an origin.
SAVE_TIMEOUT = 60.0


class SessionLogin:
    """What a session begins with: a login, a bare state, or nothing."""

    def __init__(
        self, owner: Owner, live: LiveSession, spec: SessionSpec, login: Login | None, state: State | None
    ) -> None:
        self._owner = owner
        self._live = live
        self._spec = spec
        self._login = login
        self._state = login.state if login is not None else state
        self._seeds = True  # False if a profile keeps the login that it has

    @property
    def account(self) -> object:
        return self._login.account if self._login is not None else None

    def new_context(self, browser: Browser, options: Mapping[str, Any]) -> BrowserContext:
        """A context of its own, logged in from the beginning.

        :raises ReplayFailedError: the browser refuses the login.
        :raises playwright.sync_api.Error: it refuses an option.
        """
        if self._state is None:
            return browser.new_context(**options)
        from playwright.sync_api import Error

        from pytest_peaks.auth.replay import refused

        plain: Any = self._state.plain  # a TypedDict to Playwright
        try:
            with self._replaying():
                return browser.new_context(**options, storage_state=plain)
        except Error as error:
            if "storage" not in str(error).lower() or "has been closed" in str(error):
                raise
            raise refused(error) from None

    def put_into(self, context: BrowserContext, page: Page | None) -> None:
        """Put the login into a default context. One that is half set is not used: its browser ends.

        A profile with a login of its own that is still good keeps that.

        :param page: the tab that the test gets, if there is one already.
        """
        if self._state is None:
            return
        from pytest_peaks.auth.profile import log_profile_in
        from pytest_peaks.auth.replay import replay

        try:
            with self._replaying():
                if self._spec.browser.persistent and self._login is not None:
                    name, logins = self._login.name, self._owner.logins
                    folder = self._live.user_data_dir
                    self._seeds = log_profile_in(
                        context, self._login, folder, lambda: logins.says_yes(name, context)
                    )
                else:
                    replay(context, self._state)
                if page is not None:
                    self.seed(page)
        except BaseException:
            self._live.kill()
            raise

    def seed(self, page: Page) -> None:
        """Give a blank tab the login's sessionStorage."""
        if self._state is not None and self._seeds and self._state.session_storage:
            from pytest_peaks.auth.replay import seed

            seed(page, self._state)

    def write_back(self, context: BrowserContext, page: Page) -> None:
        """Save the login again, if its settings say so and the test has not logged out."""
        if self._login is None or not self._login.settings.write_back:
            return
        with bounded(SAVE_TIMEOUT, self._live.kill, self._owner.door.kill_driver):
            self._owner.logins.write_back(self._login, context, page)

    @contextlib.contextmanager
    def _replaying(self) -> Iterator[None]:
        """Bound a replay: when it takes too long its browser ends, and the failure says so."""
        from playwright.sync_api import Error

        from pytest_peaks.auth import replay

        start = time.monotonic()
        try:
            with bounded(replay.REPLAY_TIMEOUT, self._live.kill, self._owner.door.kill_driver):
                yield
        except (Error, BrowserLostError):
            if time.monotonic() - start < replay.REPLAY_TIMEOUT:
                raise
            raise replay.too_slow() from None
