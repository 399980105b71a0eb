"""Named sessions whose parts are killed, stopped or idle, and others on the machine: what is left, and what not."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
import pytest
from leaks import Surroundings
from named_cli import PEAKS, Project, at_once, failed, finished, wait_until
from webserver import serve

from pytest_peaks.doors import cli_client
from pytest_peaks.doors.bundled import driver_command
from pytest_peaks.session import browsers
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.processes import MARK
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import allocating
from pytest_peaks.session.spec import BrowserSpec

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")


@pytest.fixture
def project(tmp_path: Path, surroundings: Surroundings) -> Iterator[Project]:
    """A project of the test's own, checked for leaks at the end."""
    made = Project.make(tmp_path / "project")
    yield made
    surroundings.assert_clean(made.folder)


# Parts that die


@pytest.mark.parametrize("lost", ["daemon", "socket", "browser"])
def test_a_session_that_lost_a_part_is_told_of_and_cleared_away_and_its_sibling_unharmed(
    project: Project, lost: str
) -> None:
    at_once([partial(project.open, name) for name in ("probe-lost", "probe-well")])
    project.text("-s=probe-well", "eval", "() => { document.title = 'mine' }")
    record, parts, well = (
        project.record("probe-lost"),
        project.parts("probe-lost"),
        project.parts("probe-well"),
    )
    if lost == "socket":
        Path(record.endpoints["cli"]).unlink()
    else:
        psutil.Process(parts["cli" if lost == "daemon" else "browser"].pid).kill()
    wait_until(lambda: project.states()["probe-lost"] != "open", "that it is seen")
    assert project.states() == {"probe-lost": "dead", "probe-well": "open"}
    for arguments in (["eval", "() => 1"], ["goto", "about:blank"], ["state-save", "admin"]):
        refused = project.fails("NOT_OPEN", 2, "-s=probe-lost", *arguments)
        assert "probe-lost" in refused["message"]
    # A look changes nothing; an open of any name clears it away, with all that was its own.
    assert Path(record.temp_dir).exists()
    project.open("probe-next")
    assert project.states() == {"probe-next": "open", "probe-well": "open"}
    assert not Path(record.temp_dir).exists()
    assert not any(part.is_alive() for part in parts.values())
    # Its name can be had again.
    project.open("probe-lost")
    assert project.works("probe-lost")
    assert project.parts("probe-well") == well
    assert project.raw("probe-well", "eval", "() => document.title") == "mine"
    project.text("close-all")


def test_close_of_a_dead_session_clears_it_away_and_says_so(project: Project) -> None:
    project.open("probe-dead")
    record = project.record("probe-dead")
    psutil.Process(record.owner.pid).kill()
    wait_until(lambda: project.states()["probe-dead"] == "dead", "that it is seen")
    text = project.text("-s=probe-dead", "close")
    assert "is not open: its daemon was gone" in text
    assert project.states() == {}
    assert not Path(record.temp_dir).exists()
    assert project.text("-s=probe-dead", "close") == "Browser 'probe-dead' is not open.\n"


@pytest.mark.parametrize("part", ["cli", "browser"])
@pytest.mark.parametrize("end", ["close", "kill-all"])
def test_a_stopped_part_is_no_obstacle(project: Project, part: str, end: str) -> None:
    project.open("probe-stop")
    parts = project.parts("probe-stop")
    psutil.Process(parts[part].pid).suspend()
    assert project.states() == {"probe-stop": "open"}
    assert project.fails("SESSION_EXISTS", 2, "-s=probe-stop", "open")["message"]
    if end == "close":
        assert project.ok("-s=probe-stop", "close")["status"] == "closed"
    else:
        assert project.ok("kill-all") == {"killed": 1, "pids": [parts["cli"].pid]}
    assert not any(each.is_alive() for each in parts.values())
    assert project.states() == {}
    if part == "cli":
        project.open("probe-stop")
        project.text("-s=probe-stop", "close")


def test_a_daemon_that_cannot_be_reached_any_more_is_a_dead_session(project: Project) -> None:
    project.open("probe-deaf")
    record, parts = project.record("probe-deaf"), project.parts("probe-deaf")
    # One that runs would notice that its socket is gone, and end.
    psutil.Process(parts["cli"].pid).suspend()
    Path(record.endpoints["cli"]).unlink()
    assert project.states() == {"probe-deaf": "dead"}
    project.fails("NOT_OPEN", 2, "-s=probe-deaf", "eval", "() => 1")
    project.open("probe-deaf")
    assert not any(part.is_alive() for part in parts.values())
    assert project.works("probe-deaf")
    project.text("close-all")


