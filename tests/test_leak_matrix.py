"""Nothing is left behind, whatever dies: every way in which a run may end, without xdist and with two workers.

"Nothing" is what `Surroundings.leftovers` looks for: processes (guardian and orphaned workers
included), ports, temp dirs, profiles, records and reservations.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from driven import PATIENCE, DrivenRun, Here, driven, kill
from leaks import PROMISED, Surroundings

from pytest_peaks.session.guardian import ORPHAN_GRACE
from pytest_peaks.session.identity import ProcessIdentity

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")

NOTHING_LEFT = "nothing left behind"
WORKERS = {"n0": ("master",), "n2": ("gw0", "gw1")}


def number_of(workers: str) -> str:
    return workers.removeprefix("n")


def cell(*values: object, name: str, slow: bool = False) -> object:
    return pytest.param(*values, id=name, marks=[pytest.mark.slow] if slow else [])


# --- Runs that end by themselves, or by what a test does.


@dataclass(frozen=True)
class Ending:
    """A module of tests and what pytest makes of it.

    :ivar status: pytest's exit status, without xdist and with it.
    :ivar outcomes: counts, without xdist and with it; None where pytest dies on the spot.
    :ivar says: what the output holds.
    """

    module: str
    status: tuple[int, int]
    outcomes: tuple[dict[str, int] | None, dict[str, int] | None]
    arguments: tuple[str, ...] = ()
    says: tuple[str, ...] = ()


PASSING_FOUR = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_passes(here, number):
        here()
"""

FAILING_HALF = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_fails_when_odd(here, number):
        assert number % 2 == 0
"""

FIRST_FAILS = """
    import pytest

    @pytest.mark.parametrize("number", range(6))
    def test_first_fails(here, number):
        assert number > 0
"""

INTERRUPTING = """
    import pytest

    @pytest.mark.parametrize("number", range(4))
    def test_is_interrupted(here, number):
        if number == 0:
            raise KeyboardInterrupt
"""

EXITING = """
    import os, pytest

    @pytest.mark.parametrize("number", range(4))
    def test_exits(here, number):
        if number == 1:
            os._exit(7)
"""

# One worker runs all tests of this file (--dist loadfile), so that "the next test" means something.
KILLING = """
    import os, signal, psutil
    from conftest import driver, write

    def test_before(peaks_session, peaks_page):
        write("first-browser", pid=peaks_session.pid)

    def test_victim(peaks_session, peaks_page):
        os.kill({victim}, signal.SIGKILL)
        peaks_page.set_content("<h1>too late</h1>")

    def test_next(peaks_session, peaks_page):
        peaks_page.set_content("<h1>hello</h1>")
        assert peaks_page.text_content("h1") == "hello"
        write("next-browser", pid=peaks_session.pid)
"""

STOPPING = """
    import os, signal
    from conftest import write

    def test_before(peaks_session, peaks_page):
        write("first-browser", pid=peaks_session.pid)

    def test_stops_its_browser(peaks_session, peaks_page):
        os.kill(peaks_session.pid, signal.SIGSTOP)

    def test_next(peaks_session, peaks_page):
        peaks_page.set_content("<h1>hello</h1>")
        assert peaks_page.text_content("h1") == "hello"
        write("next-browser", pid=peaks_session.pid)
        os.kill(peaks_session.pid, signal.SIGSTOP)
