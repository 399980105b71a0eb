"""Tests that are a named identity at a desk: they wait their turn, find their login, and leave nothing."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from authapp import App, serve, until
from driven import driven, kill
from leaks import Surroundings

from pytest_peaks.session.identity import ProcessIdentity

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

HEAD = "import json, os, subprocess, sys, time\nimport pytest\n"
COUNTING = """
@pytest.mark.peaks_session(desk="clerk", save=True)
@pytest.mark.parametrize("number", range(6))
def test_counts(peaks_page, number):
    peaks_page.goto(SITE)
    seen = peaks_page.evaluate("+(localStorage.count || 0)")
    peaks_page.evaluate("localStorage.count = 1 + +(localStorage.count || 0)")
    write(f"count-{seen}", number=number)
"""


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


@pytest.fixture
def desk_project(
    project: pytest.Pytester, surroundings: Surroundings, site: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., pytest.Pytester]:
    """Make a project with tests, which know `SITE`, and desks on the test's own ports."""
    ports = surroundings.ports
    monkeypatch.setenv("PEAKS_DESK_PORTS", f"{ports.stop - 10}-{ports.stop - 1}")

    def make(tests: str, **pool: object) -> pytest.Pytester:
        if pool:
            (project.path / ".peaks").mkdir(exist_ok=True)
            (project.path / ".peaks" / "pool.json").write_text(json.dumps(pool))
        (project.path / "seen").mkdir(exist_ok=True)
        project.makepyfile(test_it=f"{HEAD}SITE = {site!r}\n{SEEN}\n{tests}")
        return project

    return make


SEEN = """
import pathlib
def write(name, **facts):
    folder = pathlib.Path(__file__).parent / "seen"
    part = folder / f".{os.getpid()}-{name}"
    part.write_text(json.dumps(facts))
    part.replace(folder / name)
def wait_for(name):
    deadline = time.monotonic() + 90
    while not (pathlib.Path(__file__).parent / "seen" / name).exists():
        assert time.monotonic() < deadline, f"{name} never came"
        time.sleep(0.02)
"""


def ledger_of(project: pytest.Pytester) -> dict[str, object]:
    data: dict[str, object] = json.loads((project.path / ".peaks" / "playwright-sessions.json").read_text())
    return data


