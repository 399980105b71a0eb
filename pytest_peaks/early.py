"""This process's owner of browsers, and what it starts before the first test asks for it."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import state
from pytest_peaks.fixtures import BROWSER_FIXTURES

if TYPE_CHECKING:
    from pytest_peaks.auth.source import Logins
    from pytest_peaks.doors.driver import SpareDriver
    from pytest_peaks.owner import Owner

# A browser that no test asks for soon would only take memory meanwhile.
SOON = 10


def owner_of(config: pytest.Config) -> Owner:
    """What this process holds of browsers; made if there is none yet."""
    run_state = state.of(config)
    if run_state.owner is None or run_state.owner.is_closed:
        from pytest_peaks.owner import Owner
        from pytest_peaks.telling import teller

        def make_logins() -> Logins:
            from pytest_peaks import logging_in

            return logging_in.make_logins(config, owner)

        run_state.termination.install()
        owner = Owner(run_state.config, run_state.run, lambda: None, teller(config))
        owner.make_logins = make_logins
        run_state.owner = owner
    return run_state.owner


def start(session: pytest.Session) -> None:
    """Right before the first test: begin to start the browser and the driver that the first tests will ask for.

    Whatever is wrong is told when a test asks, so nothing is said here.
    """
    config = session.config
    with contextlib.suppress(Exception), _collecting_nothing(), _captured(config):
        if not _wants(session):
            return
        # Node takes longest: it comes first, before this process imports what it needs itself.
        driver = _driver(session)
        try:
            owner_of(config).start_ahead(driver)
        except BaseException:
            if driver is not None:
                driver.discard()
            raise
        import playwright.sync_api  # noqa: F401 - while the others start; the first test needs it


def _driver(session: pytest.Session) -> SpareDriver | None:
    """A driver that starts now; None where the suite has one of its own, which peaks will use."""
    manager: Any = getattr(session, "_fixturemanager", None)
    known = getattr(manager, "_arg2fixturedefs", {}).get("playwright", ())
    if not all(found.func.__module__.startswith("pytest_peaks.") for found in known):
        return None
    from pytest_peaks.doors.driver import SpareDriver
    from pytest_peaks.session.identity import ProcessIdentity
    from pytest_peaks.session.paths import owner_temp_dir

    return SpareDriver.start(owner_temp_dir(ProcessIdentity.of_self()))


def _wants(session: pytest.Session) -> bool:
    option = session.config.option
    if option.collectonly or getattr(option, "setupplan", False):
        return False
    if session.testsfailed and not option.continue_on_collection_errors:
        return False
    first = _first(session)
    if first is None:
        return False
    from pytest_peaks.session.spec import Isolation

    config, spec = state.of(session.config).config, state.spec_of(first)
    kept = config.reuse != "off" or config.fresh or config.attach
    own = spec.browser == config.browser_spec and spec.isolation is not Isolation.BROWSER and not spec.desk
    return own and spec.browser.own_process and not kept


def _first(session: pytest.Session) -> pytest.Item | None:
    """The first test that uses a browser; None if this process may well not come to it soon, or at all."""
    items = session.items
    uses = [_uses(item) for item in items]
    # Which of them a worker will run is not known.
    is_worker = hasattr(session.config, "workerinput")
    soon = sum(uses) * 2 >= len(items) if is_worker else True in uses[:SOON]
    first = items[uses.index(True)] if soon and True in uses else None
    return first if first is None or first.get_closest_marker("skip") is None else None


def _uses(item: pytest.Item) -> bool:
    """Whether a test uses the run's own browser: by a fixture of ours, or of pytest-playwright's on our session."""
    names = getattr(item, "fixturenames", ())
    if not BROWSER_FIXTURES.isdisjoint(names):
        return True
    if "browser" not in names or not state.is_bridged(item):
        return False
    from pytest_peaks.bridge import swap

    known: Any = item
    arguments = known._fixtureinfo.name2fixturedefs.get("browser_type_launch_args", ())
    # A suite's own may ask for another browser.
    return bool(arguments) and swap.is_theirs(arguments[-1])


@contextlib.contextmanager
def _collecting_nothing() -> Iterator[None]:
    """Without the garbage collector, which takes a quarter of the time of importing Playwright and finds nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def _captured(config: pytest.Config) -> Iterator[None]:
    """Have what the driver says go where it would go if a test started it: pytest captures nothing between tests."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    if capture is None:
        yield
        return
    capture.resume_global_capture()
    try:
        yield
    finally:
        capture.suspend_global_capture(in_=False)
