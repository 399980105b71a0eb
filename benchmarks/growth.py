"""How time, CPU and memory grow with tests and workers: `python benchmarks/growth.py`, some ten minutes.

Each pair of tests and workers runs with pytest-playwright and with this plugin, in turn; a thousand
tests run once, and not fresh. Then, for each number of workers, memory while every worker has a page
open, and the time that all processes of a run spend at the allocator's lock (in a run of its own,
since looking takes time as well). `--json FILE` keeps all values, `--write FILE` puts the tables into
their place in the page FILE.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import report
from accounting import Usage, usage_of
from harness import Scratch, scratch, seconds_of, site
from rows import megabytes
from suites import SHORT, Suites

TESTS = (10, 100, 1000)
WORKERS = (1, 2, 4, 8)
# A thousand tests take minutes: on as many workers as there are cores here, and on too many.
WORKERS_OF_MANY = (2, 8)
MANY = 1000
ROUNDS = {10: 3}
LOCK_CONFTEST = """
import contextlib, json, os, sys, time
from pathlib import Path
import filelock  # its import is not the lock's
import pytest
from pytest_peaks.session import reservations

original, waited, held = reservations.allocating, [], []

@contextlib.contextmanager
def allocating(*arguments, **named):
    asked = time.perf_counter()
    with original(*arguments, **named) as folder:
        got = time.perf_counter()
        waited.append(got - asked)
        try:
            yield folder
        finally:
            held.append(time.perf_counter() - got)

for name, module in list(sys.modules.items()):
    if name.startswith("pytest_peaks") and getattr(module, "allocating", None) is original:
        module.allocating = allocating

@pytest.hookimpl(trylast=True)
def pytest_unconfigure():
    Path("lock-%d.json" % os.getpid()).write_text(json.dumps([waited, held]))
"""


@dataclass(frozen=True)
class Cell:
    """One way to run so many tests on so many workers."""

    tests: int
    workers: int
    side: str
    usages: list[Usage]

    @property
    def seconds(self) -> float:
        return statistics.median(usage.seconds for usage in self.usages)

    @property
    def cpu(self) -> float:
        return statistics.median(usage.cpu for usage in self.usages)

    def busy(self, cores: int) -> float:
        """The share of the machine's cores that it kept busy."""
        return self.cpu / (self.seconds * cores)

    def ratio(self, base: Cell) -> float:
        pairs = zip(self.usages, base.usages, strict=True)
        return statistics.median(mine.seconds / other.seconds for mine, other in pairs)


@dataclass(frozen=True)
class Level:
    """What so many workers take: megabytes with a page open in each, and seconds at the allocator's lock."""

    workers: int
    theirs: float
    ours: float
    locks: int
    waited: float
    longest: float
    held: float
    seconds: float


SIDES = {"pytest-playwright": None, "fresh": "fresh", "recycled": "recycled"}


def cells_of(suites: Suites, tests: int, workers: int) -> list[Cell]:
    """All ways, each as often as there are rounds, in turn."""
    sides = [side for side in SIDES if tests < MANY or side != "fresh"]
    usages: dict[str, list[Usage]] = {side: [] for side in sides}
    for number in range(ROUNDS.get(tests, 1)):
        for side in sides if number % 2 else sides[::-1]:
            command, folder = suites.short(tests, workers, SIDES[side])
            usages[side].append(usage_of(command, folder, suites.scratch.env))
    print(f"{tests} tests, {workers} workers", file=sys.stderr, flush=True)
    return [Cell(tests, workers, side, found) for side, found in usages.items()]


