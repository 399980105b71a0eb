"""The rows of the table in docs/performance.md, with what is promised of each."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import hosted
import parallel_sessions
from accounting import peak_while_held, usage_of
from harness import Row, Scratch, Side, seconds_of
from suites import Suites

PLAYWRIGHT = "pytest-playwright"
# Not in the table unless it is asked for by name.
EXTRA = {"reuse"}


def rows(scratch: Scratch, url: str, stack: contextlib.ExitStack) -> list[Row]:
    """All rows, in the order of the table.

    :param url: of the site whose pages the tests open.
    :param stack: ends what a row needs for all its rounds.
    """
    suites = Suites(scratch, url)
    return [
        *(short_tests(suites, workers) for workers in (0, 2, 4)),
        one_test(suites),
        no_browser(suites, 1, rounds=41),
        no_browser(suites, 100, rounds=21),
        sessions(scratch, suites),
        start(scratch, url),
        listing(scratch, stack),
        memory(suites),
        reuse(suites),
    ]


def short_tests(suites: Suites, workers: int) -> Row:
    def run(isolation: str | None) -> Callable[[], float]:
        return functools.partial(suites.seconds_of_short, 100, workers, isolation)

    return Row(
        f"tests-n{workers}",
        f"100 short tests, `-n {workers}`",
        Side(PLAYWRIGHT, run(None)),
        [Side("fresh", run("fresh"), 1.0), Side("recycled", run("recycled"), 0.6)],
        rounds=5,
    )


def one_test(suites: Suites) -> Row:
    return Row(
        "one-test",
        "a run of one test",
        Side(PLAYWRIGHT, functools.partial(suites.seconds_of_short, 1, 0, None)),
        [Side("fresh", functools.partial(suites.seconds_of_short, 1, 0, "fresh"), 0.8)],
        rounds=15,
    )


def no_browser(suites: Suites, count: int, rounds: int) -> Row:
    def unneeded() -> str:
        heavy = {"playwright", "psutil", "filelock", "click", "asyncio", "platformdirs"}
        found = suites.modules_of_empty() & heavy - {"psutil"}  # xdist itself looks for psutil
        if "playwright" in found:
            sys.exit("a run without a test of peaks imports playwright")
        also = f"; imported are {', '.join(sorted(found))}" if found else ""
        return f"`playwright` is imported neither by the controller nor by a worker of `-n 2`{also}"

    plural = "one test" if count == 1 else f"{count} tests"
    return Row(
        f"no-browser-{count}",
        f"{plural} without a browser",
        Side("without the plugin", functools.partial(suites.seconds_of_empty, count, plugin=False)),
        [Side("with it", functools.partial(suites.seconds_of_empty, count, plugin=True), 1.02)],
        rounds=rounds,
        facts=unneeded if count == 1 else None,
    )


def sessions(scratch: Scratch, suites: Suites) -> Row:
    theirs, ours = parallel_sessions.bare(scratch), parallel_sessions.guarded(scratch)
    return Row(
        "sessions",
        "4 sessions × {open, snapshot, close}, all at once",  # noqa: RUF001
        Side("playwright-cli", lambda: theirs.parallel(suites.url)),
        [
            Side("`peaks cli`", lambda: ours.parallel(suites.url), 0.4),
            Side("`peaks_page`, `-n 4`", lambda: parallel_sessions.pytest_run(suites, 4), 0.4),
        ],
        rounds=7,
    )


def start(scratch: Scratch, url: str) -> Row:
    return Row(
        "start",
        "an MCP server, from its start to its first tool call",
        Side("the bare server", functools.partial(hosted.seconds_to_bare, scratch, url)),
        [Side("`peaks playwright start`", functools.partial(hosted.seconds_to_started, scratch, url), 1.1)],
        rounds=9,
    )


def listing(scratch: Scratch, stack: contextlib.ExitStack) -> Row:
    @functools.cache
    def folder() -> Path:
        return stack.enter_context(hosted.project_with_records(scratch))

    python = [sys.executable, "-c", "pass"]
    return Row(
        "ls",
        f"`peaks playwright ls`, {hosted.RECORDS} records",
        Side("`python -c pass`", lambda: seconds_of(python, scratch.folder, scratch.env)),
        [Side("`ls`", lambda: hosted.seconds_of_list(scratch, folder()), 3.0)],
        rounds=21,
        facts=lambda: hosted.check_list(scratch, folder()),
    )


def memory(suites: Suites) -> Row:
    return Row(
        "memory",
        "memory at `-n 4`, a page open in each",
        Side(PLAYWRIGHT, functools.partial(megabytes, suites, 4, ours=False)),
        [Side("fresh", functools.partial(megabytes, suites, 4, ours=True), 1.0)],
        rounds=3,
        unit="MB",
    )


def megabytes(suites: Suites, count: int, *, ours: bool) -> float:
    """PSS of a run and everything that it started, while each of `count` workers has a page open."""
    command, folder = suites.held(count, ours=ours)
    return peak_while_held(lambda: usage_of(command, folder, suites.scratch.env), folder, count)


def reuse(suites: Suites) -> Row:
    command, folder = suites.short(1, 0, "fresh")
    env = suites.scratch.env
    return Row(
        "reuse",
        "a run of one test, with `--peaks-reuse`",
        Side("without", lambda: seconds_of(command, folder, env)),
        [Side("with", lambda: seconds_of([*command, "--peaks-reuse"], folder, env))],
        rounds=9,
    )
