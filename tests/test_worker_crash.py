"""A worker, a browser or a test's patience breaks, and the rest of the run goes on as if nothing had happened."""

from __future__ import annotations

import signal

import pytest
from driven import DrivenRun, Here, driven
from leaks import Surroundings
from test_leak_matrix import with_doors

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")

NOTHING_LEFT = "nothing left behind"
IN_ONE_WORKER = ("--dist", "loadfile")

# What the other worker has left of its tests waits for the replacement, which would come too late otherwise: a test
# is faster than a worker starts. Tests in a replacement see that the controller has cleared away what the crashed
# workers left, since they wait for it.
TWENTY = """
    import os, pytest
    from conftest import SEEN, read, wait_for, wait_until, write

    CRASHING = {crashing}

    @pytest.mark.parametrize("number", range(20))
    def test_one(here, worker_id, number):
        here(f"test-{{number:02}}")
        if number in CRASHING:
            os._exit(3)
        if worker_id not in ("gw0", "gw1"):
            write("replaced")
            wait_until_cleared()
        elif {waiting} and number > min(CRASHING):
            wait_for(SEEN / "replaced")

    def wait_until_cleared():
        for number in CRASHING:
            if (SEEN / f"test-{{number:02}}").exists():
                session = read(f"test-{{number:02}}")
                profile = session["profile"]
                record = profile.replace("playwright-userdata", "playwright-sessions") + ".json"
                wait_until(lambda: not os.path.exists(record), "the crashed worker's record is there")
                assert not os.path.exists(profile)
                write(f"cleared-{{number:02}}")
"""


def seen(run: DrivenRun) -> dict[int, Here]:
    """What each of the twenty tests said of the place it ran in."""
    return {int(path.name.removeprefix("test-")): Here.read(path) for path in run.seen.glob("test-*")}


def test_a_crashed_worker_costs_one_test_and_its_replacement_takes_its_slot(
    project: pytest.Pytester, surroundings: Surroundings
) -> None:
    project.makepyfile(TWENTY.format(crashing="(5,)", waiting=True))
    with driven(project, "-n", "2") as run:
        assert run.end() == 1, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 19, "failed": 1}
        places = seen(run)
        assert sorted(places) == list(range(20))
        crashed = places[5]
        assert f"worker '{crashed.worker}' crashed while running" in run.output
        assert all(f"::test_one[{number}]" in run.output for number in range(20))
        replacement = next(place for place in places.values() if place.worker == "gw2")
        assert replacement.slot == crashed.slot
        assert replacement.browser != crashed.browser
        assert replacement.record != crashed.record
        assert (run.seen / "cleared-05").exists()
        assert f"cleared away after dead workers: {crashed.record}" in run.output
        assert NOTHING_LEFT in run.output
        # And otherwise no worker changed its slot or its browser.
        for worker in ("gw0", "gw1", "gw2"):
            assert (
                len({(place.slot, place.browser) for place in places.values() if place.worker == worker}) == 1
            )
        assert {place.slot for place in places.values()} == {0, 1}


@pytest.mark.parametrize(
    "crashing",
    [
        pytest.param((4, 11), id="one-after-the-other"),
        pytest.param((0, 2), id="both-workers-at-once"),
    ],
)
def test_two_crashes_cost_two_tests(
    project: pytest.Pytester, surroundings: Surroundings, crashing: tuple[int, ...]
) -> None:
    project.makepyfile(TWENTY.format(crashing=crashing, waiting=True))
    with driven(project, "-n", "2") as run:
        assert run.end() == 1, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 18, "failed": 2}
        places = seen(run)
        assert {place.slot for place in places.values()} <= {0, 1}
        for number in crashing:
            assert places[number].record in run.output.partition("cleared away after dead workers:")[2]
        assert NOTHING_LEFT in run.output


@pytest.mark.parametrize("door", ["", "cli"])
def test_nothing_is_left_of_a_crash_where_workers_are_not_replaced(
    project: pytest.Pytester, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    project.makepyfile(with_doors(TWENTY.format(crashing="(5,)", waiting=False), door, monkeypatch))
    with driven(project, "-n", "2", "--max-worker-restart", "0") as run:
        assert run.end() != 0
        surroundings.assert_clean(project.path)
        # xdist says how many of the others still ran.
        assert run.outcomes()["failed"] == 1
        assert "worker restarting disabled" in run.output
        assert NOTHING_LEFT in run.output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_rerun_after_a_lost_browser_gets_a_new_one(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    project.makepyfile(
        """
        import os, signal
        from conftest import SEEN

        def test_flaky(here, peaks_session, peaks_page):
            attempt = len(list(SEEN.iterdir()))
            here(f"attempt-{attempt}")
            if attempt == 0:
                os.kill(peaks_session.pid, signal.SIGKILL)
            peaks_page.set_content("<h1>hello</h1>")
            assert peaks_page.text_content("h1") == "hello"
        """
    )
    rerun = ("--reruns", "1", "--only-rerun", "BROWSER_LOST")
    with driven(project, "-n", workers, *rerun, plugins=["rerunfailures"]) as run:
        assert run.end() == 0, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 1, "rerun": 1}
        first, second = (Here.read(run.seen / f"attempt-{number}") for number in (0, 1))
        assert first.browser != second.browser
        assert NOTHING_LEFT in run.output


TIMED_OUT = """
    import pytest

    @pytest.mark.timeout(1, method={method!r}, func_only=True)
    def test_hangs(here, peaks_page):
        here("hanging")
        peaks_page.wait_for_timeout(60_000)

    @pytest.mark.parametrize("number", range(5))
    def test_next(here, peaks_page, number):
        assert peaks_page.text_content("h1") == "open"
        here(f"next-{{number}}")
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_timeout_within_a_playwright_call_costs_one_test(
    project: pytest.Pytester, surroundings: Surroundings, workers: str
) -> None:
    project.makepyfile(TIMED_OUT.format(method="signal"))
    with driven(project, "-n", workers, *IN_ONE_WORKER, plugins=["timeout"]) as run:
        assert run.end() == 1, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 5, "failed": 1}
        assert "Timeout" in run.output
        assert "BROWSER_LOST" not in run.output
        hanging, following = (Here.read(run.seen / name) for name in ("hanging", "next-0"))
        assert hanging.browser == following.browser
        assert hanging.driver == following.driver
        assert NOTHING_LEFT in run.output


def test_a_timeout_that_ends_its_worker_costs_one_test(
    project: pytest.Pytester, surroundings: Surroundings
) -> None:
    project.makepyfile(TIMED_OUT.format(method="thread"))
    with driven(project, "-n", "2", plugins=["timeout"]) as run:
        assert run.end() == 1, run.output
        surroundings.assert_clean(project.path)
        assert run.outcomes() == {"passed": 5, "failed": 1}
        hanging = Here.read(run.seen / "hanging")
        assert f"worker '{hanging.worker}' crashed while running" in run.output
        assert hanging.browser not in {Here.read(path).browser for path in run.seen.glob("next-*")}
        assert NOTHING_LEFT in run.output