def level_of(suites: Suites, workers: int) -> Level:
    folder = suites.scratch.folder_for(f"locks-{workers}")
    suites.file(folder, "pytest.ini", "[pytest]\n")
    suites.file(folder, "conftest.py", LOCK_CONFTEST)
    file = suites.file(folder, "test_it.py", SHORT.format(count=10, page="peaks_page", url=suites.url))
    command = [*suites.ours_command, f"-n{workers}", file]
    seconds = seconds_of(command, folder, suites.scratch.env)
    waited, held = [], []
    for path in folder.glob("lock-*.json"):
        lists = json.loads(path.read_text())
        waited += lists[0]
        held += lists[1]
    theirs, ours = (megabytes(suites, workers, ours=mine) for mine in (False, True))
    print(f"memory and locks of {workers} workers", file=sys.stderr, flush=True)
    return Level(workers, theirs, ours, len(waited), sum(waited), max(waited), sum(held), seconds)


def times_table(cells: Sequence[Cell], cores: int) -> str:
    lines = [
        "| tests | workers | pytest-playwright | fresh | recycled | CPU a test: pytest-playwright → recycled "
        "| cores busy: the same two |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for tests, workers in dict.fromkeys((cell.tests, cell.workers) for cell in cells):
        found = {cell.side: cell for cell in cells if (cell.tests, cell.workers) == (tests, workers)}
        base, recycled = found["pytest-playwright"], found["recycled"]
        ways = [
            f"{report.amount([cell.seconds], 's')} ({cell.ratio(base):.2f})" if cell else "–"  # noqa: RUF001
            for cell in (found.get("fresh"), recycled)
        ]
        lines.append(
            f"| {tests:,} | {workers} | {report.amount([base.seconds], 's')} | {ways[0]} | {ways[1]} "
            f"| {base.cpu / tests * 1000:.0f} → {recycled.cpu / tests * 1000:.0f} ms "
            f"| {base.busy(cores):.0%}, {recycled.busy(cores):.0%} |"
        )
    return "\n".join(lines)


def levels_table(levels: Sequence[Level]) -> str:
    lines = [
        "| workers | memory, pytest-playwright | memory, peaks | of that a worker | times at the lock | waited "
        "| the longest | held |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for level in levels:
        lines.append(
            f"| {level.workers} | {level.theirs:.0f} MB | {level.ours:.0f} MB "
            f"| {level.ours / level.workers:.0f} MB | {level.locks} | {level.waited * 1000:.0f} ms "
            f"| {level.longest * 1000:.0f} ms | {level.held * 1000:.0f} ms of {level.seconds:.1f} s |"
        )
    return "\n".join(lines)


def grid(tests: Sequence[int], workers: Sequence[int] | None) -> list[tuple[int, int]]:
    return [
        (count, number)
        for count in tests
        for number in workers or (WORKERS_OF_MANY if count >= MANY else WORKERS)
    ]


def growth(folder: Scratch, url: str, options: argparse.Namespace) -> tuple[list[Cell], list[Level]]:
    suites = Suites(folder, url)
    for isolation in SIDES.values():
        suites.seconds_of_short(10, 1, isolation)  # warm
    cells = [
        cell
        for tests, workers in grid(options.tests, options.workers)
        for cell in cells_of(suites, tests, workers)
    ]
    return cells, [level_of(suites, workers) for workers in options.workers or WORKERS]


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tests", type=numbers, default=TESTS, metavar="N,…")
    parser.add_argument("--workers", type=numbers, metavar="N,…")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--write", type=Path, metavar="FILE")
    options = parser.parse_args()
    with scratch() as folder, site() as url:
        machine = report.machine(folder.executable)
        cells, levels = growth(folder, url, options)
    text = "\n\n".join(
        [
            times_table(cells, machine["cores"]),
            levels_table(levels),
            f"Measured {report.machine_line(machine)}",
        ]
    )
    print(text)
    if options.json:
        content: dict[str, Any] = {"machine": machine}
        content.update(cells=[asdict(cell) for cell in cells], levels=[asdict(level) for level in levels])
        options.json.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if options.write:
        report.put(options.write, "growth table", text)


if __name__ == "__main__":
    main()
