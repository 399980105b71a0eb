"""pytest-playwright's fixtures for runs with ``--peaks-bridge`` in which it is not loaded.

Their names, scopes and how they build on each other are pytest-playwright's (its documentation, "Fixtures"), so a suite
that overrides some of them goes on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import state

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, BrowserType, Page, Playwright

    from pytest_peaks.owner import Owner


@pytest.fixture(scope="session")
def playwright(_peaks_owner: Owner) -> Playwright:
    """The running Playwright."""
    return _peaks_owner.door.playwright()


@pytest.fixture(scope="session")
def browser_name(pytestconfig: pytest.Config) -> str:
    """``chromium``, ``firefox`` or ``webkit``."""
    browser = state.of(pytestconfig).config.browser
    return "chromium" if browser.is_chromium else str(browser)


@pytest.fixture(scope="session")
def browser_channel(pytestconfig: pytest.Config) -> str | None:
    """``chrome`` or ``msedge``; None for the browser itself."""
    browser = str(state.of(pytestconfig).config.browser)
    return browser if browser in ("chrome", "msedge") else None


@pytest.fixture(scope="session")
def is_chromium(browser_name: str) -> bool:
    return browser_name == "chromium"


@pytest.fixture(scope="session")
def is_firefox(browser_name: str) -> bool:
    return browser_name == "firefox"


@pytest.fixture(scope="session")
def is_webkit(browser_name: str) -> bool:
    return browser_name == "webkit"


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> str | None:
    """The device that contexts emulate."""
    return state.of(pytestconfig).config.device or None


@pytest.fixture(scope="session")
def browser_type(playwright: Playwright, browser_name: str) -> BrowserType:
    found: BrowserType = getattr(playwright, browser_name)
    return found


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    """Nothing: the options of peaks say how a browser is launched."""
    return {}


@pytest.fixture(scope="session")
def connect_options() -> dict[str, Any] | None:
    return None


@pytest.fixture(scope="session")
def browser_context_args(
    playwright: Playwright, device: str | None, _peaks_base_url: str | None
) -> dict[str, Any]:
    """What contexts are like: the device and the base URL."""
    options: dict[str, Any] = dict(playwright.devices[device]) if device else {}
    return {**options, "base_url": _peaks_base_url} if _peaks_base_url else options


@pytest.fixture(scope="session")
def launch_browser(
    browser_type_launch_args: dict[str, Any],
    browser_type: BrowserType,
    connect_options: dict[str, Any] | None,
) -> Callable[..., Browser]:
    """Launches a browser that is no session of peaks, or connects to one."""

    def launch(**options: Any) -> Browser:
        if connect_options:
            return browser_type.connect(**connect_options)
        return browser_type.launch(**{**browser_type_launch_args, **options})

    return launch


@pytest.fixture(scope="session")
def browser(launch_browser: Callable[..., Browser]) -> Iterator[Browser]:
    found = launch_browser()
    yield found
    found.close()


@pytest.fixture
def new_context(
    browser: Browser, browser_context_args: dict[str, Any]
) -> Iterator[Callable[..., BrowserContext]]:
    """Makes further contexts; they end with the test."""
    made: list[BrowserContext] = []

    def make(**options: Any) -> BrowserContext:
        made.append(browser.new_context(**browser_context_args, **options))
        return made[-1]

    yield make
    for context in made:
        context.close()


@pytest.fixture
def context(new_context: Callable[..., BrowserContext]) -> BrowserContext:
    return new_context()


@pytest.fixture
def page(context: BrowserContext) -> Page:
    return context.new_page()
