"""Where a test's login comes from: what is saved, while it is good; else one login for all who want it."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_peaks.auth.accounts import Accounts
from pytest_peaks.auth.capture import Captured, Watch, capture
from pytest_peaks.auth.freshness import stale_reason, that_matter
from pytest_peaks.auth.login import Ticket, once
from pytest_peaks.auth.model import State, cookie_key
from pytest_peaks.auth.settings import AuthSettings, read_auth_settings
from pytest_peaks.auth.store import Store, account_label
from pytest_peaks.errors import (
    AuthExpiredError,
    LoginFailedError,
    PeaksError,
    StateKeyError,
    StateLockedError,
    StateNotFoundError,
)
from pytest_peaks.session.paths import ProjectDirs, runtime_dir
from pytest_peaks.session.spec import Run

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

# What a failed login left to look at.
PICTURES = "login-failures"


class LoginHooks(Protocol):
    """What a project's conftest can do: the hooks of :mod:`pytest_peaks.hookspecs`."""

    def can_log_in(self) -> bool: ...
    def can_check(self) -> bool: ...
    def log_in(self, name: str, page: Page, account: object) -> object: ...
    def check(self, name: str, page: Page) -> bool | None: ...
    def accounts(self, name: str) -> Sequence[object] | None: ...
    def settings(self, name: str) -> Mapping[str, Any] | None: ...


# Gives a blank page in a context of its own, with a login already in it or not.
OpenPage = Callable[[State | None], AbstractContextManager["Page"]]


@dataclass(frozen=True, slots=True)
class Login:
    """A login that a test has got.

    :ivar account: what the hook ``pytest_peaks_accounts`` has for this slot; None without that hook.
    :ivar key: the part of the file's name for account or slot; empty if all share one.
    """

    name: str
    state: State
    settings: AuthSettings
    account: object = field(repr=False)
    key: str

    def is_present(self, context: BrowserContext) -> bool:
        """Whether all cookies that matter are still there: nobody has logged out."""
        there = {cookie_key(cookie) for cookie in context.cookies()}
        return {cookie_key(cookie) for cookie in that_matter(self.state)} <= there


