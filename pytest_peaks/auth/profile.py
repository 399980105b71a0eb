"""A saved login in a profile, which may have a login of its own by now."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_peaks.auth.freshness import has_live_login
from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import replay
from pytest_peaks.session.registry import write_atomically

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

    from pytest_peaks.auth.source import Login

# In a profile: whose login was put into it last. No value of it.
NOTE = ".peaks-login.json"


@dataclass(frozen=True, slots=True)
class Noted:
    """What a profile was given last.

    :ivar who: the login and its account.
    :ivar version: that of the state; empty while it is being put there, so that half of one counts as none.
    :ivar saved: Unix time of the state; 0 if not known.
    :ivar origins: those that it has data of.
    """

    who: str
    version: str
    saved: float
    origins: tuple[str, ...]

    @classmethod
    def of(cls, login: Login) -> Noted:
        state = login.state
        url = urlsplit(str(state.extras.get("url") or ""))
        origins = {origin["origin"] for origin in state.origins} | set(state.session_storage)
        if url.netloc:
            origins.add(f"{url.scheme}://{url.netloc}")
        saved = state.saved_at
        return cls(
            f"{login.name}@{login.key}",
            state.version,
            saved.timestamp() if saved is not None else 0.0,
            tuple(sorted(origins)),
        )

    @classmethod
    def read(cls, profile: Path | None) -> Noted | None:
        """What is noted in a profile; None if nothing is."""
        if profile is None:
            return None
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            data = json.loads((profile / NOTE).read_text(encoding="utf-8"))
            origins = tuple(origin for origin in data["origins"] if isinstance(origin, str))
            return cls(str(data["who"]), str(data["version"]), float(data["saved"]), origins)
        return None

    def write(self, profile: Path | None, *, half: bool) -> None:
        if profile is not None:
            content = {**asdict(self), "version": "" if half else self.version}
            write_atomically(profile / NOTE, json.dumps(content) + "\n")


def keeps_its_own(
    state: State,
    wanted: Noted,
    noted: Noted | None,
    present: Iterable[Mapping[str, Any]],
    says_yes: Callable[[], bool],
) -> bool:
    """Whether a profile is left with the login that it has.

    It is if that is still good and not known to be another's, or older than the file.

    :param present: the profile's cookies.
    :param says_yes: asks the project's own check.
    """
    if noted is not None and noted.who != wanted.who:
        return False
    if noted is not None and noted.version != wanted.version and noted.saved <= wanted.saved:
        return False
    return has_live_login(state, present, time.time()) or says_yes()


def log_profile_in(
    context: BrowserContext, login: Login, profile: Path | None, says_yes: Callable[[], bool]
) -> bool:
    """Put a login into a profile, unless that keeps its own; whether it was put there.

    :raises ReplayFailedError: the browser refuses it; what is in the profile now must not be used.
    """
    wanted, noted = Noted.of(login), Noted.read(profile)
    present: Any = context.cookies()
    if not login.settings.overwrite and keeps_its_own(login.state, wanted, noted, present, says_yes):
        return False
    wanted.write(profile, half=True)
    others = noted is not None and noted.who != wanted.who
    replay(context, login.state, clear=noted.origins if noted is not None and others else ())
    wanted.write(profile, half=False)
    return True
