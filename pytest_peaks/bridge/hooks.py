"""The bridge's hooks; there only where pytest-playwright is loaded, or ``--peaks-bridge`` asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import pytest

from pytest_peaks import logging_in, playwright_options, state
from pytest_peaks.bridge import swap
from pytest_peaks.bridge.fixtures import RIDDEN
from pytest_peaks.fixtures import BROWSER_FIXTURES

_SEEDED = pytest.StashKey[object]()


def install(config: pytest.Config) -> None:
    """Make the bridge ready, with fixtures of ours where pytest-playwright is not loaded."""
    from pytest_peaks.bridge import fixtures, standin

    if playwright_options.plugin(config) is None:
        config.pluginmanager.register(standin, playwright_options.STAND_IN)
    config.pluginmanager.register(fixtures, "peaks-bridge-fixtures")
    config.pluginmanager.register(BridgeHooks(config), "peaks-bridge")


class BridgeHooks:
    """Exchanges fixtures test by test, and sees to what pytest-playwright leaves to chance under xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self._browsers = playwright_options.given(config).browsers
        self._keeps_output = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Tests of peaks run once a browser of several, as pytest-playwright's own do."""
        names = metafunc.fixturenames
        if len(self._browsers) > 1 and "browser_name" not in names and not BROWSER_FIXTURES.isdisjoint(names):
            names.append("browser_name")  # pytest-playwright's hook does the rest

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """In a worker of a run that opted in: see to it that the output folder is cleared before the first test only.

        pytest-playwright has each worker clear it, also one that takes the place of a crashed one, and so loses what
        the others kept. xdist gives out no test before all workers have collected theirs, so now is early enough.
        """
        given = getattr(session.config, "workerinput", {}).get("peaks")
        if given is None or session.config.option.collectonly:
            return
        items = [item for item in session.items if isinstance(item, pytest.Function)]
        if not any(
            state.is_bridged(item) or not BROWSER_FIXTURES.isdisjoint(item.fixturenames) for item in items
        ):
            return
        known: Any = items[0]
        definitions = known._fixtureinfo.name2fixturedefs.get("delete_output_dir", ())
        if not definitions or not swap.is_theirs(definitions[-1]):
            return  # the suite has its own, which holds
        self._keeps_output = True
        if not given["replaces"]:
            with contextlib.suppress(OSError):  # another worker does the same at the same time
                definitions[-1].func(pytestconfig=session.config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Exchange the fixtures, once, though a test that is repeated comes here again.

        A browser that died is not the next test's: it, and what stands on it, is set up anew.
        """
        if swap.ORIGINALS not in item.stash:
            swap.exchange(item, keep_output=self._keeps_output)
        earlier: tuple[pytest.StashKey[Any], ...] = (RIDDEN, _SEEDED)
        for key in earlier:
            if key in item.stash:
                del item.stash[key]  # an earlier attempt's
        owner = state.of(item.config).owner
        if owner is None or swap.ORIGINALS not in item.stash:
            return
        for definition in swap.shared_browsers(item):
            cached = definition.cached_result
            if cached is not None and owner.lending.has_lost(cached[0]):
                definition.finish(item._request)  # type: ignore[attr-defined]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """A page in a context that is not the session's own gets the login's sessionStorage too."""
        result = yield
        item = request.node
        if fixturedef.argname not in ("page", swap.PAGE) or not isinstance(item, pytest.Item):
            return result
        spec = state.spec_of(item) if state.is_bridged(item) else None
        if spec is None or not spec.auth or item.stash.get(_SEEDED, None) is result:
            return result
        ridden = item.stash.get(RIDDEN, None)
        if ridden is None or ridden.context is not result.context:
            item.stash[_SEEDED] = result  # a fixture on top of it may have gone somewhere
            login = request.getfixturevalue("_peaks_owner").logins.login(spec.auth)
            logging_in.seed_page(result, login)
            owner = state.of(item.config).owner
            request.addfinalizer(lambda: logging_in.write_back_page(owner, item, result, login))
        return result
