"""What the plugin keeps on pytest's config and items; there are no module globals."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import playwright_options
from pytest_peaks.marker_name import NAME

if TYPE_CHECKING:
    from pytest_peaks.artifacts.reporting import Kept
    from pytest_peaks.config import PeaksConfig
    from pytest_peaks.owner import Owner
    from pytest_peaks.session.spec import Run, SessionSpec
    from pytest_peaks.termination import Termination

# The fixtures that declare a door by their name, with it.
_DOORS = {"peaks_mcp": "mcp", "peaks_cli": "cli"}


class RunState:
    """One pytest process's part in a run. What a run without browser tests has no use for is made when asked for.

    :ivar owner: None until a test uses a browser, or is soon to use one.
    :ivar reports: what the owners of this run said when they ended; in the controller.
    :ivar swept: sessions of dead workers that the controller cleared away.
    :ivar kept: what was kept of the tests; None where nothing is recorded.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._pytest = config
        self.owner: Owner | None = None
        self.reports: list[dict[str, Any]] = []
        self.swept: list[str] = []
        self.left: list[str] = []
        self.kept: Kept | None = None

    @functools.cached_property
    def config(self) -> PeaksConfig:
        """The settings.

        :raises PeaksError: one can't be used.
        """
        from pytest_peaks.config import read

        return read(self._pytest)

    @functools.cached_property
    def run(self) -> Run:
        """The run, and this process's place in it."""
        from pytest_peaks.workers import run_of

        return run_of(self._pytest)

    @functools.cached_property
    def termination(self) -> Termination:
        """What happens on SIGTERM and SIGHUP."""
        from pytest_peaks import workers
        from pytest_peaks.termination import Termination

        config = self._pytest
        return Termination(lambda: workers.in_use(config), lambda number: workers.pass_on(config, number))

    @property
    def exit_status(self) -> int | None:
        """What the shell expects of a run that a signal ended; None where none did."""
        return self.termination.exit_status if "termination" in vars(self) else None

    def uninstall(self) -> None:
        """Leave signals to whoever had them."""
        if "termination" in vars(self):
            self.termination.uninstall()


STATE = pytest.StashKey[RunState]()
_SPEC: pytest.StashKey[SessionSpec] = pytest.StashKey()
_PHASES = pytest.StashKey[dict[str, str]]()


def of(config: pytest.Config) -> RunState:
    return config.stash[STATE]


def arguments_of(item: pytest.Item) -> dict[str, Any]:
    """The merged arguments of an item's markers, the closest first."""
    from pytest_peaks import marker

    return marker.merge((found.args, found.kwargs) for found in item.iter_markers(NAME))


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
    return [door for name, door in _DOORS.items() if name in used]


def is_bridged(item: pytest.Item) -> bool:
    """Whether a test's fixtures of pytest-playwright ride on its session: by its marker, or by ``--peaks-bridge``."""
    if not isinstance(item, pytest.Function) or not playwright_options.fixtures_of(item.config):
        return False
    return of(item.config).config.bridge or item.get_closest_marker(NAME) is not None


def asks_for_a_session(item: pytest.Item) -> bool:
    """Whether an item's markers or fixtures say anything about its session."""
    return item.get_closest_marker(NAME) is not None or bool(_doors_by_fixture(item))


def note_report(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep how a phase of a test ended, for the functions below."""
    if report.when == "setup" or _PHASES not in item.stash:
        item.stash[_PHASES] = {}  # also of a test that runs once more
    phases, when = item.stash[_PHASES], report.when or ""
    if phases.get(when) != "failed":  # subtests have reports of their own, before that of their test
        phases[when] = report.outcome


def has_passed(item: pytest.Item) -> bool:
    """Whether a test's body ran and passed; known when its fixtures are torn down."""
    return item.stash.get(_PHASES, {}).get("call") == "passed"


def has_failed(item: pytest.Item) -> bool:
    """Whether a phase of a test that is over has failed."""
    return "failed" in item.stash.get(_PHASES, {}).values()


def is_cut_off(item: pytest.Item) -> bool:
    """Whether a test's body was left without a report, as by Ctrl-C; known when its fixtures are torn down."""
    phases = item.stash.get(_PHASES, {})
    return phases.get("setup") == "passed" and "call" not in phases


def spec_of(item: pytest.Item) -> SessionSpec:
    """What an item's markers ask for; validated at collection.

    :raises pytest.UsageError: a marker has a wrong argument; names the test and the argument.
    """
    if _SPEC not in item.stash:
        from pytest_peaks import marker
        from pytest_peaks.errors import PeaksError

        try:
            item.stash[_SPEC] = marker.build_spec(_with_doors(item), of(item.config).config)
        except PeaksError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.{NAME}: {error.message}{hint}") from None
    return item.stash[_SPEC]