def test_a_daemon_that_is_behind_with_its_work_is_not_taken_for_dead(tmp_path: Path) -> None:
    path = os.path.relpath(tmp_path / "socket")  # its name has to be short
    with socket.socket(socket.AF_UNIX) as busy, ExitStack() as waiting:
        busy.bind(path)
        busy.listen(0)
        with suppress(BlockingIOError):
            while True:
                one = waiting.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(path)
        assert cli_client.is_open(path)
    assert not cli_client.is_open(path)


def test_an_idle_session_ends_and_the_next_open_clears_it_away(project: Project) -> None:
    # A user's own setting of the daemon is overruled: who opens says how long.
    project.open("probe-stay", "--idle-timeout=0", PLAYWRIGHT_MCP_IDLE_TIMEOUT="1")
    # On a slow machine it ends before it has answered.
    project.cli("-s=probe-idle", "open", "--idle-timeout=1500")
    record = project.record("probe-idle")
    wait_until(lambda: project.states()["probe-idle"] == "dead", "its end")
    # Its socket goes before its processes do.
    wait_until(
        lambda: not any(part.is_alive() for part in record.processes.values()), "the end of its processes"
    )
    project.open("probe-idle")
    assert not Path(record.temp_dir).exists()
    assert project.states() == {"probe-idle": "open", "probe-stay": "open"}
    project.text("close-all")


# Opens that are cut short


def held_before_it_listens(project: Project) -> dict[str, str]:
    """Environment in which an open goes no further than to the start of its daemon, which does nothing."""
    node = project.folder / "node"
    node.write_text(f"#!/bin/sh\n: > {project.folder}/held\nexec sleep 1000\n")
    node.chmod(0o755)
    return {"PLAYWRIGHT_NODEJS_PATH": str(node)}


def held_before_its_browser_answers(project: Project, does: str) -> list[str]:
    """Options with which an open goes no further than to the start of its browser, which is a script."""
    browser = project.folder / "browser"
    browser.write_text(f"#!/bin/sh\n: > {project.folder}/held\n{does}\n")
    browser.chmod(0o755)
    return [f"--executable={browser}"]


@dataclass
class Held:
    """Opens of probe-cut that go no further than to a moment."""

    project: Project
    site: str
    seen: list[tuple[str, str]]

    def start(self, moment: str, browser: str = "sleep 1000 & wait") -> subprocess.Popen[str]:
        """Start one, and wait until it is there.

        :param browser: what its browser does, in the shell's words.
        """
        project, held = self.project, self.project.folder / "held"
        options: list[str] = []
        env: dict[str, str] = {}
        reached: Callable[[], object] = held.exists
        if moment == "record":
            reached = Registry(project.dirs.records).path_of("cli-probe-cut").exists
            env = held_before_it_listens(project)
        elif moment == "daemon":
            env = held_before_it_listens(project)
        elif moment == "browser":
            options = held_before_its_browser_answers(project, browser)
        else:
            options = [f"{self.site}/hangs"]
            reached = self.seen.__len__
        held.unlink(missing_ok=True)
        self.seen.clear()
        opening = project.spawn("cli", "-s=probe-cut", "open", *options, "--json", **env)
        wait_until(lambda: reached() or opening.poll() is not None, f"an open at its {moment}")
        assert opening.poll() is None, opening.communicate()
        return opening


@pytest.fixture
def held(project: Project) -> Iterator[Held]:
    seen: list[tuple[str, str]] = []
    with serve(seen=seen) as site:
        yield Held(project, site, seen)


@pytest.mark.parametrize("moment", ["record", "daemon", "browser", "page"])
def test_an_interrupted_open_leaves_nothing(held: Held, surroundings: Surroundings, moment: str) -> None:
    opening = held.start(moment)
    opening.send_signal(signal.SIGINT)
    failed(finished(opening), "INTERRUPTED", 130)
    surroundings.assert_clean(held.project.folder)
    assert held.project.states() == {}


