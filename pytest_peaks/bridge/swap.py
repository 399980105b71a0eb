"""Which of pytest-playwright's fixtures a test gets from peaks.

The fixtures of one test are exchanged, not those of the run: tests that did not ask for it have pytest-playwright's
own, with nothing of ours between. Fixtures that a suite overrides stay, and get ours where they ask for the one that
they override.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_peaks import playwright_options, state
from pytest_peaks.bridge import standin
from pytest_peaks.session.spec import Isolation, SessionSpec

Definitions = Sequence[pytest.FixtureDef[Any]]

SHARED_BROWSER = "_peaks_bridge_browser"
OWN_BROWSER = "_peaks_bridge_own_browser"
NEW_CONTEXT = "_peaks_bridge_new_context"
CONTEXT = "_peaks_bridge_context"
PAGE = "_peaks_bridge_page"
KEEP_OUTPUT = "_peaks_bridge_delete_output_dir"
# The fixtures of pytest-playwright that peaks' stand in for, by name, for one test.
ORIGINALS = pytest.StashKey[dict[str, pytest.FixtureDef[Any]]]()


def exchange(item: pytest.Item, *, keep_output: bool) -> None:
    """Give a test the fixtures of peaks in place of pytest-playwright's, as far as it is to have them.

    :param keep_output: whether its ``delete_output_dir`` is to delete nothing.
    """
    bridged = state.is_bridged(item)
    if not bridged and not keep_output:
        return
    _Exchange(item).run(bridged=bridged, keep_output=keep_output)


class _Exchange:
    """The exchange of one test's fixtures.

    pytest has no public way to say that one test uses another definition of a fixture: this changes what a test's
    `_fixtureinfo` knows, in a copy of its own, since the tests of one parametrised function share it.
    """

    def __init__(self, item: Any) -> None:
        self._item = item
        self._manager = item.session._fixturemanager
        self._known: dict[str, Definitions] = dict(item._fixtureinfo.name2fixturedefs)
        self._originals: dict[str, pytest.FixtureDef[Any]] = {}

    def run(self, *, bridged: bool, keep_output: bool) -> None:
        if keep_output:
            self._put("delete_output_dir", KEEP_OUTPUT)
        if bridged:
            if self._is_theirs("launch_browser") and any(map(is_theirs, self._of("browser"))):
                shared = shares_the_browser(state.spec_of(self._item), self._item)
                self._put("browser", SHARED_BROWSER if shared else OWN_BROWSER)
                if self._is_theirs("new_context"):
                    self._put("context", CONTEXT)
                    self._put("page", PAGE)
            self._put("new_context", NEW_CONTEXT)
        item = self._item
        item.stash[ORIGINALS] = self._originals
        item._fixtureinfo = dataclasses.replace(item._fixtureinfo, name2fixturedefs=self._known)
        item._initrequest()

    def _of(self, name: str) -> Definitions:
        """The definitions of a fixture that the test can see, the one that it gets last."""
        return self._known.get(name) or self._manager.getfixturedefs(name, self._item) or ()

    def _is_theirs(self, name: str) -> bool:
        definitions = self._of(name)
        return bool(definitions) and is_theirs(definitions[-1])

    def _put(self, name: str, ours: str) -> None:
        definitions = self._of(name)
        theirs = next((found for found in definitions if is_theirs(found)), None)
        if theirs is None:
            return
        self._originals[name] = theirs
        (new,) = self._manager.getfixturedefs(ours, self._item)
        self._known[name] = tuple(new if found is theirs else found for found in definitions)


def shared_browsers(item: pytest.Item) -> Definitions:
    """The definition of the worker's browser, where a test has it."""
    known: Any = item
    found: Definitions = known._fixtureinfo.name2fixturedefs.get("browser", ())
    return [definition for definition in found if definition.argname == SHARED_BROWSER]


def is_theirs(definition: pytest.FixtureDef[Any]) -> bool:
    """Whether a fixture is pytest-playwright's own, or ours, and not one that a suite put in its place."""
    return definition.func.__module__ in (playwright_options.MODULE, standin.__name__)


def shares_the_browser(spec: SessionSpec, item: pytest.Item) -> bool:
    """Whether a test works in the worker's browser, so that fixtures of a wider scope may use it as well."""
    return (
        spec.isolation in (Isolation.FRESH, Isolation.RECYCLED)
        and not (spec.doors or spec.desk or spec.browser.persistent or spec.browser.by_driver)
        and state.arguments_of(item).get("browser") is None
    )
