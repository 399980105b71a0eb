"""At the end of a test: what is kept of it, and who is told."""

from __future__ import annotations

import base64
import os
import urllib.parse
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_peaks import state
from pytest_peaks.artifacts.recording import Recording

RECORDING = pytest.StashKey[Recording]()
# On the teardown's report, which goes from a worker to the controller: kinds and paths, and what went wrong.
_KEPT = "peaks_kept"
_PROBLEM = "peaks_not_kept"
_NOUNS = {"trace": "trace", "screenshot": "picture", "video": "video"}


def decide(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep what is to be kept of a test that is over, teardown included, and attach it to the report."""
    recording = item.stash.get(RECORDING, None)
    if recording is None:
        return
    del item.stash[RECORDING]
    kept: list[tuple[str, Path]] = []
    try:
        kept = recording.keep(failed=state.has_failed(item))
    except OSError as error:
        problem = f"{item.nodeid}: {error.strerror or error}"
        setattr(report, _PROBLEM, problem)
        report.sections.append(("peaks", f"artifacts could not be kept in {recording.target}: {problem}"))
    setattr(report, _KEPT, [[kind, str(path)] for kind, path in kept])
    report.user_properties += [
        (f"playwright_{kind}", _seen_from(item.config.invocation_params.dir, path)) for kind, path in kept
    ]
    _attach_to_html(item.config, report, kept)


def _seen_from(folder: Path, path: Path) -> str:
    """A path relative to `folder` if it is inside, so that it holds wherever the report is read."""
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _attach_to_html(config: pytest.Config, report: pytest.TestReport, kept: list[tuple[str, Path]]) -> None:
    """Show what is kept in pytest-html's report (4 and later), if one is written."""
    html: Any = config.pluginmanager.get_plugin("html")
    target = getattr(config.option, "htmlpath", None)
    if not kept or html is None or not target or not hasattr(html, "extras"):
        return
    # As pytest-html resolves it.
    base = (config.invocation_params.dir / Path(os.path.expandvars(target)).expanduser()).parent
    embedded = bool(config.getoption("self_contained_html", default=False))
    extras = list(getattr(report, "extras", ()))
    for kind, path in kept:
        content = _embedded(path) if embedded and kind != "trace" else _link(path, base)
        if kind == "trace":
            extras.append(html.extras.url(content, name="Trace"))
        elif kind == "screenshot":
            extras.append(html.extras.png(content, name="Screenshot"))
        else:
            extras.append(html.extras.video(content, name="Video", mime_type="video/webm", extension="webm"))
    report.extras = extras  # type: ignore[attr-defined]


def _embedded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _link(path: Path, base: Path) -> str:
    try:
        return urllib.parse.quote(Path(os.path.relpath(path, base)).as_posix())
    except ValueError:  # another drive
        return path.as_uri()


class Kept:
    """What was kept of all tests; in the process that reports the run."""

    def __init__(self, output: Path, start: Path) -> None:
        self._output = _seen_from(start, output)
        self._counts: Counter[str] = Counter()
        self._problems: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._counts.update(kind for kind, _ in getattr(report, _KEPT, ()))
        problem = getattr(report, _PROBLEM, "")
        if problem:
            self._problems.append(problem)

    def lines(self) -> list[str]:
        """What to say at the end of the run."""
        counted = [
            f"{self._counts[kind]} {noun}{'' if self._counts[kind] == 1 else 's'}"
            for kind, noun in _NOUNS.items()
            if self._counts[kind]
        ]
        kept = [f"kept {', '.join(counted)} in {self._output}"] if counted else []
        return kept + [f"not kept: {problem}" for problem in self._problems]