@pytest.mark.parametrize(
    ("moment", "then"),
    [
        ("record", "open"),
        ("record", "reap"),
        ("daemon", "open"),
        ("daemon", "reap"),
        ("browser", "open"),
        ("browser", "close"),
    ],
)
def test_what_a_killed_open_left_is_swept(
    held: Held, surroundings: Surroundings, moment: str, then: str
) -> None:
    project = held.project
    opening = held.start(moment)
    assert project.states() == {"probe-cut": "starting"}
    with allocating(surroundings.runtime):  # so that it is at no file
        opening.kill()
        opening.communicate()
    assert project.states() == {"probe-cut": "dead"}
    project.fails("NOT_OPEN", 2, "-s=probe-cut", "eval", "() => 1")
    if then == "reap":
        assert "removed session cli-probe-cut " in project.peaks("reap").stdout
    elif then == "close":
        project.text("-s=probe-cut", "close")
    if then != "open":
        surroundings.assert_clean(project.folder)
    project.open("probe-cut")
    assert project.works("probe-cut")
    project.text("-s=probe-cut", "close")


def test_a_session_stays_when_its_open_is_killed_on_the_way_to_the_page(held: Held) -> None:
    opening = held.start("page")
    opening.kill()
    opening.communicate()
    assert held.project.states() == {"probe-cut": "open"}
    assert held.project.ok("-s=probe-cut", "close")["status"] == "closed"


@pytest.mark.parametrize("moment", ["daemon", "browser"])
def test_an_open_that_is_closed_from_elsewhere_gives_up(
    held: Held, surroundings: Surroundings, moment: str
) -> None:
    project = held.project
    for end in (["-s=probe-cut", "close"], ["kill-all"], ["-s=probe-cut", "delete-data"]):
        opening = held.start(moment)
        refused = project.fails("SESSION_EXISTS", 2, "-s=probe-cut", "open")
        assert "is starting already" in refused["message"]
        project.text(*end)
        failed(finished(opening), "START_FAILED", 5)
        surroundings.assert_clean(project.folder)


def test_an_open_that_is_late_does_not_take_its_names_next_session_along(
    held: Held, surroundings: Surroundings
) -> None:
    project = held.project
    late = held.start("daemon")
    with allocating(surroundings.runtime):  # so that it does not stop with the lock in its hand
        late.send_signal(signal.SIGSTOP)
    project.text("-s=probe-cut", "close")
    project.open("probe-cut")
    parts = project.parts("probe-cut")
    late.send_signal(signal.SIGCONT)
    failed(finished(late), "START_FAILED", 5)
    assert project.parts("probe-cut") == parts
    assert project.works("probe-cut")
    project.text("-s=probe-cut", "close")


def test_an_open_that_is_late_with_a_session_that_works_does_not_replace_the_next_one(
    held: Held, surroundings: Surroundings
) -> None:
    project = held.project
    real = browsers.find(BrowserSpec()).executable
    late = held.start("browser", f'while [ ! -e {project.folder}/go ]; do sleep 0.05; done; exec {real} "$@"')
    temp = Path(project.record("probe-cut").temp_dir)
    with allocating(surroundings.runtime):
        # Its daemon comes to listen, and it can't note that.
        (project.folder / "go").touch()
        wait_until(lambda: cli_client.socket_of(temp / "d", "probe-cut"), "a daemon that listens")
        late.send_signal(signal.SIGSTOP)
    project.text("-s=probe-cut", "close")
    project.open("probe-cut")
    parts = project.parts("probe-cut")
    late.send_signal(signal.SIGCONT)
    failed(finished(late), "START_FAILED", 5)
    assert project.parts("probe-cut") == parts
    assert project.works("probe-cut")
    project.text("-s=probe-cut", "close")


def test_many_may_end_a_session_at_once(project: Project) -> None:
    at_once([partial(project.open, name) for name in ("probe-one", "probe-two")])
    ends = (["-s=probe-one", "close"], ["-s=probe-two", "close"], ["close-all"], ["kill-all"])
    done = at_once([partial(project.cli, *end) for end in ends * 2])
    assert [(each.returncode, each.stderr) for each in done] == [(0, "")] * 8
    assert project.states() == {}


# Others on the machine


