"""The plugin's side of saved logins: its hooks, its pages, its words to the user, and pytest-playwright's contexts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import state
from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import seed
from pytest_peaks.auth.source import Login, Logins
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session.spec import SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from pytest_peaks.owner import Owner


class Failed(Exception):  # noqa: N818 - its name is shown, as pytest's is
    """A hook called ``pytest.fail``."""


class ConftestHooks:
    """The hooks of a run's conftest files and plugins."""

    def __init__(self, config: pytest.Config) -> None:
        self._hook = config.hook

    def can_log_in(self) -> bool:
        return bool(self._hook.pytest_peaks_login.get_hookimpls())

    def can_check(self) -> bool:
        return bool(self._hook.pytest_peaks_check_login.get_hookimpls())

    def log_in(self, name: str, page: Page, account: object) -> object:
        try:
            return self._hook.pytest_peaks_login(name=name, page=page, account=account)
        except pytest.fail.Exception as error:  # no Exception to Python, but a failed login
            raise Failed(str(error)).with_traceback(error.__traceback__) from None

    def check(self, name: str, page: Page) -> bool | None:
        verdict: bool | None = self._hook.pytest_peaks_check_login(name=name, page=page)
        return verdict

    def accounts(self, name: str) -> Sequence[object] | None:
        found: Any = self._hook.pytest_peaks_accounts(name=name)
        if found is None:
            return None
        if isinstance(found, str | Mapping) or not isinstance(found, Sequence):
            raise InvalidOptionError(
                f"pytest_peaks_accounts({name!r}) gives no list", hint="return a list of names or mappings"
            )
        return found

    def settings(self, name: str) -> Mapping[str, Any] | None:
        found: Any = self._hook.pytest_peaks_auth(name=name)
        if found is not None and not isinstance(found, Mapping):
            raise InvalidOptionError(
                f"pytest_peaks_auth({name!r}) gives no mapping", hint="return {'max_age': '8h', …} or None"
            )
        return found


def make_logins(config: pytest.Config, owner: Owner) -> Logins:
    """The logins of this process."""

    @contextlib.contextmanager
    def open_page(begin_with: State | None) -> Iterator[Page]:
        spec = SessionSpec(owner.config.browser_spec, name="login")
        with owner.open(spec, state=begin_with) as session:
            yield session.page

    return Logins(owner.manager.dirs, owner.run, ConftestHooks(config), open_page, owner.tell)


def seed_page(page: Page, login: Login) -> None:
    """Give pytest-playwright's `page` the sessionStorage of a login."""
    if login.state.session_storage:
        seed(page, login.state)


def write_back_page(owner: Owner | None, item: pytest.Item, page: Page, login: Login) -> None:
    """Save the login of pytest-playwright's `page` again, as it is configured; for a test that passed."""
    if owner is not None and login.settings.write_back and state.has_passed(item):
        owner.logins.write_back(login, page.context, page)
