"""Four sessions, each opened, looked at and closed: one after the other and all at once.

`python benchmarks/parallel_sessions.py [rounds]` runs the experiment of the protocol document that
named sessions come from, for the wheel's playwright-cli itself, for `peaks cli`, and for four tests
with `peaks_page` under `-n 4`. All have the same browser binary, and all of a side's start-up is in
its time: node for each call of playwright-cli, Python for each call of `peaks cli`, pytest, its
workers and the plugin for `peaks_page`. Within a round every side runs once, in changing order; a
ratio is the median of the rounds' ratios. "No browser at all" is four empty tests: what pytest and its
workers take alone.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness import Scratch, scratch, seconds_of, site
from suites import EMPTY, SNAPSHOTS, Suites

from pytest_peaks.doors.bundled import driver_command

NAMES = [f"probe-bench-{number}" for number in range(1, 5)]
Run = Callable[[], float]


@dataclass(frozen=True)
class Commands:
    """A command line tool with named sessions."""

    head: Sequence[str]
    env: Mapping[str, str]
    folder: Path

    def session(self, name: str, url: str) -> None:
        for words in (["open", url], ["snapshot"], ["close"]):
            command = [*self.head, f"-s={name}", *words]
            seconds_of(command, self.folder, self.env)

    def serial(self, url: str) -> float:
        started = time.perf_counter()
        for name in NAMES:
            self.session(name, url)
        return time.perf_counter() - started

    def parallel(self, url: str) -> float:
        started = time.perf_counter()
        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(lambda name: self.session(name, url), NAMES))  # raises what a session raised
        return time.perf_counter() - started


def bare(scratch: Scratch) -> Commands:
    """The wheel's playwright-cli, in a scope of its own."""
    folder = scratch.folder_for("bare-cli")
    workspace = folder / "project"
    (workspace / ".playwright").mkdir(parents=True, exist_ok=True)
    env = {
        **scratch.env,
        "PWTEST_DAEMON_SESSION_DIR": str(folder / "d"),
        "PWTEST_SOCKETS_DIR": str(folder / "s"),
        "PWTEST_SERVER_REGISTRY": str(folder / "r"),
        "PLAYWRIGHT_MCP_BROWSER": "chromium",
        "PLAYWRIGHT_MCP_EXECUTABLE_PATH": scratch.executable,
        "PLAYWRIGHT_MCP_SANDBOX": str(scratch.sandbox).lower(),
    }
    return Commands([*driver_command(), "cli"], env, workspace)


def guarded(scratch: Scratch) -> Commands:
    """`peaks cli`, as the installed script."""
    env = {**scratch.env, "PLAYWRIGHT_MCP_EXECUTABLE_PATH": scratch.executable}
    return Commands([scratch.peaks, "cli"], env, scratch.folder_for("ours-cli"))


def pytest_run(suites: Suites, workers: int, *, browser: bool = True) -> float:
    """Seconds of four tests that open a page and look at it; without a browser they do nothing."""
    text = SNAPSHOTS.format(url=suites.url) if browser else EMPTY.format(count=4)
    file = suites.file(suites.ours, f"test_sessions_{browser}.py".lower(), text)
    return seconds_of([*suites.ours_command, f"-n{workers}", file], suites.ours, suites.scratch.env)


def main(rounds: int | None = None) -> None:
    rounds = rounds or (int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    with scratch() as folder, site() as url:
        theirs, ours, suites = bare(folder), guarded(folder), Suites(folder, url)
        sides: dict[str, Run] = {
            "playwright-cli, serial": lambda: theirs.serial(url),
            "playwright-cli, parallel": lambda: theirs.parallel(url),
            "peaks cli, serial": lambda: ours.serial(url),
            "peaks cli, parallel": lambda: ours.parallel(url),
            "peaks_page, -n 0": lambda: pytest_run(suites, 0),
            "peaks_page, -n 4": lambda: pytest_run(suites, 4),
            "no browser at all, -n 4": lambda: pytest_run(suites, 4, browser=False),
        }
        took: dict[str, list[float]] = {title: [] for title in sides}
        for run in sides.values():
            run()  # warm
        for number in range(rounds):
            for title in list(sides) if number % 2 else reversed(list(sides)):
                took[title].append(sides[title]())
    print(f"4 sessions x {{open, snapshot, close}}, {rounds} rounds, {os.cpu_count()} cores\n")
    print(f"{'':26} {'median s':>9} {'range':>13}   ratio to playwright-cli, same way")
    for title, seconds in took.items():
        way = "serial" if title.endswith(("serial", "-n 0")) else "parallel"
        ratios = [mine / other for mine, other in zip(seconds, took[f"playwright-cli, {way}"], strict=True)]
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        ratio = f"{statistics.median(ratios):.2f}  [{min(ratios):.2f}-{max(ratios):.2f}]"
        print(f"{title:26} {statistics.median(seconds):9.2f} {spread:>13}   {ratio}")


if __name__ == "__main__":
    main()
