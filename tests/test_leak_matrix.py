"""Nothing is left behind, whatever dies: every way in which a run may end, without xdist and with two workers.

"Nothing" is what `Surroundings.leftovers` looks for: processes (guardian and orphaned workers
included), ports, temp dirs, profiles, records and reservations.
"""

from __future__ import annotations

import json
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import dedent

import pytest
from driven import PATIENCE, DrivenRun, Here, driven, kill
from leaks import PROMISED, Surroundings

from pytest_peaks.session.guardian import ORPHAN_GRACE
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.termination import SAME_REQUEST

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")

NOTHING_LEFT = "nothing left behind"
WORKERS = {"n0": ("master",), "n2": ("gw0", "gw1")}


def number_of(workers: str) -> str:
    return workers.removeprefix("n")


# Cells that take long and show little beyond what their neighbours do.
SLOW = {
    "sigstop-chromium-n2",
    "sigint-controller-n2",
    "sigint-controller-in-playwright-n2",
    "sighup-controller-in-playwright-n2",
    "sighup-group-in-playwright-n2",
    "sigterm-group-in-playwright-n2",
    "sigkill-group-in-playwright-n2",
}
# With a door, a server or a daemon more in every worker: the ways in which no code of ours runs in the worker.
FAST_WITH_A_DOOR = {
    "exit-in-test-n2-cli",
    "sigkill-chromium-n0-cli",
    "sigkill-controller-n2-cli",
    "exit-in-test-n2-mcp",
    "sigkill-chromium-n0-mcp",
    "sigkill-controller-n2-mcp",
}


def cell(*values: object, name: str) -> object:
    slow = name in SLOW or (name.endswith(("-mcp", "-cli")) and name not in FAST_WITH_A_DOOR)
    return pytest.param(*values, id=name, marks=[pytest.mark.slow] if slow else [])


def with_doors(module: str, door: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module whose tests declare a door, and use it."""
    if not door:
        return module
    monkeypatch.setenv("DRIVEN_DOORS", door)
    mark = f"import pytest as _pytest; pytestmark = _pytest.mark.peaks_session(doors=({door!r},))"
    return f"{mark}\n{dedent(module)}"


# --- Runs that end by themselves, or by what a test does.


@dataclass(frozen=True)
class Ending:
    """A module of tests and what pytest makes of it.

    :ivar status: pytest's exit status, without xdist and with it.
    :ivar outcomes: counts, without xdist and with it; None where pytest dies on the spot.
    :ivar says: what the output holds.
    :ivar new_browser: whether the last test has another browser than the first; None where no test tells.
    """

    module: str
    status: tuple[int, int]
    outcomes: tuple[dict[str, int] | None, dict[str, int] | None]
    arguments: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    new_browser: bool | None = None


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
    from conftest import driver, use_doors, write

    def test_before(peaks_session, peaks_page):
        use_doors(peaks_session)
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
    from conftest import use_doors, write

    def test_before(peaks_session, peaks_page):
        use_doors(peaks_session)
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
        says=("DRIVER_FAILED: Playwright's driver died during this test", NOTHING_LEFT),
        new_browser=False,
    ),
    "sigkill-chromium": Ending(
        KILLING.format(victim="peaks_session.pid"),
        (1, 1),
        ({"passed": 2, "failed": 1}, {"passed": 2, "failed": 1}),
        IN_ONE_WORKER,
        says=("BROWSER_LOST: the browser of session", "::test_victim", NOTHING_LEFT),
        new_browser=True,
    ),
    "sigstop-chromium": Ending(
        STOPPING,
        (0, 0),
        ({"passed": 3}, {"passed": 3}),
        IN_ONE_WORKER,
        says=(NOTHING_LEFT,),
        new_browser=True,
    ),
}


@pytest.mark.parametrize(
    ("name", "workers", "door"),
    [
        cell(name, workers, door, name="-".join(filter(None, (name, workers, door))))
        for door in ("", "mcp", "cli")
        for name in ENDINGS
        for workers in WORKERS
    ],
)
def test_nothing_is_left_of_a_run_that_ends_by_itself(
    project: pytest.Pytester,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    workers: str,
    door: str,
) -> None:
    ending = ENDINGS[name]
    which = list(WORKERS).index(workers)
    project.makepyfile(with_doors(ending.module, door, monkeypatch))
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
        if ending.new_browser is not None:
            first, following = (
                json.loads((run.seen / name).read_text())["pid"] for name in ("first-browser", "next-browser")
            )
            # A default context that could not be wiped without its driver is not used again.
            assert (first != following) == (ending.new_browser or bool(door))
            assert ending.new_browser or "BROWSER_LOST" not in run.output


# --- Signals from outside, while a test hangs in every worker with an open page.

HANGING = """
    import os, signal, time, pytest
    from conftest import SEEN, wait_for, write

    @pytest.mark.parametrize("number", range({tests}))
    def test_hangs(here, peaks_page, worker_id, number):
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
SIGNALLED_AGAIN = """
        try:
            time.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            if worker_id != "master":
                os.kill(os.getppid(), signal.SIGTERM)
"""
UNTIL_TOLD = 'wait_for(SEEN / "go")'


def hanging(
    project: pytest.Pytester,
    workers: str,
    hang: str = IN_SLEEP,
    change: Callable[[str], str] = lambda module: module,
) -> None:
    """One hanging test for each worker."""
    project.makepyfile(change(HANGING.format(tests=len(WORKERS[workers]), hang=hang)))


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
    ("name", "workers", "hang", "door"),
    [
        cell(name, workers, hang, door, name="-".join(filter(None, (name, where, workers, door))))
        for hang, where, door in (
            (IN_SLEEP, "", ""),
            (IN_PLAYWRIGHT, "in-playwright", ""),
            (IN_SLEEP, "", "mcp"),
            (IN_SLEEP, "", "cli"),
        )
        for name in BLOWS
        for workers in WORKERS
    ],
)
def test_nothing_is_left_of_a_run_that_a_signal_ends(
    project: pytest.Pytester,
    surroundings: Surroundings,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    workers: str,
    hang: str,
    door: str,
) -> None:
    blow = BLOWS[name]
    hanging(project, workers, hang, lambda module: with_doors(module, door, monkeypatch))
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


