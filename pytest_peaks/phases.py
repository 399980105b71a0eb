"""When the mark of Playwright's event loop is on: in the fixtures and tests that use a browser.

The hooks are there only in a run that wants them, see :func:`decide`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Generator
from typing import Any

import pytest

from pytest_peaks import state
from pytest_peaks.fixtures import BROWSER_FIXTURES
from pytest_peaks.marker_name import NAME
from pytest_peaks.parking import Mark
from pytest_peaks.telling import teller

# Whoever reaches one of these by its arguments uses a browser; pytest-playwright's fixtures all reach the last.
PLAYWRIGHT = "playwright"
ROOTS = BROWSER_FIXTURES | {PLAYWRIGHT}
OWNER = "_peaks_owner"
_REFUSALS = (
    "cannot be called from a running event loop",
    "Cannot run the event loop while another loop is running",
    "You cannot use AsyncToSync in the same thread as an async event loop",
    "You cannot call this from an async context",
)
PARKED_HINT = (
    "Playwright's sync API is in use in this test, and to asyncio and Django that is a running event loop.\n"
    "Whatever runs a loop of its own, or uses Django's ORM, goes into a block without calls of Playwright:\n"
    "  from pytest_peaks import parked\n"
    "  with parked():\n"
    "      asyncio.run(main())"
)


BY_NAME_HINT = (
    "A browser of a wider scope that was there already came into this test by request.getfixturevalue, which nobody "
    "sees.\nName its fixture among the test's arguments, or in @pytest.mark.usefixtures."
)
_MARK = pytest.StashKey[Mark]()


def mark_of(config: pytest.Config) -> Mark:
    """The mark of this process's Playwright."""
    if _MARK not in config.stash:
        config.stash[_MARK] = Mark(teller(config))
    return config.stash[_MARK]


def decide(session: pytest.Session) -> None:
    """After collection, in each process that runs tests: whether async tests are to be safe from browser tests.

    All workers collect the same tests, so they decide alike. A run that uses pytest-playwright alone is left as it
    is, unless ``peaks_async_safe`` is on.
    """
    config = state.of(session.config).config
    roots = ROOTS if config.async_safe == "on" or config.bridge else BROWSER_FIXTURES

    def uses_a_browser(item: pytest.Item) -> bool:
        mine = ROOTS if item.get_closest_marker(NAME) is not None else roots
        return not mine.isdisjoint(getattr(item, "fixturenames", ()))

    if any(map(uses_a_browser, getattr(session, "items", ()))):
        begin(session.config)


def begin(config: pytest.Config, *, only_if: str = "") -> None:
    """Take the mark off from now on, where it is not needed. Idempotent.

    :param only_if: the value that ``peaks_async_safe`` has to have; any but "off" otherwise.
    """
    wanted = state.of(config).config.async_safe
    mark = mark_of(config)
    if mark.enabled or wanted == "off" or (only_if and wanted != only_if):
        return
    mark.enabled = True
    config.pluginmanager.register(ParkingHooks(mark), "peaks-parking")


class _Frame:
    """A fixture's setup or a test's body that is under way."""

    __slots__ = ("is_sync", "reached")

    def __init__(self, *, is_sync: bool) -> None:
        self.is_sync = is_sync
        self.reached = False


class ParkingHooks:
    """The phases of a run in which browsers are used.

    :param mark: the mark that is taken off and put back.
    """

    def __init__(self, mark: Mark) -> None:
        self._mark = mark
        self._reaching: set[pytest.FixtureDef[Any]] = set()
        # What is under way when this is registered in the middle of a test uses a browser: that is why.
        self._frames = [_Frame(is_sync=True)]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        mark = self._mark
        before = mark.is_on
        frame = _Frame(is_sync=not _is_async(fixturedef.func))
        frame.reached = self._reaches(fixturedef, request)
        self._reaching.discard(fixturedef)  # for this time it is not known yet
        is_ours = fixturedef.argname == OWNER
        fixturedef.addfinalizer(mark.off)  # the first that is added runs last
        self._frames.append(frame)
        (mark.on if frame.is_sync and (frame.reached or is_ours) else mark.off)()
        try:
            return (yield)
        finally:
            if self._frames:
                self._frames.pop()
            uses = frame.is_sync and (frame.reached or is_ours)
            fixturedef.addfinalizer(mark.on if uses else mark.off)  # and this one first
            outer = self._frames[-1] if self._frames else None
            if frame.reached:
                self._reaching.add(fixturedef)
                if outer is not None:
                    outer.reached = True  # by request.getfixturevalue
            stays = before or (uses and outer is not None and outer.is_sync)
            (mark.on if stays else mark.off)()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase(None))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase(item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        __tracebackhide__ = True
        return (yield from self._phase(None))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        uses = self._uses(item)
        (self._mark.on if uses else self._mark.off)()  # suites take screenshots here
        try:
            report = yield
        finally:
            self._mark.off()
        if uses and report.failed and call.excinfo is not None:
            said = str(call.excinfo.value)
            if any(refusal in said for refusal in _REFUSALS):
                report.sections.append(("peaks", PARKED_HINT))
            elif said.startswith(("no running event loop", "There is no current event loop")):
                report.sections.append(("peaks", BY_NAME_HINT))
        return report

    def _phase(self, item: pytest.Item | None) -> Generator[None, Any, Any]:
        """A test's setup, body or teardown; `item` for the body."""
        __tracebackhide__ = True
        is_sync = item is not None and not _is_async_test(item)
        self._frames = [] if item is None else [_Frame(is_sync=is_sync)]
        (self._mark.on if item is not None and is_sync and self._uses(item) else self._mark.off)()
        try:
            return (yield)
        finally:
            self._frames = []
            self._mark.off()

    def _uses(self, item: pytest.Item) -> bool:
        """Whether a test uses a browser, by its fixtures or those that they asked for."""
        if not ROOTS.isdisjoint(getattr(item, "fixturenames", ())):
            return True
        return not self._reaching.isdisjoint(_active(getattr(item, "_request", None)).values())

    def _reaches(self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> bool:
        if fixturedef.argname in ROOTS or not ROOTS.isdisjoint(fixturedef.argnames):
            return True
        active = _active(request)
        return any(active.get(name) in self._reaching for name in fixturedef.argnames)


def _active(request: object) -> dict[str, Any]:
    """The fixtures that are set up for a test, by name."""
    found: dict[str, Any] = getattr(request, "_fixture_defs", {})
    return found


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _is_async_test(item: pytest.Item) -> bool:
    function = getattr(item, "obj", None)
    inner = getattr(getattr(function, "hypothesis", None), "inner_test", None)
    if _is_async(function) or _is_async(inner):
        return True
    cases: Any = sys.modules.get("unittest.async_case")
    kind = getattr(item, "cls", None)
    return cases is not None and kind is not None and issubclass(kind, cases.IsolatedAsyncioTestCase)


def is_async_fixture(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether the fixture that `request` would get by a name is an async one; False if there is none."""
    found = _definition(request, name)
    return found is not None and _is_async(found.func)


def is_ours(request: pytest.FixtureRequest, name: str) -> bool:
    """Whether the fixture that `request` would get by a name is one of this package."""
    found = _definition(request, name)
    return found is not None and found.func.__module__.startswith("pytest_peaks.")


def _definition(request: pytest.FixtureRequest, name: str) -> pytest.FixtureDef[Any] | None:
    manager: Any = request.session._fixturemanager
    found = manager.getfixturedefs(name, getattr(request, "_pyfuncitem", request.node))
    return found[-1] if found else None
