"""What stands in for pytest-playwright's fixtures; each returns what its own does."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import state
from pytest_peaks.bridge import launch, session, swap

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from pytest_peaks.handle import PeaksSession
    from pytest_peaks.owner import Owner

# The session whose context a test has as `context`.
RIDDEN = pytest.StashKey["PeaksSession"]()


@pytest.fixture(scope="session")
def _peaks_bridge_browser(
    request: pytest.FixtureRequest,
    browser_name: str,
    browser_type_launch_args: dict[str, Any],
    connect_options: dict[str, Any] | None,
    _peaks_owner: Owner,
) -> Iterator[Browser]:
    """The worker's browser."""
    if connect_options:
        # Somewhere else, as the suite wants it; the sessions of peaks are not in it.
        browser = request.getfixturevalue("launch_browser")()
        yield browser
        browser.close()
        return
    spec = launch.browser_spec(state.of(request.config).config, browser_name, browser_type_launch_args)
    yield _peaks_owner.lending.lend(spec)
    _peaks_owner.lending.take_back(spec)


@pytest.fixture
def _peaks_bridge_own_browser(peaks_session: PeaksSession) -> Browser:
    """The browser of a test that shares it with nobody, or only with tests of its kind."""
    return peaks_session.browser


@pytest.fixture
def _peaks_bridge_new_context(request: pytest.FixtureRequest) -> Generator[Callable[..., BrowserContext]]:
    """pytest-playwright's `new_context`, with what the marker says as the default, the login included."""
    theirs = request.node.stash[swap.ORIGINALS]["new_context"]
    values = {name: request.getfixturevalue(name) for name in theirs.argnames if name != "request"}
    if "request" in theirs.argnames:
        values["request"] = request
    # Theirs would pass both what is given and the arguments, and Python refuses a name that comes twice.
    values["browser"] = session.WithDefaults(values["browser"], session.further_context_options(request))
    values["browser_context_args"] = {}
    yield from theirs.func(**values)


@pytest.fixture
def _peaks_bridge_context(
    request: pytest.FixtureRequest, browser: Browser, _peaks_owner: Owner
) -> BrowserContext:
    """The context of the test's session; one of its own in a browser that is not ours."""
    if not _peaks_owner.has(browser):
        context: BrowserContext = request.getfixturevalue("new_context")()
        return context
    ridden: PeaksSession = request.getfixturevalue("peaks_session")
    request.node.stash[RIDDEN] = ridden
    return ridden.context


@pytest.fixture
def _peaks_bridge_page(request: pytest.FixtureRequest, context: BrowserContext) -> Page:
    """The page of the test's session, or a new one in a context that the suite made."""
    ridden: PeaksSession | None = request.node.stash.get(RIDDEN, None)
    if ridden is not None and ridden.context is context:
        return ridden.page
    return context.new_page()


@pytest.fixture(scope="session")
def _peaks_bridge_delete_output_dir() -> None:
    """Nothing: the folder was cleared before the first test, see `hooks.clear_output`."""