@pytest.mark.parametrize("workers", WORKERS)
def test_sigterm_that_comes_twice_for_one_request_still_ends_the_run_in_order(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    """As from `timeout`, which signals its child and then the child's group."""
    hanging(project, workers, SIGNALLED_AGAIN)
    with driven(project, "-n", number_of(workers)) as run:
        run.here(*WORKERS[workers])
        run.send(signal.SIGTERM)
        run.send_to_group(signal.SIGTERM)
        assert run.end() == 128 + signal.SIGTERM, run.output
        surroundings.assert_clean(project.path, within=run.rest_of(PROMISED))
        assert NOTHING_LEFT in run.output, run.output
        assert "worker crashed" not in run.output


@pytest.mark.parametrize("workers", WORKERS)
def test_a_second_sigterm_ends_a_run_that_hangs_while_it_ends(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    hanging(project, workers, SLOW_TO_END)
    with driven(project, "-n", number_of(workers)) as run:
        run.here(*WORKERS[workers])
        run.send(signal.SIGTERM)
        for worker in WORKERS[workers]:
            run.wait_for(f"ending-{worker}")
        time.sleep(SAME_REQUEST)
        run.send(signal.SIGTERM)
        assert run.end() == -signal.SIGTERM, run.output
        surroundings.assert_clean(project.path, within=run.rest_of(PROMISED))


@pytest.mark.parametrize("workers", WORKERS)
def test_sigterm_is_as_ever_in_a_run_without_browsers(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    project.makepyfile(
        """
        import time, pytest
        from conftest import write

        @pytest.mark.parametrize("number", range(2))
        def test_hangs(worker_id, number):
            write(f"here-{worker_id}")
            time.sleep(3)  # xdist lets it end
        """
    )
    with driven(project, "-n", number_of(workers)) as run:
        for worker in WORKERS[workers]:
            run.wait_for(f"here-{worker}")
        run.send(signal.SIGTERM)
        assert run.end() == -signal.SIGTERM
        assert "peaks ==" not in run.output
        surroundings.assert_clean(project.path, within=PATIENCE)
    assert not (project.path / ".peaks").exists()
    assert not surroundings.runtime.exists()


@pytest.mark.skipif(shutil.which("nohup") is None, reason="needs nohup")
@pytest.mark.parametrize("workers", WORKERS)
def test_a_run_under_nohup_goes_on_after_sighup(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    hanging(project, workers, UNTIL_TOLD)
    with driven(project, "-n", number_of(workers), prefix=["nohup"]) as run:
        run.here(*WORKERS[workers])
        run.send(signal.SIGHUP)
        run.go_on()
        assert run.end() == 0, run.output
        assert run.outcomes() == {"passed": len(WORKERS[workers])}
        assert NOTHING_LEFT in run.output
        surroundings.assert_clean(project.path)


# --- Signals to one of the run's processes.


def test_nothing_is_left_of_a_killed_worker(project: pytest.Pytester, surroundings: Surroundings) -> None:
    hanging(project, "n2", UNTIL_TOLD)
    with driven(project, "-n", "2") as run:
        victim, _ = run.here("gw0", "gw1")
        kill(victim.process)
        run.go_on()
        assert run.end() == 1, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 1, "failed": 1}
        assert "worker 'gw0' crashed" in run.output
        assert f"cleared away after dead workers: {victim.record}" in run.output
        assert NOTHING_LEFT in run.output


@pytest.mark.parametrize("workers", WORKERS)
def test_a_stopped_browser_goes_with_its_killed_run(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    hanging(project, workers)
    with driven(project, "-n", number_of(workers)) as run:
        for here in run.here(*WORKERS[workers]):
            kill(here.browser, signal.SIGSTOP)
        run.send_to_group(signal.SIGKILL)
        run.end()
        surroundings.assert_clean(project.path, within=run.rest_of(PROMISED))


def is_gone(here: Here) -> bool:
    """Whether nothing is left of the session that `here` tells of."""
    runtime = here.profile.parents[1]
    with socket.socket() as probe:
        probe.settimeout(1)
        listening = probe.connect_ex(("127.0.0.1", here.port)) == 0
    record = runtime / "playwright-sessions" / f"{here.record}.json"
    return not (here.browser.is_alive() or here.profile.exists() or record.exists() or listening)


def wait_until(condition: Callable[[], bool], within: float, what: str) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what} still not after {within} s"
        time.sleep(0.05)


def test_a_worker_that_hears_nothing_lets_go_when_its_controller_is_killed(
    project: pytest.Pytester, surroundings: Surroundings
) -> None:
    hanging(project, "n2", DEAF)
    with driven(project, "-n", "2") as run:
        orphans = run.here("gw0", "gw1")
        run.send(signal.SIGKILL)
        run.end()
        wait_until(lambda: all(map(is_gone, orphans)), run.rest_of(PROMISED), "browsers gone")
        for orphan in orphans:
            kill(orphan.process)  # alive all the time: `kill` asserts it
        surroundings.assert_clean(project.path)


def test_the_guardian_ends_the_browser_of_a_stopped_worker_whose_controller_is_killed(
    project: pytest.Pytester, surroundings: Surroundings
) -> None:
    hanging(project, "n2")
    with driven(project, "-n", "2") as run:
        stopped, running = run.here("gw0", "gw1")
        kill(stopped.process, signal.SIGSTOP)
        run.send(signal.SIGKILL)
        run.end()
        wait_until(lambda: is_gone(running), run.rest_of(PROMISED), "the other worker's browser gone")
        wait_until(lambda: is_gone(stopped), run.rest_of(ORPHAN_GRACE + PROMISED), "its browser gone")
        kill(stopped.process)
        surroundings.assert_clean(project.path)


@pytest.mark.parametrize("workers", WORKERS)
def test_the_next_run_sweeps_what_a_run_left_whose_guardian_was_killed_as_well(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    hanging(project, workers)
    with driven(project, "-n", number_of(workers)) as run:
        first = run.here(*WORKERS[workers])
        [reservation] = (surroundings.runtime / "guardians").glob("*.json")
        guardian = ProcessIdentity.from_json(json.loads(reservation.read_text())["owner"])
        run.send(signal.SIGSTOP)  # so that it does not see its workers die
        for victim in [guardian, *{here.process for here in first}]:
            kill(victim)
        if workers == "n2":
            run.send(signal.SIGKILL)
        run.end()
    left = "\n".join(surroundings.leftovers(project.path))
    for here in first:
        assert f"playwright-sessions/{here.record}" in left
        assert f"playwright-userdata/{here.record}" in left
        assert f"reservation ports/{here.port}" in left

    (project.path / "test_again.py").write_text("def test_again(peaks_page): pass\n")
    with driven(project, "-n", number_of(workers), "test_again.py") as run:
        assert run.end() == 0, run.output
        surroundings.assert_clean(project.path)
        counted = "1 session" if workers == "n0" else "2 sessions"
        assert f"cleared away {counted} that earlier runs left" in run.output
        assert NOTHING_LEFT in run.output
