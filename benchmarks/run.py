"""Speed beside what people use today, as ratios paired in one run: `python benchmarks/run.py [rounds]`.

Every round runs both sides one after the other, in changing order, on the same machine, the same
browser and the same tests; a figure is the median of the rounds' ratios, below 1 where peaks is
quicker. Absolute times are printed for orientation only.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import outside_of_ci, seconds_of

from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec

THEIRS = """
import pytest

@pytest.fixture(scope="session")
def browser_type_launch_args():
    return dict(executable_path={executable!r}, args=["--no-sandbox"])
"""
TESTS = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_page({page}, number):
    {page}.goto("data:text/html,<title>here</title><button>Go</button>")
    assert {page}.title() == "here"
"""
ONLY_THEIRS = ["-p", "no:peaks"]
ONLY_OURS = ["-p", "no:playwright"]


def run(folder: Path, *arguments: str) -> float:
    """Seconds of one pytest run in `folder`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return seconds_of(command, folder, outside_of_ci())


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    executable = str(browsers.find(BrowserSpec()).executable)
    with tempfile.TemporaryDirectory(prefix="peaks-bench-") as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(THEIRS.format(executable=executable))
        for count in (1, 40):
            (folder / f"test_theirs_{count}.py").write_text(TESTS.format(count=count, page="page"))
            (folder / f"test_ours_{count}.py").write_text(TESTS.format(count=count, page="peaks_page"))
        (folder / "test_none.py").write_text("def test_nothing(): pass\n")
        ours, theirs = [*ONLY_OURS, f"--peaks-executable={executable}"], ONLY_THEIRS
        pairs = {
            "1 test / pytest-playwright": ([*ours, "test_ours_1.py"], [*theirs, "test_theirs_1.py"]),
            "40 tests / pytest-playwright": ([*ours, "test_ours_40.py"], [*theirs, "test_theirs_40.py"]),
            "40 tests, -n 2 / pytest-playwright": (
                [*ours, "-n2", "test_ours_40.py"],
                [*theirs, "-n2", "test_theirs_40.py"],
            ),
            "1 test, --peaks-reuse / without": (
                [*ours, "--peaks-reuse", "test_ours_1.py"],
                [*ours, "test_ours_1.py"],
            ),
            "no browser test / without the plugin": (
                [*ours[:2], "test_none.py"],
                [*ours[:2], *ONLY_THEIRS, "test_none.py"],
            ),
        }
        try:
            for title, (mine, other) in pairs.items():
                ratios, seconds = [], []
                run(folder, *mine)
                run(folder, *other)  # both warm
                for number in range(rounds):
                    first, second = (mine, other) if number % 2 else (other, mine)
                    took = {id(first): run(folder, *first), id(second): run(folder, *second)}
                    ratios.append(took[id(mine)] / took[id(other)])
                    seconds.append(took[id(mine)])
                spread = f"{min(ratios):.2f}-{max(ratios):.2f}"
                print(
                    f"{title:40} {statistics.median(ratios):.2f}  [{spread}]  ({min(seconds):.2f} s)",
                    flush=True,
                )
        finally:
            peaks = [sys.executable, "-c", "from pytest_peaks.cli import main; main()"]
            subprocess.run(
                [*peaks, "playwright", "stop", "--all"], cwd=folder, check=False, capture_output=True
            )


if __name__ == "__main__":
    main()