def test_an_identity_is_in_one_test_at_a_time_and_each_finds_what_the_last_one_saved(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(COUNTING)
    result = project.runpytest_subprocess("-n3")
    result.assert_outcomes(passed=6)
    assert sorted(path.name for path in (project.path / "seen").glob("count-*")) == [
        f"count-{number}" for number in range(6)
    ]
    surroundings.assert_clean(project.path)  # the desks end with the run that started them
    desks: object = ledger_of(project)["desks"]
    assert isinstance(desks, dict)
    assert {desk["state"] for desk in desks.values()} == {"free"}


@pytest.mark.slow
def test_only_a_test_that_passed_and_asked_for_it_saves_its_identity(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(
        """
def leave(page):
    page.goto(SITE)
    assert page.evaluate("localStorage.left || null") is None
    page.evaluate("localStorage.left = 1")

@pytest.mark.peaks_session(desk="one")
def test_does_not_ask(peaks_page):
    leave(peaks_page)

@pytest.mark.peaks_session(desk="one", save=True)
def test_fails(peaks_page):
    leave(peaks_page)
    assert False, "on purpose"

@pytest.mark.peaks_session(desk="one", save=True)
def test_saves(peaks_page):
    leave(peaks_page)

@pytest.mark.peaks_session(desk="one")
def test_finds_it(peaks_page):
    peaks_page.goto(SITE)
    assert peaks_page.evaluate("localStorage.left") == "1"

@pytest.mark.peaks_session(desk="two")
def test_another_one_is_nobody(peaks_page):
    leave(peaks_page)
"""
    )
    result = project.runpytest_subprocess()
    result.assert_outcomes(passed=4, failed=1)
    states = project.path / ".peaks" / "playwright-state"
    assert [path.name for path in states.iterdir()] == ["one.json"]
    surroundings.assert_clean(project.path)


def test_all_doors_lead_to_the_desk_and_a_login_is_there_before_the_first_navigation(
    desk_project: Callable[..., pytest.Pytester], app: App, surroundings: Surroundings
) -> None:
    project = desk_project(
        f"""
APP = {app.url!r}

@pytest.mark.peaks_session(desk="alice", save=True)
def test_logs_in(peaks_page):
    peaks_page.goto(APP + "/login?user=alice")
    peaks_page.click("button")
    peaks_page.wait_for_url("**/me")
    peaks_page.evaluate("sessionStorage.tab = 'mine'")

@pytest.mark.peaks_session(desk="alice")
def test_is_alice_through_every_door(peaks_session, peaks_page, peaks_mcp, peaks_cli):
    peaks_mcp.call("browser_navigate", url=APP + "/me")
    assert peaks_page.title() == "alice"
    assert peaks_page.evaluate("sessionStorage.tab") == "mine"
    assert "alice" in str(peaks_cli("eval", "() => document.title"))
    assert peaks_session.name == "alice" and peaks_session.isolation == "profile"

@pytest.mark.peaks_session(desk="alice", url="/me")
def test_begins_at_the_url(peaks_page):
    assert peaks_page.title() == "alice"

@pytest.fixture(scope="session")
def base_url():
    return APP
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=3)
    assert app.logins == ["alice"]
    surroundings.assert_clean(project.path)


def test_a_killed_workers_desk_is_free_at_once_and_its_identity_goes_on_elsewhere(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(
        """
@pytest.mark.peaks_session(desk="clerk", save=True)
def test_one(peaks_page):
    peaks_page.goto(SITE)
    write("sits")
    if not (pathlib.Path(__file__).parent / "seen" / "killed").exists():
        write("killed")
        os.kill(os.getpid(), 9)

def test_two(peaks_pool):
    wait_for("killed")
    with peaks_pool.seat("clerk", url=SITE) as session:
        assert session.page.url.startswith(SITE)
""",
        desks=["playwright-desk-1"],
    )
    result = project.runpytest_subprocess("-n2", "--max-worker-restart=2")
    result.assert_outcomes(passed=1, failed=1)
    surroundings.assert_clean(project.path)
    sessions: object = ledger_of(project)["sessions"]
    assert isinstance(sessions, dict)
    assert sessions["clerk"]["desk"] is None


def test_a_desk_that_was_taken_from_a_stopped_worker_is_an_error_and_nothing_is_saved(
    desk_project: Callable[..., pytest.Pytester],
    surroundings: Surroundings,
    peaks: Callable[..., object],
) -> None:
    project = desk_project(
        """
@pytest.mark.peaks_session(desk="clerk", save=True)
def test_one(peaks_page):
    peaks_page.goto(SITE)
    peaks_page.evaluate("localStorage.secret = 'a'")
    from pytest_peaks.session.identity import ProcessIdentity
    write("sits", me=ProcessIdentity.of_self().to_json())
    wait_for("go")
""",
        desks=["playwright-desk-1"],
        idle_timeout_seconds=3,
    )
    with driven(project, "-n1") as run:
        worker = ProcessIdentity.from_json(json.loads(run.wait_for("sits").read_text())["me"])
        live = cleanup(peaks, project.path)
        assert live["released"] == [], "a live owner is never robbed"
        kill(worker, signal.SIGSTOP)
        released: list[object] = []

        def is_taken() -> bool:
            released.extend(cleanup(peaks, project.path)["released"])
            return bool(released)

        until(is_taken, "the stopped worker's desk is freed")
        kill(worker, signal.SIGCONT)
        run.go_on()
        assert run.end() == 1, run.output
    assert "lease_lost" in run.output
    assert run.outcomes() == {"passed": 1, "error": 1}
    assert not (project.path / ".peaks" / "playwright-state" / "clerk.json").exists()
    surroundings.assert_clean(project.path)


def cleanup(peaks: Callable[..., object], root: Path) -> dict[str, list[object]]:
    """Free what is idle, without saving: a stopped worker's login is not the one to keep here."""
    done = peaks("session", "cleanup", "--idle-seconds", "0", "--no-save", "--json", cwd=root)
    answer: dict[str, list[object]] = json.loads(done.stdout)  # type: ignore[attr-defined]
    return answer


def test_a_killed_run_leaves_no_desk_running(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(
        """
@pytest.mark.peaks_session(desk="clerk")
def test_one(peaks_page):
    peaks_page.goto(SITE)
    write("sits")
    time.sleep(600)
"""
    )
    with driven(project, "-n2") as run:
        run.wait_for("sits")
        run.send(signal.SIGKILL)
        run.end()
        surroundings.assert_clean(project.path, within=30)


@pytest.mark.slow
def test_a_run_that_keeps_its_browsers_keeps_its_desks_and_a_persons_desk_outlives_a_run(
    desk_project: Callable[..., pytest.Pytester],
    surroundings: Surroundings,
    peaks: Callable[..., object],
) -> None:
    project = desk_project(
        """
@pytest.mark.peaks_session(desk="clerk")
def test_one(peaks_page):
    peaks_page.goto(SITE)
""",
        desks=["playwright-desk-1"],
    )
    project.runpytest_subprocess("--peaks-reuse=force").assert_outcomes(passed=1)
    first = pid_of_desk(project)
    assert psutil.pid_exists(first)
    project.runpytest_subprocess().assert_outcomes(passed=1)
    assert pid_of_desk(project) == first
    assert psutil.pid_exists(first)
    peaks("session", "pool", "--down", cwd=project.path)
    surroundings.assert_clean(project.path)


def pid_of_desk(project: pytest.Pytester) -> int:
    records = project.path / ".peaks" / "_runtime" / "playwright-sessions"
    pid: int = json.loads((records / "desk-playwright-desk-1.json").read_text())["pid"]
    return pid


@pytest.mark.slow
def test_suites_manage_turns_themselves_with_peaks_pool_and_peaks_sessions(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(
        """
def test_pool(peaks_pool):
    with peaks_pool.seat("clerk", save=True, url=SITE) as session:
        assert session.page.url.startswith(SITE)
        session.page.evaluate("localStorage.left = 1")
    assert peaks_pool.names == ["clerk"]
    assert peaks_pool.state_file("clerk").exists()
    with pytest.raises(ZeroDivisionError), peaks_pool.seat("clerk", save=True) as session:
        session.page.goto(SITE)
        session.page.evaluate("localStorage.left = 2")
        1 / 0
    with peaks_pool.seat("clerk") as session:
        session.page.goto(SITE)
        assert session.page.evaluate("localStorage.left") == "1"
        session.page.evaluate("localStorage.left = 3")
        session.save()
    with peaks_pool.seat("clerk", url=SITE) as session:
        assert session.page.evaluate("localStorage.left") == "3"
    assert peaks_pool.forget("clerk") and not peaks_pool.forget("clerk")
    assert not peaks_pool.state_file("clerk").exists()

def test_two_at_once(peaks_sessions):
    one, two = peaks_sessions("one", desk="one"), peaks_sessions("two", desk="two")
    one.page.goto(SITE), two.page.goto(SITE)
    one.page.evaluate("localStorage.left = 1")
    assert two.page.evaluate("localStorage.left || null") is None
    assert one.pid != two.pid
"""
    )
    project.runpytest_subprocess().assert_outcomes(passed=2)
    surroundings.assert_clean(project.path)


def test_a_test_that_gets_no_desk_in_time_says_who_sits_there(
    desk_project: Callable[..., pytest.Pytester], surroundings: Surroundings
) -> None:
    project = desk_project(
        """
def test_one(peaks_pool, peaks_sessions):
    with peaks_pool.seat("clerk"):
        with pytest.raises(Exception, match="no_free_desk: no free desk: playwright-desk-1 -> clerk"):
            with peaks_pool.seat("other"):
                pass
        with pytest.raises(Exception, match="session_busy: session 'clerk' sits at playwright-desk-1"):
            with peaks_pool.seat("clerk"):
                pass
""",
        desks=["playwright-desk-1"],
    )
    result = project.runpytest_subprocess("-p", "no:xdist", "--peaks-desk-wait=0.5")
    result.assert_outcomes(passed=1)
    surroundings.assert_clean(project.path)


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('desk="../x"', "desk '../x' is not usable"),
        ("desk=3", "desk 3 is not usable"),
        ("save=True", "save is given without desk"),
        ('desk="a", save="yes"', "save is 'yes'"),
        ('desk="a", auth="b"', "desk and auth contradict each other"),
        ('desk="a", locale="de-DE", isolation="fresh"', "desk and isolation, locale contradict each other"),
        ('desk="a", doors=("ftp",)', "'ftp' is not a door"),
    ],
)
def test_a_wrong_marker_is_refused_at_collection(
    project: pytest.Pytester, marker: str, said: str, request: pytest.FixtureRequest
) -> None:
    project.makepyfile(
        f"import pytest\n@pytest.mark.peaks_session({marker})\ndef test_it(peaks_page):\n    pass\n"
    )
    result = project.runpytest_subprocess("-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.re_match_lines([f".*test_it: @pytest.mark.peaks_session: {re.escape(said)}"])


def test_a_wrong_wait_is_a_usage_error(project: pytest.Pytester) -> None:
    project.makepyfile("def test_it():\n    pass\n")
    result = project.runpytest_subprocess("--peaks-desk-wait=soon")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--peaks-desk-wait: 'soon' is not a number of seconds*"])
