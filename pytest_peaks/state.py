"""What the plugin keeps on pytest's config and items; there are no module globals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import marker, playwright_options
from pytest_peaks.config import PeaksConfig
from pytest_peaks.errors import PeaksError
from pytest_peaks.session.spec import Door, SessionSpec

if TYPE_CHECKING:
    from pytest_peaks.owner import Owner
    from pytest_peaks.session.spec import Run
    from pytest_peaks.termination import Termination


@dataclass
class RunState:
    """One pytest process's part in a run.

    :ivar owner: None until a test uses a browser.
    :ivar reports: what the owners of this run said when they ended; in the controller.
    :ivar swept: sessions of dead workers that the controller cleared away.
    """

    config: PeaksConfig
    run: Run
    termination: Termination
    owner: Owner | None = None
    reports: list[dict[str, Any]] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


STATE = pytest.StashKey[RunState]()
_SPEC = pytest.StashKey[SessionSpec]()
_PHASES = pytest.StashKey[dict[str, bool]]()


def of(config: pytest.Config) -> RunState:
    return config.stash[STATE]


def arguments_of(item: pytest.Item) -> dict[str, Any]:
    """The merged arguments of an item's markers, the closest first."""
    return marker.merge((found.args, found.kwargs) for found in item.iter_markers(marker.NAME))


def _with_doors(item: pytest.Item) -> dict[str, Any]:
    """The arguments of an item's markers, and the doors that its fixtures declare."""
    arguments = arguments_of(item)
    by_fixture = _doors_by_fixture(item)
    if by_fixture:
        declared = arguments.get("doors", ())
        arguments["doors"] = (*((declared,) if isinstance(declared, str) else declared), *by_fixture)
    name = _browser_of_several(item)
    if name:
        arguments.setdefault("browser", name)
    return arguments


def _browser_of_several(item: pytest.Item) -> str:
    """The browser that pytest-playwright's ``--browser`` means for a test; empty where it is the run's own."""
    if playwright_options.plugin(item.config) is None or not hasattr(item, "callspec"):
        return ""
    name = item.callspec.params.get("browser_name", "")
    own = of(item.config).config.browser
    return "" if name == own or (name == "chromium" and own.is_chromium) else str(name)


def _doors_by_fixture(item: pytest.Item) -> list[str]:
    used = getattr(item, "fixturenames", ())
    return [str(door) for door in Door if f"peaks_{door}" in used]


def is_bridged(item: pytest.Item) -> bool:
    """Whether a test's fixtures of pytest-playwright ride on its session: by its marker, or by ``--peaks-bridge``."""
    if not isinstance(item, pytest.Function) or not playwright_options.fixtures_of(item.config):
        return False
    return of(item.config).config.bridge or item.get_closest_marker(marker.NAME) is not None


def asks_for_a_session(item: pytest.Item) -> bool:
    """Whether an item's markers or fixtures say anything about its session."""
    return item.get_closest_marker(marker.NAME) is not None or bool(_doors_by_fixture(item))


def note_report(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep how a phase of a test ended, for :func:`has_passed`."""
    item.stash.setdefault(_PHASES, {})[report.when or ""] = report.passed


def has_passed(item: pytest.Item) -> bool:
    """Whether a test's body ran and passed; known when its fixtures are torn down."""
    return item.stash.get(_PHASES, {}).get("call", False)


def spec_of(item: pytest.Item) -> SessionSpec:
    """What an item's markers ask for; validated at collection.

    :raises pytest.UsageError: a marker has a wrong argument; names the test and the argument.
    """
    if _SPEC not in item.stash:
        try:
            item.stash[_SPEC] = marker.build_spec(_with_doors(item), of(item.config).config)
        except PeaksError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.{marker.NAME}: {error.message}{hint}"
            ) from None
    return item.stash[_SPEC]
