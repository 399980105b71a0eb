"""pytest-playwright's options: where that plugin is loaded, they hold for sessions of peaks as well."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

MODULE = "pytest_playwright.pytest_playwright"
# The name under which our own fixtures are registered where it is not loaded.
STAND_IN = "peaks-bridge-stand-in"
# Its option, ours, and its default, which means "not given".
_SAME = (
    ("--headed", "headed", False),
    ("--slowmo", "slowmo", 0),
    ("--device", "device", None),
    ("--output", "output", "test-results"),
    ("--tracing", "tracing", "off"),
    ("--video", "video", "off"),
    ("--screenshot", "screenshot", "off"),
    ("--full-page-screenshot", "full_page_screenshot", False),
)
# Its channels that are browsers of ours. `chromium` is the full one, headless as well.
_CHANNELS = ("chrome", "msedge")


@dataclass(frozen=True, slots=True)
class TheirOptions:
    """What pytest-playwright was told.

    :ivar values: by our option's name, the value as text and the spelling in which it was given.
    :ivar browsers: its ``--browser``, which may be given several times.
    :ivar channel: a channel that is no browser of ours.
    """

    values: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    browsers: tuple[str, ...] = ()
    channel: str = ""


def plugin(config: pytest.Config) -> ModuleType | None:
    """pytest-playwright (the sync one), if it is loaded in this run."""
    module = sys.modules.get(MODULE)
    manager: Any = getattr(config, "pluginmanager", None)
    return module if module is not None and manager is not None and manager.is_registered(module) else None


def fixtures_of(config: pytest.Config) -> bool:
    """Whether this run has pytest-playwright's fixtures: its own, or ours in its place."""
    manager: Any = getattr(config, "pluginmanager", None)
    return plugin(config) is not None or (manager is not None and manager.hasplugin(STAND_IN))


def is_async(config: pytest.Config) -> bool:
    """Whether pytest-playwright-asyncio is loaded, whose fixtures have the same names."""
    module = sys.modules.get("pytest_playwright_asyncio.pytest_playwright")
    return module is not None and config.pluginmanager.is_registered(module)


def given(config: pytest.Config) -> TheirOptions:
    """What pytest-playwright was told on the command line."""
    if plugin(config) is None:
        return TheirOptions()
    values: dict[str, tuple[str, str]] = {}
    for theirs, ours, default in _SAME:
        value = config.getoption(theirs, default=default)
        if value != default:
            values[ours] = str(value), theirs
    browsers = tuple(config.getoption("--browser", default=None) or ())
    if len(browsers) == 1:
        values["browser"] = browsers[0], "--browser"
    channel = config.getoption("--browser-channel", default=None) or ""
    if channel in _CHANNELS:
        values["browser"], channel = (channel, "--browser-channel"), ""
    return TheirOptions(values, browsers, channel)
