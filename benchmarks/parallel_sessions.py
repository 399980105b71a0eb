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
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from timing import outside_of_ci, seconds_of

from pytest_peaks.doors.bundled import driver_command
from pytest_peaks.session import browsers, machine
from pytest_peaks.session.spec import BrowserSpec

NAMES = [f"probe-bench-{number}" for number in range(1, 5)]
PAGE = b"<!doctype html><title>here</title><h1>Shop</h1>" + b"<p>row <button>Go</button></p>" * 20
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_page(peaks_page, number):
    peaks_page.goto({url!r} + str(number))
    assert "button" in peaks_page.locator("body").aria_snapshot()
"""
NOTHING = """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_nothing(number): pass
"""
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
        threads = [threading.Thread(target=self.session, args=(name, url)) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - started


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        pass


def bare(folder: Path, executable: str) -> Commands:
    """The wheel's playwright-cli, in a scope of its own."""
    workspace = folder / "bare"
    (workspace / ".playwright").mkdir(parents=True)
    env = dict(os.environ)
    env.update(
        PWTEST_DAEMON_SESSION_DIR=str(folder / "d"),
        PWTEST_SOCKETS_DIR=str(folder / "s"),
        PWTEST_SERVER_REGISTRY=str(folder / "r"),
        PLAYWRIGHT_MCP_BROWSER="chromium",
        PLAYWRIGHT_MCP_EXECUTABLE_PATH=executable,
        PLAYWRIGHT_MCP_SANDBOX=str(machine.sandbox().usable).lower(),
    )
    return Commands([*driver_command(), "cli"], env, workspace)


def guarded(folder: Path, executable: str) -> Commands:
    """`peaks cli`, as the installed script."""
    project = folder / "ours"
    project.mkdir()
    script = shutil.which("peaks", path=str(Path(sys.executable).parent)) or "peaks"
    env = {**os.environ, "PLAYWRIGHT_MCP_EXECUTABLE_PATH": executable}
    return Commands([script, "cli"], env, project)


def pytest_run(folder: Path, executable: str, workers: int, file: str = "test_page.py") -> float:
    # Of plugins pytest-xdist and this one: what else is installed here would be imported in every worker.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist"]
    command += ["-p", "pytest_peaks.plugin", f"-n{workers}", f"--peaks-executable={executable}", file]
    env = outside_of_ci()
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return seconds_of(command, folder, env)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    executable = str(browsers.find(BrowserSpec()).executable)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/"
    with tempfile.TemporaryDirectory(prefix="peaks-bench-") as name:
        folder = Path(name)
        theirs, ours = bare(folder, executable), guarded(folder, executable)
        tests = folder / "tests"
        tests.mkdir()
        (tests / "test_page.py").write_text(TESTS.format(url=url))
        (tests / "test_none.py").write_text(NOTHING)
        sides: dict[str, Run] = {
            "playwright-cli, serial": lambda: theirs.serial(url),
            "playwright-cli, parallel": lambda: theirs.parallel(url),
            "peaks cli, serial": lambda: ours.serial(url),
            "peaks cli, parallel": lambda: ours.parallel(url),
            "peaks_page, -n 0": lambda: pytest_run(tests, executable, 0),
            "peaks_page, -n 4": lambda: pytest_run(tests, executable, 4),
            "no browser at all, -n 4": lambda: pytest_run(tests, executable, 4, "test_none.py"),
        }
        took: dict[str, list[float]] = {title: [] for title in sides}
        for run in sides.values():
            run()  # warm
        for number in range(rounds):
            for title in list(sides) if number % 2 else reversed(list(sides)):
                took[title].append(sides[title]())
    server.shutdown()
    print(f"4 sessions x {{open, snapshot, close}}, {rounds} rounds, {os.cpu_count()} cores, {executable}\n")
    print(f"{'':26} {'median s':>9} {'range':>13}   ratio to playwright-cli, same way")
    for title, seconds in took.items():
        way = "serial" if title.endswith(("serial", "-n 0")) else "parallel"
        ratios = [mine / other for mine, other in zip(seconds, took[f"playwright-cli, {way}"], strict=True)]
        spread = f"{min(seconds):.2f}-{max(seconds):.2f}"
        ratio = f"{statistics.median(ratios):.2f}  [{min(ratios):.2f}-{max(ratios):.2f}]"
        print(f"{title:26} {statistics.median(seconds):9.2f} {spread:>13}   {ratio}")


if __name__ == "__main__":
    main()