class Logins:
    """The logins of one pytest process."""

    def __init__(
        self, dirs: ProjectDirs, run: Run, hooks: LoginHooks, open_page: OpenPage, say: Callable[[str], None]
    ) -> None:
        self._dirs = dirs
        self._run = run
        self._hooks = hooks
        self._open_page = open_page
        self._say = say
        self._store = Store(dirs)
        self._settings: dict[str, AuthSettings] = {}
        self._accounts = Accounts(run, self._store, hooks.accounts, say)
        self._checked: dict[str, tuple[str, bool]] = {}
        self.notes: list[str] = []

    def login(self, name: str) -> Login:
        """The login `name` for this slot.

        :raises LoginFailedError: the login hook failed.
        :raises AuthExpiredError: what is saved is not good any more, and there is no login hook.
        :raises StateNotFoundError: nothing is saved, and there is no login hook.
        :raises NoAccountError: every account is taken by another worker.
        """
        settings = self._settings_of(name)
        account, key = self._accounts.of(name, settings)
        if not key and settings.per_slot:
            key = f"slot{self._run.slot}"
        what = repr(name) + (f" ({key})" if key else "")
        reasons: list[str] = []

        def current() -> State | None:
            reasons.clear()
            return self._current(name, key, settings, reasons)

        def log_in() -> State:
            return self._log_in(name, key, account, what, reasons)

        if not self._hooks.can_log_in():
            state = current()
            if state is None:
                raise self._not_usable(name, key, reasons)
        else:
            ticket = Ticket(
                what, self._store.path(name, key), self._run.uid, self._run.controller, self._run.worker
            )
            state = once(runtime_dir(), ticket, current, log_in, self._say)
        return Login(name, state, settings, account, key)

    def account_of(self, name: str) -> object:
        """This slot's account for a login."""
        return self._accounts.of(name, self._settings_of(name))[0]

    def write_back(self, login: Login, context: BrowserContext, page: Page) -> bool:
        """Save a login again after a test; False if the test has logged out."""
        if not login.is_present(context):
            return False
        if self._checked_by_hook(login.name, page) is False:
            return False
        state = capture(context, page, name=login.name, account=login.key).state
        # What matters was noted at the login; here every cookie is an old one.
        extras = {
            **state.extras,
            **{key: login.state.extras.get(key, state.extras[key]) for key in ("important",)},
        }
        self._store.save(login.name, State({**state, "peaks": extras}), login.key)
        return True

    def close(self) -> None:
        """Give this process's accounts back, for those who wait for one. Idempotent."""
        self._accounts.close()

    def _settings_of(self, name: str) -> AuthSettings:
        if name not in self._settings:
            settings = read_auth_settings(self._dirs.root, name)
            by_hook = self._hooks.settings(name)
            self._settings[name] = settings.with_(by_hook or {}, f"pytest_peaks_auth({name!r})")
        return self._settings[name]

    def _current(self, name: str, key: str, settings: AuthSettings, reasons: list[str]) -> State | None:
        """The saved state, if there is one and nothing says that it is not good any more.

        What the environment holds comes first. When it is over, what was saved after it takes its place.
        """
        for read in (self._store.given, self._store.kept):
            try:
                state = read(name, key)
            except StateNotFoundError:
                continue
            except (StateLockedError, StateKeyError):
                raise  # to log in again would replace a file that only the right key can open
            except PeaksError as error:
                if not self._hooks.can_log_in():
                    raise
                reasons.append(f"auth {name!r} cannot be read: {error.message}")
                continue
            if state is None:
                continue
            reason = stale_reason(state, name, max_age=settings.max_age, now=time.time())
            if reason is None and not self._passes_check(name, key, state):
                reason = f"auth {name!r} is logged out: pytest_peaks_check_login says no"
            if reason is None:
                return state
            reasons.append(reason)
        return None

    def _passes_check(self, name: str, key: str, state: State) -> bool:
        """Ask the check hook, once for each version of a state."""
        if not self._hooks.can_check():
            return True
        known = self._checked.get(f"{name}@{key}")
        if known is not None and known[0] == state.version:
            return known[1]
        with self._open_page(state) as page:
            verdict = self._checked_by_hook(name, page) is not False
        self._checked[f"{name}@{key}"] = (state.version, verdict)
        return verdict

    def says_yes(self, name: str, context: BrowserContext) -> bool:
        """Whether the check hook finds the login `name` in a context that was there already."""
        if not self._hooks.can_check():
            return False
        page = context.new_page()
        try:
            return self._checked_by_hook(name, page) is True
        finally:
            page.close()

    def _checked_by_hook(self, name: str, page: Page) -> bool | None:
        try:
            return self._hooks.check(name, page)
        except PeaksError:
            raise
        except Exception as error:
            raise LoginFailedError(
                f"auth {name!r} could not be checked: {type(error).__name__}: {_first_line(error)}{_place_of(error)}",
                hint="pytest_peaks_check_login is to return True, False or None",
            ) from None

    def _not_usable(self, name: str, key: str, reasons: list[str]) -> PeaksError:
        if not reasons:
            path = self._store.path(name, key)
            return StateNotFoundError(
                f"there is no saved login {name!r}; looked for {path}",
                hint=f"`peaks auth save {name} --url URL`, or the hook pytest_peaks_login in a conftest.py",
            )
        return AuthExpiredError(
            reasons[0], hint=f"`peaks auth save {name}` renews it, as does the hook pytest_peaks_login"
        )

    def _log_in(self, name: str, key: str, account: object, what: str, reasons: list[str]) -> State:
        """Have the hook log in, and save that.

        :raises LoginFailedError: it raised, or did nothing.
        """
        label = account_label(account, 0) if account is not None else ""
        with self._open_page(None) as page:
            captured = self._called(name, page, account, what, label)
        self._store.save(name, captured.state, key)
        if reasons:
            self.notes.append(f"{reasons[0]}; logged in again")
        else:
            self.notes.append(f"logged in as {what}")
        self.notes += [f"auth {what} cannot carry {lost}" for lost in captured.lost]
        self._checked[f"{name}@{key}"] = (captured.state.version, True)
        return captured.state

    def _called(self, name: str, page: Page, account: object, what: str, label: str) -> Captured:
        """Call the login hook; gives what the browser holds then.

        :raises LoginFailedError: it raised, or did nothing.
        """
        watch = Watch(page.context)
        try:
            done = self._hooks.log_in(name, page, account)
            if done is False:
                reason = "pytest_peaks_login says that it did not log in"
            elif done is None and page.url == "about:blank":
                reason = "no pytest_peaks_login hook did anything for it"
            else:
                return watch.captured(page, name=name, account=label)
        except PeaksError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {_first_line(error)}{_place_of(error)}"
        raise self._failed(what, page, reason)

    def _failed(self, what: str, page: Page, reason: str) -> LoginFailedError:
        picture = self._picture(what, page)
        where = ""
        with contextlib.suppress(Exception):
            where = f" at {re.split('[?#]', page.url)[0]}"  # what comes after may be a token
        return LoginFailedError(
            f"auth {what}: the login failed{where}: {reason}",
            hint=f"how the page looked: {picture}" if picture else "correct the hook pytest_peaks_login",
        )

    def _picture(self, what: str, page: Page) -> Path | None:
        folder = self._dirs.runtime / PICTURES
        path = folder / f"{re.sub(r'[^a-z0-9]+', '-', what).strip('-')}.png"
        with contextlib.suppress(Exception):
            folder.mkdir(mode=0o700, exist_ok=True)
            page.screenshot(path=path, timeout=5000)
            path.chmod(0o600)
            return path
        return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _place_of(error: BaseException) -> str:
    """The line of the project's that an error came through last, since its traceback is not shown to all who wait."""
    ours = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if ours not in path.parents and not {"site-packages", "dist-packages"} & set(path.parts):
            return f" ({path.name}:{frame.lineno})"
    return ""
