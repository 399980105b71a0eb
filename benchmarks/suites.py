"""Test suites of the benchmarks, and the command lines that run them with one plugin or the other."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points
from pathlib import Path

from harness import Scratch, seconds_of

# What else is installed here would be imported on both sides, and bring every ratio nearer to 1.
OF_THE_COMPARISON = {"xdist", "xdist.looponfail", "playwright", "base_url", "peaks"}
THEIRS_CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def browser_type_launch_args():
    return dict(executable_path={executable!r}, args={args!r})
"""
SHORT = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_page({page}, number):
    {page}.goto({url!r} + str(number))
    assert {page}.title() == "here"
"""
SNAPSHOTS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_page(peaks_page, number):
    peaks_page.goto({url!r} + str(number))
    assert "button" in peaks_page.locator("body").aria_snapshot()
"""
EMPTY = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_nothing(number): pass
"""
# Every test says that its page is open, and keeps it until all have been looked at.
HELD = """
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_page({page}, number):
    {page}.goto({url!r} + str(number))
    Path("open-%d" % number).touch()
    deadline = time.monotonic() + 120
    while not Path("seen").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""
MODULES_CONFTEST = """
import json, os, sys
from pathlib import Path

def pytest_unconfigure(config):
    Path("modules-%d.json" % os.getpid()).write_text(json.dumps(sorted(sys.modules)))
"""


def _without_others() -> list[str]:
    names = {point.name for point in entry_points(group="pytest11")} - OF_THE_COMPARISON
    return [word for name in sorted(names) for word in ("-p", f"no:{name}")]


class Suites:
    """Both plugins' suites, each plugin's in a project of its own."""

    def __init__(self, scratch: Scratch, url: str) -> None:
        self.scratch = scratch
        self.url = url
        self.ours = scratch.folder_for("ours")
        self.theirs = scratch.folder_for("theirs")
        for folder in (self.ours, self.theirs):
            (folder / "pytest.ini").write_text("[pytest]\n")
        conftest = THEIRS_CONFTEST.format(executable=scratch.executable, args=scratch.launch_args)
        (self.theirs / "conftest.py").write_text(conftest)
        common = ["-q", "-p", "no:cacheprovider", *_without_others()]
        self.bare = [sys.executable, "-m", "pytest", *common, "-p", "no:playwright"]
        self.ours_command = [*self.bare, f"--peaks-executable={scratch.executable}"]
        self.theirs_command = [sys.executable, "-m", "pytest", *common, "-p", "no:peaks"]

    def file(self, folder: Path, name: str, text: str) -> str:
        (folder / name).write_text(text)
        return name

    def short(self, count: int, workers: int, isolation: str | None) -> tuple[list[str], Path]:
        """The command of `count` short tests; `isolation` None is pytest-playwright."""
        if isolation is None:
            text = SHORT.format(count=count, page="page", url=self.url)
            command, folder = self.theirs_command, self.theirs
        else:
            text = SHORT.format(count=count, page="peaks_page", url=self.url)
            command, folder = [*self.ours_command, f"--peaks-isolation={isolation}"], self.ours
        file = self.file(folder, f"test_{count}.py", text)
        return [*command, f"-n{workers}", file], folder

    def seconds_of_short(self, count: int, workers: int, isolation: str | None) -> float:
        command, folder = self.short(count, workers, isolation)
        return seconds_of(command, folder, self.scratch.env)

    def held(self, count: int, *, ours: bool) -> tuple[list[str], Path]:
        """The command of `count` tests on as many workers, each of which keeps its page open."""
        folder = self.ours if ours else self.theirs
        text = HELD.format(count=count, page="peaks_page" if ours else "page", url=self.url)
        file = self.file(folder, f"test_held_{count}.py", text)
        return [*(self.ours_command if ours else self.theirs_command), f"-n{count}", file], folder

    def seconds_of_empty(self, count: int, *, plugin: bool) -> float:
        """Tests that use no browser; with this plugin installed, or without."""
        file = self.file(self.ours, f"test_empty_{count}.py", EMPTY.format(count=count))
        command = [*self.bare, *([] if plugin else ["-p", "no:peaks"]), file]
        return seconds_of(command, self.ours, self.scratch.env)

    def modules_of_empty(self) -> set[str]:
        """All modules that a controller and its workers import for tests that use no browser."""
        folder = self.scratch.folder_for("modules")
        self.file(folder, "pytest.ini", "[pytest]\n")
        self.file(folder, "conftest.py", MODULES_CONFTEST)
        self.file(folder, "test_empty.py", EMPTY.format(count=4))
        seconds_of([*self.bare, "-n2"], folder, self.scratch.env)
        found = [set(json.loads(path.read_text())) for path in folder.glob("modules-*.json")]
        if len(found) != 3:
            sys.exit(f"{len(found)} processes said what they imported, not 3")
        return set().union(*found)
