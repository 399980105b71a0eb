"""isolation="recycled": what a test leaves, the next one does not see, whether its context is used again or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import statesite

SUITE = Path(__file__).parent

# Each row is two tests: one leaves the state, the next one looks for it.
CONFORMANCE = """
import json, os, pathlib, time
import pytest
from recycled_states import STATES

CHOSEN = os.environ.get("STATES")
BY_NAME = {state.name: state for state in STATES}
ROWS = [BY_NAME[name] for name in json.loads(CHOSEN)] if CHOSEN else STATES
LAST = []

@pytest.mark.parametrize(
    "number, state, step",
    [
        pytest.param(number, state, step, id=f"{number} {state.name} {step}")
        for number, state in enumerate(ROWS)
        for step in ("dirty", "check")
    ],
)
def test_row(request, number, state, step):
    if step == "check":
        time.sleep(state.wait)
    page = request.getfixturevalue("peaks_page")
    request.getfixturevalue("peaks_session").isolation == os.environ["ISOLATION"]
    if step == "check":
        note(state.name, "again", page is LAST[0])
        try:
            state.check(page)
        except BaseException as error:
            note(state.name, "leak", str(error)[:300])
        finally:
            page.clock  # the next row gets a new context
    else:
        LAST[:] = [page]
        state.dirty(page)

NOTES = {}
def note(name, what, value):
    NOTES.setdefault(name, {})[what] = value
    pathlib.Path("notes.json").write_text(json.dumps(NOTES))
"""

# Nothing is reset after the first test of a row, and nothing is looked at.
CONTROL = """
import os
from pytest_peaks.recycling import slots

slots.reset = lambda slot, guard, _: None if "dirty]" in os.environ["PYTEST_CURRENT_TEST"] else "the row is over"
slots.is_blank = lambda slot: True
"""


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The site, and the table of states for the project."""
    monkeypatch.syspath_prepend(SUITE)
    monkeypatch.setenv("PYTHONPATH", str(SUITE))
    with statesite.serve() as port:
        monkeypatch.setenv("STATES_PORT", str(port))
        yield


def run_rows(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, isolation: str, names: list[str] | None = None
) -> dict[str, dict[str, object]]:
    if names is not None:
        monkeypatch.setenv("STATES", json.dumps(names))
    monkeypatch.setenv("ISOLATION", isolation)
    project.makepyfile(test_rows=CONFORMANCE)
    result = project.runpytest_subprocess(
        "-p", "no:xdist", f"--peaks-isolation={isolation}", "-W", "default", timeout=240
    )
    result.assert_outcomes(passed=result.parseoutcomes()["passed"])
    noted: dict[str, dict[str, object]] = json.loads((project.path / "notes.json").read_text())
    return noted
