"""The ``peaks_*`` fixtures. Thin: what they do is in :mod:`pytest_peaks.owner` and :mod:`pytest_peaks.handle`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_peaks import state
from pytest_peaks.playwright_options import STAND_IN

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from pytest_peaks.artifacts.recorder import Recorder, Recorders
    from pytest_peaks.at_desks import PeaksPool
    from pytest_peaks.doors.cli import PeaksCli
    from pytest_peaks.doors.mcp import McpClient
    from pytest_peaks.handle import PeaksSession
    from pytest_peaks.openers import SessionFactory, SessionOpener
    from pytest_peaks.owner import Owner

T = TypeVar("T")

# The fixtures that mean a browser.
BROWSER_FIXTURES = frozenset(
    {
        "peaks_session",
        "peaks_sessions",
        "peaks_session_factory",
        "peaks_pool",
        "peaks_page",
        "peaks_context",
        "peaks_browser",
        "peaks_mcp",
        "peaks_cli",
    }
)


@pytest.fixture(scope="session")
def peaks_slot(pytestconfig: pytest.Config) -> int:
    """This worker's place in the run: 0 to n-1, kept when a crashed worker is replaced; 0 without xdist."""
    return state.of(pytestconfig).run.slot


@pytest.fixture(scope="session")
def _peaks_owner(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> Iterator[Owner]:
    from pytest_peaks import phases
    from pytest_peaks.early import owner_of

    phases.begin(pytestconfig)

    def borrow() -> Any:
        # pytest-playwright's, or one that the suite defines itself: there can be but one in a thread.
        if phases.is_async_fixture(request, "playwright"):
            return None  # pytest-playwright-asyncio's, which is of no use here
        if pytestconfig.pluginmanager.hasplugin(STAND_IN) and phases.is_ours(request, "playwright"):
            return None  # it asks us
        try:
            return request.getfixturevalue("playwright")
        except pytest.FixtureLookupError:
            return None

    owner = owner_of(pytestconfig)
    owner.door.borrow_by(borrow)
    yield owner
    with phases.mark_of(pytestconfig).held():
        # What is kept of the last test is decided with its report, which is yet to come.
        owner.close(keep_temp_dir=True)


@pytest.fixture(scope="session")
def _peaks_base_url(request: pytest.FixtureRequest) -> str | None:
    given = state.of(request.config).config.base_url
    if given:
        return given
    # pytest-base-url's and pytest-playwright's fixture, or one that the suite defines.
    try:
        with warnings.catch_warnings():
            # How pytest-playwright defines its own is deprecated in the newest pytest; not this suite's fault.
            warnings.simplefilter("ignore", pytest.PytestDeprecationWarning)
            value = request.getfixturevalue("base_url")
    except pytest.FixtureLookupError:
        return None
    return str(value) if value else None


@pytest.fixture
def peaks_session(
    request: pytest.FixtureRequest, _peaks_owner: Owner, _peaks_base_url: str | None
) -> Iterator[PeaksSession]:
    """This test's browser session, as its ``peaks_session`` marker asks for it."""
    spec = state.spec_of(request.node)
    recorder: Recorder | None = None
    if state.is_bridged(request.node):
        from pytest_peaks.bridge.recorder import recorder_of
        from pytest_peaks.bridge.session import completed

        spec, _peaks_base_url = completed(request, spec)
        recorder = recorder_of(request)
    if recorder is None:
        recorders = _recorders(request)
        recorder = recorders("") if recorders is not None else None
    with _peaks_owner.open(spec, _peaks_base_url, recorder=recorder) as session:
        _offer(request, "peaks_session", session)
        yield session
        if state.has_passed(request.node):
            session.write_back()


@pytest.fixture
def peaks_sessions(
    request: pytest.FixtureRequest, _peaks_owner: Owner, _peaks_base_url: str | None
) -> Iterator[SessionOpener]:
    """Several isolated sessions in one test: ``alice, bob = peaks_sessions("alice", "bob")``."""
    from pytest_peaks.openers import SessionOpener

    config = state.of(request.config).config
    arguments, recorders = state.arguments_of(request.node), _recorders(request)
    opener = SessionOpener(_peaks_owner, config, arguments, _peaks_base_url, recorders)
    yield opener
    try:
        if state.has_passed(request.node):
            opener.write_back()
    finally:
        opener.close()


@pytest.fixture(scope="session")
def peaks_session_factory(
    pytestconfig: pytest.Config, _peaks_owner: Owner, _peaks_base_url: str | None
) -> SessionFactory:
    """Sessions of a wider scope: ``with peaks_session_factory() as session: yield session.page``."""
    from pytest_peaks.openers import SessionFactory

    return SessionFactory(_peaks_owner, state.of(pytestconfig).config, _peaks_base_url)


@pytest.fixture(scope="session")
def peaks_pool(_peaks_owner: Owner, _peaks_base_url: str | None) -> PeaksPool:
    """The pool of desks: ``with peaks_pool.seat("gmail", save=True) as session: …``."""
    from pytest_peaks.at_desks import PeaksPool

    return PeaksPool(_peaks_owner, _peaks_base_url)


@pytest.fixture
def peaks_page(request: pytest.FixtureRequest, peaks_session: PeaksSession) -> Page:
    """A blank Playwright page in this worker's own browser."""
    return _offer(request, "peaks_page", peaks_session.page)


@pytest.fixture
def peaks_context(request: pytest.FixtureRequest, peaks_session: PeaksSession) -> BrowserContext:
    """The browser context of ``peaks_page``."""
    return _offer(request, "peaks_context", peaks_session.context)


@pytest.fixture
def peaks_browser(request: pytest.FixtureRequest, peaks_session: PeaksSession) -> Browser:
    """The browser of ``peaks_page``."""
    return _offer(request, "peaks_browser", peaks_session.browser)


@pytest.fixture
def peaks_account(request: pytest.FixtureRequest, _peaks_owner: Owner) -> Any:
    """This slot's account for the test's ``auth``, as the hook ``pytest_peaks_accounts`` gives it."""
    auth = state.spec_of(request.node).auth
    if not auth:
        from pytest_peaks.errors import InvalidOptionError

        raise InvalidOptionError(
            "peaks_account is used in a test without auth", hint='@pytest.mark.peaks_session(auth="…")'
        )
    return _offer(request, "peaks_account", _peaks_owner.logins.account_of(auth))


@pytest.fixture
def peaks_mcp(request: pytest.FixtureRequest, peaks_session: PeaksSession) -> McpClient:
    """An MCP client on this test's session: it sees the tabs, cookies and storage of ``peaks_page``."""
    return _offer(request, "peaks_mcp", peaks_session.mcp)


@pytest.fixture
def peaks_cli(request: pytest.FixtureRequest, peaks_session: PeaksSession) -> PeaksCli:
    """playwright-cli on this test's session: it sees the tabs, cookies and storage of ``peaks_page``."""
    return _offer(request, "peaks_cli", peaks_session.cli)


def _recorders(request: pytest.FixtureRequest) -> Recorders | None:
    """What makes the recorders of this test's sessions; None where nothing is recorded."""
    if not state.of(request.config).config.artifacts.wanted:
        return None
    found: Recorders = request.getfixturevalue("_peaks_recorder")
    return found


def _offer(request: pytest.FixtureRequest, name: str, value: T) -> T:
    """Make a fixture that ``usefixtures`` names an attribute of a ``unittest.TestCase``."""
    unittest: Any = sys.modules.get("unittest")
    if unittest is not None and isinstance(request.instance, unittest.TestCase):
        setattr(request.instance, name, value)
    return value