def foreign_session(project: Project, folder: Path, **env: str) -> Callable[..., str]:
    """Somebody's own playwright-cli, of another registry; runs its commands."""
    folder.mkdir()
    found = browsers.find(BrowserSpec())
    scope = {
        **os.environ,
        **project.env,
        "PWTEST_DAEMON_SESSION_DIR": str(folder / "d"),
        "PWTEST_SOCKETS_DIR": str(folder / "s"),
        "PWTEST_SERVER_REGISTRY": str(folder / "r"),
        "PLAYWRIGHT_MCP_BROWSER": "chromium",
        "PLAYWRIGHT_MCP_EXECUTABLE_PATH": str(found.executable),
        "PLAYWRIGHT_MCP_SANDBOX": "false",
        "TMPDIR": str(folder),
        **env,
    }

    def run(*arguments: str) -> str:
        command = [*driver_command(), "cli", "-s=foreign", *arguments]
        done = subprocess.run(
            command, cwd=folder, env=scope, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    return run


def test_nobody_elses_sessions_are_shown_or_ended_and_none_of_ours_by_others(
    project: Project, surroundings: Surroundings
) -> None:
    foreign = foreign_session(project, surroundings.temp / "foreign")
    foreign("open", "about:blank")
    port = str(surroundings.ports[0])
    started = json.loads(
        project.peaks("playwright", "start", "--terminal", "t1", "--port", port, "--json").stdout
    )
    hosted = ProcessIdentity.from_json(started["session"]["owner"])
    project.open("probe-ours")
    parts = project.parts("probe-ours")

    rows = json.loads(project.peaks("playwright", "ls", "--json").stdout)["sessions"]
    assert [row["terminalId"] for row in rows] == ["t1"]
    assert list(project.listed()) == ["probe-ours"]
    theirs = foreign("list", "--all")
    assert ("- foreign:" in theirs, "probe-ours" in theirs) == (True, False)
    foreign("close-all")
    assert project.parts("probe-ours") == parts
    foreign("open", "about:blank")

    assert project.ok("kill-all") == {"killed": 1, "pids": [parts["cli"].pid]}
    assert not any(part.is_alive() for part in parts.values())
    assert hosted.is_alive()
    assert foreign("--raw", "eval", "() => 1").strip() == "1"
    project.open("probe-ours")
    parts = project.parts("probe-ours")
    stopped = json.loads(project.peaks("playwright", "stop", "--all", "--json").stdout)["stopped"]
    assert [row["terminalId"] for row in stopped] == ["t1"]
    assert project.parts("probe-ours") == parts
    assert project.works("probe-ours")
    project.text("close-all")
    assert foreign("--raw", "eval", "() => 1").strip() == "1"
    foreign("close")
    wait_until(lambda: not surroundings.processes(), "the end of the foreign session")
    subprocess.run(["rm", "-r", str(surroundings.temp / "foreign")], check=True)


@pytest.mark.slow
def test_a_guest_in_a_browser_leaves_it_running(project: Project, surroundings: Surroundings) -> None:
    port = str(surroundings.ports[0])
    started = json.loads(
        project.peaks("playwright", "start", "--terminal", "t1", "--port", port, "--json").stdout
    )
    hosted = Registry(project.dirs.records).read("t1")
    assert hosted is not None, started
    cdp, browser = hosted.endpoints["cdp"], hosted.processes["browser"]
    attached = project.ok("-s=probe-guest", "attach", f"--cdp={cdp}")
    assert (attached["session"], attached["endpoint"]) == ("probe-guest", cdp)
    assert isinstance(attached["pid"], int)
    project.text("-s=probe-guest", "eval", "() => { document.title = 'seen' }")
    row = project.listed()["probe-guest"]
    assert (row["attached"], row["browserPid"]) == (True, None)
    assert "(attached)" in project.text("list")
    # A second guest would share its tab and its storage, also by another address of the same browser.
    address = urllib.parse.urlsplit(cdp).port
    for same in (cdp, f"http://127.0.0.1:{address}", f"http://localhost:{address}/"):
        refused = project.fails("SHARED_BROWSER", 2, "-s=probe-more", "attach", f"--cdp={same}")
        assert "probe-guest" in refused["message"]
    assert list(project.states()) == ["probe-guest"]
    for end in ("close", "detach", "kill-all"):
        arguments = [end] if end == "kill-all" else ["-s=probe-guest", end]
        project.text(*arguments)
        assert project.states() == {}
        assert browser.is_alive()
        project.ok("-s=probe-guest", "attach", f"--cdp={cdp}")
        assert project.raw("probe-guest", "eval", "() => document.title") == "seen"
    assert project.ok("-s=probe-guest", "detach") == {"session": "probe-guest", "status": "detached"}
    assert project.ok("-s=probe-guest", "detach")["status"] == "not-attached"
    # One of its own is not detached but closed.
    project.open("probe-owner")
    project.fails("CLI_USAGE", 2, "-s=probe-owner", "detach")
    project.text("-s=probe-owner", "close")
    # When the browser goes its guest goes.
    project.ok("-s=probe-guest", "attach", f"--cdp={cdp}")
    assert project.peaks("playwright", "stop", "--all").returncode == 0
    wait_until(lambda: project.states().get("probe-guest") != "open", "the guest's end")
    project.text("-s=probe-guest", "close")


# Records


@pytest.mark.slow
def test_what_has_the_name_and_is_no_named_session_is_left_alone(
    project: Project, surroundings: Surroundings
) -> None:
    records = project.dirs.create().records
    path = records / "cli-probe-odd.json"
    # A file that is no record is set aside, as everywhere, and the name can be had.
    path.write_text("{")
    assert project.states() == {}
    project.fails("NOT_OPEN", 2, "-s=probe-odd", "eval", "() => 1")
    assert project.ok("-s=probe-odd", "close")["status"] == "not-open"
    project.open("probe-odd")
    [aside] = (records / "set-aside").iterdir()
    assert aside.read_text() == "{"
    assert project.works("probe-odd")
    project.text("-s=probe-odd", "close")
    aside.unlink()
    aside.parent.rmdir()
    # One of a later version may be of a session that is alive; a folder is nobody's record.
    newer = json.dumps({"schema": 2, "terminalId": "cli-probe-odd"})
    path.write_text(newer)
    project.fails("SESSION_EXISTS", 2, "-s=probe-odd", "open")
    assert path.read_text() == newer
    path.unlink()
    path.mkdir()
    project.fails("SESSION_EXISTS", 2, "-s=probe-odd", "open")
    path.rmdir()
    # A terminal may happen to be called as a named session's record is.
    arguments = ["--terminal", "cli-probe-odd", "--port", str(surroundings.ports[0]), "--json"]
    assert project.peaks("playwright", "start", *arguments).returncode == 0
    before = path.read_text()
    refused = project.fails("SESSION_EXISTS", 2, "-s=probe-odd", "open")
    assert "hosted" in refused["message"]
    project.fails("NOT_OPEN", 2, "-s=probe-odd", "eval", "() => 1")
    assert path.read_text() == before
    assert project.peaks("playwright", "stop", "--all").returncode == 0
    project.open("probe-odd")
    done = project.peaks("playwright", "start", *arguments)
    assert (json.loads(done.stdout)["error"], done.returncode) == ("CONFLICT", 2)
    assert project.works("probe-odd")
    project.text("close-all")


def test_a_session_of_another_machine_is_told_of_and_left_alone(project: Project) -> None:
    registry = Registry(project.dirs.create().records)
    there = replace(ProcessIdentity.of_self(), host="elsewhere")
    record = Record(
        "cli-probe-there",
        0,
        "chromium",
        "",
        now_iso(),
        there,
        status="ready",
        kind="cli",
        processes={"cli": there},
    )
    registry.write(record)
    assert project.states() == {"probe-there": "elsewhere"}
    refused = project.fails("NOT_OPEN", 2, "-s=probe-there", "close")
    assert "elsewhere" in refused["message"]
    assert "elsewhere" in project.fails("NOT_OPEN", 2, "-s=probe-there", "eval", "() => 1")["message"]
    project.fails("SESSION_EXISTS", 2, "-s=probe-there", "open")
    assert project.ok("close-all") == {"closed": []}
    assert project.ok("kill-all") == {"killed": 0, "pids": []}
    done = project.peaks("reap")
    assert "left cli-probe-there: its owner is on host elsewhere" in done.stdout
    assert project.record("probe-there") == record
    assert "removed session cli-probe-there" in project.peaks("reap", "--foreign").stdout


def test_a_pid_that_is_anothers_by_now_is_not_signalled(project: Project) -> None:
    project.open("probe-pid")
    before = project.record("probe-pid")
    psutil.Process(before.owner.pid).kill()
    wait_until(lambda: not any(part.is_alive() for part in before.processes.values()), "its end")
    me = ProcessIdentity.of_self()
    with subprocess.Popen(["sleep", "1000"]) as bystander:
        now = ProcessIdentity.of(bystander.pid)
        assert now is not None
        taken = replace(now, started=now.started - 1)
        changed = before.with_(owner=taken, pid=taken.pid, processes={"cli": taken, "browser": taken})
        Registry(project.dirs.records).write(changed)
        assert project.states() == {"probe-pid": "dead"}
        assert project.ok("kill-all") == {"killed": 0, "pids": []}
        assert bystander.poll() is None
        bystander.kill()
    assert me.is_alive()


# Sweeps of others


@pytest.mark.slow
def test_reap_and_a_pytest_run_leave_live_sessions_and_clear_dead_ones(
    project: Project, surroundings: Surroundings
) -> None:
    (project.folder / "test_it.py").write_text(
        "def test_it(peaks_page):\n    peaks_page.goto('about:blank')\n"
    )
    (project.folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:playwright -p no:cacheprovider\n")
    project.text("-s=probe-live", "open", "--persistent")
    live = project.parts("probe-live")
    profile = Path(project.record("probe-live").user_data_dir)
    for sweep in ("reap", "pytest", "other"):
        project.open("probe-dead")
        dead = project.record("probe-dead")
        psutil.Process(dead.owner.pid).kill()
        wait_until(lambda: project.states()["probe-dead"] == "dead", "its end")
        if sweep == "reap":
            done = project.peaks("reap")
            assert "removed session cli-probe-dead " in done.stdout
            assert "left cli-probe-live: its owner, process " in done.stdout
        elif sweep == "pytest":
            run = subprocess.run(
                [PEAKS[0], "-m", "pytest", "-q"],
                cwd=project.folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert "1 passed" in run.stdout, run.stdout + run.stderr
        else:
            # Another project's sweep takes what belongs to nobody alive, whoever's it was, and no more.
            elsewhere = Project.make(project.folder.parent / "elsewhere")
            assert elsewhere.peaks("reap").returncode == 0
            assert not Path(dead.temp_dir).exists()
            assert project.states() == {"probe-dead": "dead", "probe-live": "open"}
            project.text("-s=probe-dead", "close")
        assert project.states() == {"probe-live": "open"}
        assert not Path(dead.temp_dir).exists()
        assert project.parts("probe-live") == live
        assert profile.is_dir()
        assert project.works("probe-live")
    assert project.ok("-s=probe-live", "delete-data")["deleted"] is True


def test_sessions_stay_when_whoever_opened_them_is_gone(project: Project) -> None:
    # A shell that opens one and is hung up, with its whole process group.
    shell = subprocess.Popen(
        [
            "sh",
            "-c",
            f'"$@" && : > {project.folder}/opened && sleep 1000',
            "sh",
            *PEAKS,
            "cli",
            "-s=probe-stay",
            "open",
        ],
        cwd=project.folder,
        env={**os.environ, **project.env},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until((project.folder / "opened").exists, "an open session")
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    assert project.works("probe-stay")
    parts = project.parts("probe-stay")
    for part in parts.values():
        environment = psutil.Process(part.pid).environ()
        assert environment.get(MARK, "").startswith("cli-probe-stay/")
    project.text("close-all")


def test_a_profile_of_a_user_is_one_sessions_in_all_projects(project: Project, tmp_path: Path) -> None:
    other = Project.make(tmp_path / "other")
    profile = f"--profile={tmp_path / 'mine'}"
    project.open("probe-mine", profile)
    # Also for a session of the same name.
    for name in ("probe-mine", "probe-more"):
        assert "cli-probe-mine" in other.fails("PROFILE_IN_USE", 2, f"-s={name}", "open", profile)["message"]
    assert project.works("probe-mine")
    project.text("-s=probe-mine", "close")
    other.open("probe-mine", profile)
    other.text("-s=probe-mine", "close")
    assert (tmp_path / "mine").is_dir()
