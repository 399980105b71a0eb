"""What was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any


class BrowserName(StrEnum):
    """Browsers that can be asked for, by Playwright's names of browsers and channels."""

    CHROMIUM = "chromium"
    CHROME = "chrome"
    MSEDGE = "msedge"
    FIREFOX = "firefox"
    WEBKIT = "webkit"

    @property
    def is_chromium(self) -> bool:
        return self not in (BrowserName.FIREFOX, BrowserName.WEBKIT)


class Isolation(StrEnum):
    """How much one test shares with the next one of its worker.

    ``fresh``: a context of its own in the worker's browser. ``profile``: the default context of
    the worker's browser, with all that earlier tests left in it. ``browser``: a process of its own.
    """

    FRESH = "fresh"
    PROFILE = "profile"
    BROWSER = "browser"


@dataclass(frozen=True, slots=True)
class BrowserSpec:
    """A browser process: two equal ones may share it.

    :ivar executable: None means to look for one.
    :ivar user_data_dir: a user's own profile (absolute), None for one made for the session.
    :ivar persistent: its default context is what the tests use. Where Playwright launches the browser
        it has to know beforehand; where peaks does, one process serves both.
    :ivar debug_port: False launches through Playwright's own pipe, with the Playwright door only.
    """

    browser: BrowserName = BrowserName.CHROMIUM
    executable: Path | None = None
    headed: bool = False
    user_data_dir: Path | None = None
    debug_port: bool = True
    persistent: bool = False

    @property
    def own_process(self) -> bool:
        """Whether peaks spawns it (else Playwright's driver does)."""
        return self.debug_port and self.browser.is_chromium

    @property
    def needs_profile(self) -> bool:
        """Whether it works on a user-data dir that peaks names."""
        return self.own_process or self.persistent

    @property
    def process_key(self) -> BrowserSpec:
        """Equal for specs that one process can serve."""
        return replace(self, persistent=False) if self.own_process else self


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session as a test asked for it.

    :ivar url: where the page is taken before the test gets it.
    :ivar context_options: keyword arguments of Playwright's ``Browser.new_context``.
    """

    browser: BrowserSpec
    name: str = ""
    isolation: Isolation = Isolation.FRESH
    url: str | None = None
    context_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
