"""Paired runs: what every benchmark here shares.

In every round each side runs once, in changing order, on the same machine, with the same browser and
after a run of each to warm up. A figure is the median of the rounds' ratios, since absolute times
depend on the machine and on what else it does. Everything happens in a scratch folder with a runtime
dir, a cache and a temp dir of its own, which goes at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pytest_peaks.session import browsers, machine
from pytest_peaks.session.spec import BrowserSpec

PAGE = b"<!doctype html><title>here</title><h1>Shop</h1>" + b"<p>row <button>Go</button></p>" * 20
# What would have one side of a pair do something else than the other.
OTHERS_SETTINGS = (
    *("PEAKS_", "PLAYWRIGHT_MCP_", "PLAYWRIGHT_CLI_", "PYTEST_", "PWTEST_", "PWDEBUG"),
    "PYTHONDONTWRITEBYTECODE",  # with which this package alone would be compiled at each start
)


def clean_environment() -> dict[str, str]:
    """The environment without settings of the developer's, and without what has `--peaks-reuse` ignored."""
    return {
        key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(OTHERS_SETTINGS)
    }


def seconds_of(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> float:
    """Seconds of one run of `command` in `folder`; ends the benchmark if it fails."""
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return took


@dataclass(frozen=True)
class Side:
    """One way to do it.

    :ivar target: what its ratio to the row's base may be at most.
    """

    title: str
    run: Callable[[], float]
    target: float | None = None


@dataclass(frozen=True)
class Row:
    """Sides that are measured against a base.

    :ivar facts: looks at something that is either so or not, once, and says it in a sentence.
    """

    name: str
    title: str
    base: Side
    sides: Sequence[Side]
    rounds: int
    unit: str = "s"
    facts: Callable[[], str] | None = None


@dataclass(frozen=True)
class Figure:
    """What came out for one side."""

    title: str
    values: list[float]
    ratios: list[float]
    target: float | None

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.ratio <= self.target

    @property
    def spread(self) -> str:
        return f"{min(self.ratios):.2f}–{max(self.ratios):.2f}"  # noqa: RUF001 - a range

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


@dataclass(frozen=True)
class Outcome:
    """A measured row."""

    name: str
    title: str
    unit: str
    base: str
    base_values: list[float]
    figures: list[Figure]
    fact: str = ""
    rounds: int = field(default=0)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "figures": [figure.to_json() for figure in self.figures]}


def measure(row: Row, rounds: int | None = None) -> Outcome:
    """Run all sides of a row, each round in another order."""
    sides = [row.base, *row.sides]
    values: dict[str, list[float]] = {side.title: [] for side in sides}
    for side in sides:
        side.run()  # warm
    rounds = rounds or row.rounds
    for number in range(rounds):
        turned = sides if number % 2 else sides[::-1]
        for side in turned:
            values[side.title].append(side.run())
        print(".", end="", file=sys.stderr, flush=True)
    base = values[row.base.title]
    figures = [
        Figure(
            side.title,
            values[side.title],
            [mine / other for mine, other in zip(values[side.title], base, strict=True)],
            side.target,
        )
        for side in row.sides
    ]
    fact = row.facts() if row.facts is not None else ""
    told = ", ".join(f"{figure.title} {figure.ratio:.2f} [{figure.spread}]" for figure in figures)
    print(f" {row.name}: {told}", file=sys.stderr, flush=True)
    return Outcome(row.name, row.title, row.unit, row.base.title, base, figures, fact, rounds)


class _Site(BaseHTTPRequestHandler):
    answers: Mapping[str, tuple[str, bytes]] = {}

    def do_GET(self) -> None:
        kind, body = self.answers.get(self.path, ("text/html", PAGE))
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # a client that only knocks


@contextlib.contextmanager
def site(answers: Mapping[str, tuple[str, bytes]] | None = None) -> Iterator[str]:
    """A web site on loopback with one small page at every address.

    :param answers: other content by path: its type and its bytes.
    """
    handler = type("_Answers", (_Site,), {"answers": answers or {}})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Scratch:
    """The folder that everything happens in, and the environment that keeps it there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executable = str(browsers.find(BrowserSpec()).executable)
        self.sandbox = machine.sandbox().usable
        self.peaks = shutil.which("peaks", path=str(Path(sys.executable).parent)) or "peaks"
        self.temp = self.folder_for("t")
        self.env = clean_environment()
        self.env.update(
            TMPDIR=str(self.temp),
            XDG_CACHE_HOME=str(self.folder_for("cache")),
            PEAKS_RUNTIME_DIR=str(folder / "runtime"),
        )

    @property
    def launch_args(self) -> list[str]:
        """What a browser that somebody else launches needs here."""
        return [] if self.sandbox else ["--no-sandbox"]

    def folder_for(self, name: str) -> Path:
        """A project of its own."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def end_sessions(self) -> None:
        """End the sessions of all projects here."""
        for base in self.folder.glob("*/.peaks"):
            for command in (["cli", "close-all"], ["playwright", "stop", "--all"]):
                subprocess.run(
                    [self.peaks, *command], cwd=base.parent, env=self.env, capture_output=True, check=False
                )

    def leftovers(self) -> list[str]:
        """What the runs left in their temp dir, but for pytest's folder and Playwright's of sockets."""
        return sorted(
            path.name for path in self.temp.iterdir() if not path.name.startswith(("pytest-of-", "pw-"))
        )


@contextlib.contextmanager
def scratch() -> Iterator[Scratch]:
    """A scratch folder; at the end the sessions in its projects are ended, what is left named, and all removed."""
    with tempfile.TemporaryDirectory(prefix="pkb-", ignore_cleanup_errors=True) as name:
        made = Scratch(Path(name))
        try:
            yield made
        finally:
            made.end_sessions()
            left = made.leftovers()
            if left:
                print(f"left in the temp dir: {', '.join(left)}", file=sys.stderr)