"""

IN_ONE_WORKER = ("--dist", "loadfile")
ENDINGS = {
    "green": Ending(PASSING_FOUR, (0, 0), ({"passed": 4}, {"passed": 4}), says=(NOTHING_LEFT,)),
    "failing": Ending(
        FAILING_HALF,
        (1, 1),
        ({"passed": 2, "failed": 2}, {"passed": 2, "failed": 2}),
        says=(NOTHING_LEFT,),
    ),
    "exitfirst": Ending(FIRST_FAILS, (1, 2), ({"failed": 1}, None), ("-x",), says=(NOTHING_LEFT,)),
    "interrupt-in-test": Ending(INTERRUPTING, (2, 2), (None, None), says=(NOTHING_LEFT,)),
    "exit-in-test": Ending(EXITING, (7, 1), (None, {"passed": 3, "failed": 1})),
    "sigkill-driver": Ending(
        KILLING.format(victim="driver().pid"),
        (1, 1),
        ({"passed": 2, "failed": 1}, {"passed": 2, "failed": 1}),
        IN_ONE_WORKER,
        says=("FAILED test_", "::test_victim", NOTHING_LEFT),
    ),
    "sigkill-chromium": Ending(
        KILLING.format(victim="peaks_session.pid"),
        (1, 1),
        ({"passed": 2, "failed": 1}, {"passed": 2, "failed": 1}),
        IN_ONE_WORKER,
        says=("BROWSER_LOST: the browser of session", "::test_victim", NOTHING_LEFT),
    ),
    "sigstop-chromium": Ending(
        STOPPING, (0, 0), ({"passed": 3}, {"passed": 3}), IN_ONE_WORKER, says=(NOTHING_LEFT,)
    ),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    [cell(name, workers, name=f"{name}-{workers}") for name in ENDINGS for workers in WORKERS],
)
def test_nothing_is_left_of_a_run_that_ends_by_itself(
    project: pytest.Pytester, surroundings: Surroundings, name: str, workers: str
) -> None:
    ending = ENDINGS[name]
    which = list(WORKERS).index(workers)
    project.makepyfile(ending.module)
    with driven(project, "-n", number_of(workers), *ending.arguments) as run:
        status = run.end()
        surroundings.assert_clean(project.path)
        assert status == ending.status[which], run.output
        expected = ending.outcomes[which]
        if expected is not None:
            assert run.outcomes() == expected, run.output
        for text in ending.says:
            assert text in run.output, run.output
        assert "left behind, to be removed" not in run.output


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", ["sigkill-driver", "sigkill-chromium", "sigstop-chromium"])
def test_only_a_lost_browser_is_replaced(
    project: pytest.Pytester, name: str, workers: str
) -> None:
    project.makepyfile(ENDINGS[name].module)
    with driven(project, "-n", number_of(workers), *IN_ONE_WORKER) as run:
        run.end()
        first, following = (
            json.loads((run.seen / file).read_text())["pid"] for file in ("first-browser", "next-browser")
        )
    assert (first == following) == (name == "sigkill-driver")


# --- Signals from outside, while a test hangs in every worker with an open page.

HANGING = """
    import time, pytest

    @pytest.mark.parametrize("number", range({tests}))
    def test_hangs(here, peaks_page, number):
        here()
        {hang}
"""
IN_SLEEP = "time.sleep(60)"
IN_PLAYWRIGHT = "peaks_page.wait_for_timeout(60_000)"
# As good as native code that never yields: nothing that Python can do ends this test.
DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN); [time.sleep(0.1) for _ in range(600)]"
SLOW_TO_END = """
        try:
            time.sleep(60)
        finally:
            write(f"ending-{worker_id}")
            time.sleep(60)
"""


def hanging(project: pytest.Pytester, workers: str, hang: str = IN_SLEEP) -> None:
    """One hanging test for each worker."""
    project.makepyfile(HANGING.format(tests=len(WORKERS[workers]), hang=hang))


@dataclass(frozen=True)
class Blow:
    """A signal, whom it hits, and the status that the shell sees."""

    number: signal.Signals
    group: bool
    status: int

    def strike(self, run: DrivenRun) -> None:
        if self.group:
            run.send_to_group(self.number)
        else:
            run.send(self.number)


BLOWS = {
    "sigint-controller": Blow(signal.SIGINT, False, 2),
    "sigterm-controller": Blow(signal.SIGTERM, False, 128 + signal.SIGTERM),
    "sighup-controller": Blow(signal.SIGHUP, False, 128 + signal.SIGHUP),
    "sigkill-controller": Blow(signal.SIGKILL, False, -signal.SIGKILL),
    "sigint-group": Blow(signal.SIGINT, True, 2),
    "sigterm-group": Blow(signal.SIGTERM, True, 128 + signal.SIGTERM),
    "sighup-group": Blow(signal.SIGHUP, True, 128 + signal.SIGHUP),
    "sigkill-group": Blow(signal.SIGKILL, True, -signal.SIGKILL),
}


@pytest.mark.parametrize(
    ("name", "workers", "hang"),
    [
        *(cell(name, workers, IN_SLEEP, name=f"{name}-{workers}") for name in BLOWS for workers in WORKERS),
        *(
            cell(name, workers, IN_PLAYWRIGHT, name=f"{name}-in-playwright-{workers}")
            for name in BLOWS
            for workers in WORKERS
        ),
    ],
)
def test_nothing_is_left_of_a_run_that_a_signal_ends(
    project: pytest.Pytester, surroundings: Surroundings, name: str, workers: str, hang: str
) -> None:
    blow = BLOWS[name]
    hanging(project, workers, hang)
    with driven(project, "-n", number_of(workers)) as run:
        run.here(*WORKERS[workers])
        blow.strike(run)
        status = run.end()
        # Ctrl-C lets tests end in order, for as long as xdist waits for them; what kills, kills at once.
        surroundings.assert_clean(
            project.path, within=PROMISED if blow.number == signal.SIGINT else run.rest_of(PROMISED)
        )
        assert status == blow.status, run.output
        if blow.number != signal.SIGKILL:
            assert NOTHING_LEFT in run.output, run.output
            assert "left behind, to be removed" not in run.output
