"""The `peaks` command: one answer in one format, a doctor that says what is wrong, a reaper that leaves nothing."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from leaks import Surroundings

from pytest_peaks.cli.ways import WayFailedError, execute
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating

Peaks = Callable[..., "subprocess.CompletedProcess[str]"]

posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and shell scripts")

# A worker without pytest around it: owns one session until its stdin ends.
OWNER = """
import json, os, sys
from pathlib import Path
from pytest_peaks.session import guardian
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.spec import Run
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.spec import BrowserSpec

run = Run("clitest", 0, "main", ProcessIdentity.of_self())
dirs = ProjectDirs.locate(Path(sys.argv[1]))
manager = SessionManager(dirs, run, PortRange.parse(os.environ["PEAKS_PORTS"]))
session = manager.acquire(BrowserSpec())
print(json.dumps({"session": session.session_id, "port": session.record.port, "browser": session.record.pid,
                  "profile": str(session.user_data_dir), "temp": str(manager.temp_dir)}), flush=True)
sys.stdin.read()
manager.close()
guardian.call_off(run.uid)
"""


@dataclass
class Owner:
    """A process that owns a session, and what it said of it."""

    process: subprocess.Popen[str]
    session: str
    port: int
    browser: int
    profile: Path
    temp: Path

    def kill_with_guardian(self, runtime: Path) -> None:
        """Kill the guardian first and then the owner, so that nobody is left to clean up."""
        for file in (runtime / "guardians").glob("*.json"):
            guardian = psutil.Process(json.loads(file.read_text())["owner"]["pid"])
            guardian.kill()
            # Nobody here is its parent: it is gone, or a zombie of whoever is.
            wait_until(lambda pid=guardian.pid: ProcessIdentity.of(pid) is None)
        self.process.kill()
        self.process.wait()


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project without anything of peaks in it."""
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


@pytest.fixture
def owner(folder: Path) -> Iterator[Owner]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    yield Owner(
        process, said["session"], said["port"], said["browser"], Path(said["profile"]), Path(said["temp"])
    )
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()


def record_of(folder: Path, session: str = "left", **changes: Any) -> Record:
    """A record in `folder` as a session of this test would have it, with a profile."""
    dirs = ProjectDirs.locate(folder).create()
    profile = dirs.profiles / session
    profile.mkdir()
    record = Record(session, 0, "chromium", str(profile), now_iso(), ProcessIdentity.of_self())
    record = replace(record, **changes)
    Registry(dirs.records).write(record)
    return record


def dead_process() -> ProcessIdentity:
    """The identity of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = ProcessIdentity.of(child.pid)
    assert identity is not None
    child.communicate(b"\n")
    return identity


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON object that was printed, checked for what all of them have."""
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    found = json.loads(lines[0])
    assert isinstance(found, dict)
    assert found["schema"] == 1
    assert isinstance(found["action"], str)
    assert found["message"]
    if found["ok"]:
        assert done.returncode == 0
        assert not {"error", "hint"} & set(found)
    else:
        assert done.returncode != 0
        assert re.fullmatch(r"[A-Z_]+|[a-z_]+", found["error"])
        assert isinstance(found["hint"], str)
        assert "Traceback" not in done.stdout + done.stderr
    return found


def patched(
    code: str, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process where `code` has changed something first."""
    return subprocess.run(
        [sys.executable, "-c", f"{code}\nfrom pytest_peaks.cli import main; main()", *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


# How it answers


def test_the_version_is_told_as_text_and_as_an_object(peaks: Peaks) -> None:
    from pytest_peaks import __version__

    assert peaks("--version").stdout == f"pytest-peaks {__version__}\n"
    for arguments in (("--version", "--json"), ("--json", "--version")):
        assert answer(peaks(*arguments))["version"] == __version__


def test_help_lists_the_verbs_and_imports_nothing_heavy(peaks: Peaks) -> None:
    done = peaks("--help")
    assert done.returncode == 0
    for verb in ("doctor", "install", "reap"):
        assert re.search(rf"^  {verb} ", done.stdout, re.MULTILINE)
    code = """
import atexit, sys
heavy = ("playwright", "psutil", "pytest", "filelock")
atexit.register(lambda: print("imported:", [name for name in heavy if name in sys.modules]))
"""
    for arguments in (("--help",), ("doctor", "--help"), ("--version",)):
        assert "imported: []" in patched(code, *arguments).stdout


@pytest.mark.parametrize("verb", ["install", "reap"])
def test_json_before_and_after_the_verb_give_the_same_object(peaks: Peaks, folder: Path, verb: str) -> None:
    before = answer(peaks("--json", verb, cwd=folder))
    after = answer(peaks(verb, "--json", cwd=folder))
    assert before == after
    assert before["action"] == verb
    assert before["ok"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate", "--json"],
        ["--json", "frobnicate"],
        ["doctor", "--frobnicate", "--json"],
        ["--json", "doctor", "--frobnicate"],
        ["doctor", "--browser", "netscape", "--json"],
        ["doctor", "--json", "--executable"],
        ["reap", "--project", "/no/such/folder", "--json"],
        ["install", "chromium", "too-much", "--json"],
        ["--json"],
    ],
)
def test_a_usage_error_under_json_is_one_object_and_exits_with_2(peaks: Peaks, arguments: list[str]) -> None:
    done = peaks(*arguments)
    found = answer(done)
    assert (found["ok"], found["error"], done.returncode) == (False, "USAGE", 2)
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments", [[], ["frobnicate"], ["reap", "--frobnicate"], ["reap", "--", "--json"]]
)
def test_a_usage_error_without_json_goes_to_stderr_with_a_hint(peaks: Peaks, arguments: list[str]) -> None:
    done = peaks(*arguments)
    assert (done.stdout, done.returncode) == ("", 2)
    assert re.search(r"^USAGE: .+\nhint: .+--help", done.stderr, re.MULTILINE)


BROKEN = """
from pytest_peaks.cli import install
def broken(*_, **__):
    raise ValueError("a slip")
install.ensure = broken
"""


def test_an_unexpected_exception_is_an_error_without_a_traceback(peaks: Peaks) -> None:
    done = patched(BROKEN, "install", "--json")
    found = answer(done)
    assert (found["error"], done.returncode) == ("UNEXPECTED", 1)
    assert "ValueError: a slip" in found["message"]
    assert "Traceback" not in patched(BROKEN, "install").stderr
    told = patched(BROKEN, "install", "--json", env={"PEAKS_DEBUG": "1"})
    assert "Traceback" in told.stderr
    assert len(told.stdout.splitlines()) == 1


@posix_only
def test_ctrl_c_ends_it_with_130_and_one_object() -> None:
    code = """
import time
from pytest_peaks.cli import install
def slow(*_, **__):
    print("working", file=__import__("sys").stderr, flush=True)
    time.sleep(100)
install.ensure = slow
from pytest_peaks.cli import main; main()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, "install", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out)["error"] == "INTERRUPTED"
    assert "Traceback" not in err


# doctor


def checks(found: dict[str, Any], name: str) -> list[dict[str, str]]:
    return [check for check in found["checks"] if check["name"] == name]


def test_doctor_finds_the_browser_starts_it_and_leaves_nothing(
    peaks: Peaks, folder: Path, surroundings: Surroundings
) -> None:
    found = answer(peaks("doctor", "--json", cwd=folder))
    assert found["ok"] is True
    assert found["problems"] == 0
    assert all(set(check) == {"name", "status", "detail", "mend"} for check in found["checks"])
    assert {check["status"] for check in found["checks"]} <= {"ok", "warning"}
    [browser] = checks(found, "browser")
    assert re.search(r"[0-9]+\.[0-9.]+: .+ \((headless shell|full browser), from \w+\)", browser["detail"])
    [cli] = checks(found, "cli")
    assert re.search(r"playwright-cli [0-9.]+, [0-9]+ commands", cli["detail"])
    [named] = checks(found, "named-sessions")
    assert named["detail"] == "0 sessions of at most 4 open"
    [start] = checks(found, "start")
    port = re.search(r"Chrome/[0-9.]+ answered after [0-9.]+ s on port ([0-9]+)", start["detail"])
    assert port
    assert int(port[1]) in surroundings.ports
    surroundings.assert_clean(folder)
    assert sorted(path.name for path in folder.iterdir()) == [".git"], "it made something in the project"


def test_doctor_says_one_line_a_check_and_how_to_mend_it(peaks: Peaks, folder: Path) -> None:
    done = peaks("doctor", "--no-start", "--executable", "/nope", cwd=folder)
    assert done.returncode == 1
    assert re.search(r"^✗ browser: .*/nope does not exist\n    → .+", done.stdout, re.MULTILINE)
    assert re.search(r"^✓ playwright: ", done.stdout, re.MULTILINE)
    assert "start:" not in done.stdout
    assert done.stderr.startswith("PROBLEMS_FOUND: 1 problem: browser: ")


def test_doctor_exits_with_1_and_names_the_problem_where_there_is_no_browser(
    peaks: Peaks, folder: Path
) -> None:
    done = peaks("doctor", "--executable", "/nope", "--json", cwd=folder)
    found = answer(done)
    assert (found["ok"], found["error"], done.returncode) == (False, "PROBLEMS_FOUND", 1)
    assert "/nope does not exist" in found["message"]
    [browser] = checks(found, "browser")
    assert browser["status"] == "problem"
    assert "peaks install" in browser["mend"]
    assert browser["mend"] in found["hint"]


@posix_only
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo 'x: error while loading shared libraries: libnss3.so: cannot open' >&2; exit 127",
            "libnss3.so",
        ),
        ("echo 'segfault' >&2; exit 3", "status 3: segfault"),
    ],
)
def test_doctor_says_why_a_browser_does_not_run(
    peaks: Peaks, folder: Path, tmp_path: Path, script: str, said: str
) -> None:
    executable = script_at(tmp_path / "headless_shell", script)
    found = answer(peaks("doctor", "--executable", str(executable), "--json", cwd=folder))
    assert found["error"] == "PROBLEMS_FOUND"
    [browser] = checks(found, "browser")
    assert said in browser["detail"]
    [start] = checks(found, "start")
    assert start["status"] == "problem"


def test_doctor_names_a_setting_that_cannot_be_used(peaks: Peaks, folder: Path) -> None:
    done = peaks("doctor", "--no-start", "--json", cwd=folder, env={"PEAKS_BROWSER": "netscape"})
    found = answer(done)
    assert (found["error"], done.returncode) == ("PROBLEMS_FOUND", 1)
    [settings] = checks(found, "settings")
    assert settings["status"] == "problem"
    assert "PEAKS_BROWSER" in settings["detail"]
    assert "chromium" in settings["mend"]
    assert checks(found, "browser")[0]["status"] == "ok", "the rest is looked at all the same"


def test_doctor_warns_of_a_misspelt_setting(peaks: Peaks, folder: Path) -> None:
    found = answer(peaks("doctor", "--no-start", "--json", cwd=folder, env={"PEAKS_BROWSRE": "firefox"}))
    assert found["ok"] is True
    [settings] = checks(found, "settings")
    assert settings["status"] == "warning"
    assert "PEAKS_BROWSER" in settings["mend"]


def test_doctor_says_when_no_port_is_free(peaks: Peaks, folder: Path, surroundings: Surroundings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = str(taken.getsockname()[1])
        found = answer(peaks("doctor", "--json", cwd=folder, env={"PEAKS_PORTS": port}))
    assert [check["status"] for check in checks(found, "ports") + checks(found, "start")] == [
        "problem",
        "problem",
    ]
    assert "PORT_EXHAUSTED" in checks(found, "start")[0]["detail"]
    surroundings.assert_clean(folder)


@posix_only
def test_doctor_says_which_temp_dir_is_used_instead_of_a_long_one(
    peaks: Peaks, folder: Path, surroundings: Surroundings
) -> None:
    long = surroundings.temp / ("x" * 80)
    long.mkdir()
    found = answer(peaks("doctor", "--json", cwd=folder, env={"TMPDIR": str(long)}))
    assert found["ok"] is True
    [temp] = checks(found, "temp-dir")
    assert f"since {long} is too long" in temp["detail"]
    long.rmdir()
    surroundings.assert_clean(folder)


def test_doctor_names_a_wrong_rule_for_names(peaks: Peaks, folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.peaks]\ncli_max_sessions = 0\n")
    done = peaks("doctor", "--no-start", "--json", cwd=folder)
    assert done.returncode == 1
    [named] = checks(answer(done), "named-sessions")
    assert named["status"] == "problem"
    assert "cli_max_sessions" in named["detail"]


def test_doctor_says_when_the_wheels_cli_does_not_run(peaks: Peaks, folder: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    node.write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    node.chmod(0o755)
    found = answer(
        peaks("doctor", "--no-start", "--json", cwd=folder, env={"PLAYWRIGHT_NODEJS_PATH": str(node)})
    )
    [cli] = checks(found, "cli")
    assert cli["status"] == "problem"
    assert "exits with 3: no such thing" in cli["detail"]


def test_doctor_tells_of_leftovers_and_touches_none(peaks: Peaks, folder: Path) -> None:
    dead = record_of(folder, "dead", owner=dead_process())
    record_of(folder, "living")
    records = ProjectDirs.locate(folder).records
    (records / "torn.json").write_text('{"schema": 1, "termi')
    found = answer(peaks("doctor", "--json", cwd=folder))
    assert found["ok"] is True, "leftovers keep no test from running"
    told = checks(found, "records")
    assert [check["status"] for check in told] == ["ok", "warning", "warning"]
    assert told[0]["detail"] == "1 live session"
    assert "dead" in told[1]["detail"]
    assert "peaks reap" in told[1]["mend"]
    assert "torn.json" in told[2]["detail"]
    assert sorted(path.name for path in records.iterdir()) == ["dead.json", "living.json", "torn.json"]
    assert Path(dead.user_data_dir).exists()


# reap


@posix_only
def test_reap_removes_what_a_killed_run_left_and_says_so(
    peaks: Peaks, folder: Path, surroundings: Surroundings, owner: Owner
) -> None:
    owner.kill_with_guardian(surroundings.runtime)
    left = surroundings.leftovers(folder)
    for what in ("playwright-sessions/", "playwright-userdata/", f"reservation ports/{owner.port}", "temp "):
        assert any(entry.startswith(what) for entry in left), f"nothing to reap: no {what} in {left}"

    found = answer(peaks("reap", "--json", cwd=folder))
    [session] = found["sessions"]
    assert (session["session"], session["port"]) == (owner.session, owner.port)
    assert found["profiles"] == [str(owner.profile)]
    assert found["temp_dirs"] == [str(owner.temp)]
    assert f"ports/{owner.port}" in found["reservations"]
    assert {key.partition("/")[0] for key in found["reservations"]} == {"ports", "profiles", "guardians"}
    assert (found["left"], found["failed"]) == ([], [])
    assert "removed 1 session, 1 profile, 1 temp dir, 3 reservations" in found["message"]
    surroundings.assert_clean(folder)
    assert not list(ProjectDirs.locate(folder).logs.iterdir())
    assert answer(peaks("reap", "--json", cwd=folder))["message"] == "nothing to reap"


@posix_only
def test_reap_ends_a_browser_that_did_not_notice_its_owners_death(
    peaks: Peaks, folder: Path, surroundings: Surroundings, owner: Owner
) -> None:
    psutil.Process(owner.browser).suspend()
    owner.kill_with_guardian(surroundings.runtime)
    assert psutil.pid_exists(owner.browser)
    done = peaks("reap", cwd=folder)
    assert done.returncode == 0
    assert f"removed session {owner.session}" in done.stdout
    surroundings.assert_clean(folder)


def test_reap_leaves_the_session_of_a_living_owner_alone_and_says_why(
    peaks: Peaks, folder: Path, owner: Owner
) -> None:
    found = answer(peaks("reap", "--json", cwd=folder))
    assert found["message"] == "nothing to reap"
    assert found["left"] == [
        {"what": owner.session, "why": f"its owner, process {owner.process.pid}, is alive"}
    ]
    assert psutil.Process(owner.browser).is_running()
    assert owner.profile.exists()
    # Named from anywhere in the project.
    (folder / "deep" / "down").mkdir(parents=True)
    assert answer(peaks("reap", "--json", "--project", str(folder / "deep" / "down"))) == found


def test_reap_sets_a_truncated_record_aside_and_names_it(peaks: Peaks, folder: Path) -> None:
    record = record_of(folder)
    path = ProjectDirs.locate(folder).records / f"{record.session_id}.json"
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    found = answer(peaks("reap", "--json", cwd=folder))
    [aside] = found["set_aside"]
    assert aside["file"] == str(path)
    assert Path(aside["moved_to"]).read_text() == whole[: len(whole) // 2], "it is kept"
    assert not path.exists()
    assert "set aside 1 file" in found["message"]


def test_reap_leaves_a_newer_record_where_it_is_and_names_it(peaks: Peaks, folder: Path) -> None:
    record = record_of(folder)
    path = ProjectDirs.locate(folder).records / f"{record.session_id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 2}))
    found = answer(peaks("reap", "--json", cwd=folder))
    assert found["left"] == [{"what": str(path), "why": "schema 2 is newer than 1"}]
    assert path.exists()
    assert Path(record.user_data_dir).exists(), "its profile is not an orphan"


def elsewhere(identity: ProcessIdentity) -> ProcessIdentity:
    return replace(identity, host=f"not-{identity.host}")


def test_reap_removes_foreign_sessions_only_when_told_to_and_signals_nobody(
    peaks: Peaks, folder: Path, surroundings: Surroundings
) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        here = ProcessIdentity.of(bystander.pid)
        assert here is not None
        there = elsewhere(here)
        record = record_of(
            folder, "far", owner=there, processes={"browser": there}, pid=there.pid, port=21000
        )
        surroundings.runtime.mkdir(exist_ok=True)
        with allocating(surroundings.runtime):
            Reservations(surroundings.runtime, "ports").take("21000", there, "far")

        found = answer(peaks("reap", "--json", cwd=folder))
        assert found["message"] == "nothing to reap"
        [left] = found["left"]
        assert left["what"] == "far"
        assert "--foreign" in left["why"]
        assert Path(record.user_data_dir).exists()

        found = answer(peaks("reap", "--foreign", "--json", cwd=folder))
        assert [session["session"] for session in found["sessions"]] == ["far"]
        assert found["reservations"] == ["ports/21000"]
        assert found["left"] == []
        assert bystander.poll() is None, "a process that only has the same pid was ended"
        bystander.communicate(b"\n")
    surroundings.assert_clean(folder)


@posix_only
def test_reap_foreign_leaves_a_session_whose_browser_can_be_seen(peaks: Peaks, folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={**os.environ, "PEAKS_SESSION": "near"}
    ) as browser:
        record = record_of(folder, "near", owner=elsewhere(ProcessIdentity.of_self()))
        found = answer(peaks("reap", "--foreign", "--json", cwd=folder))
        assert found["left"] == [{"what": "near", "why": f"its browser is alive (processes [{browser.pid}])"}]
        assert Path(record.user_data_dir).exists()
        assert browser.poll() is None
        browser.communicate(b"\n")


def test_reap_frees_what_a_dead_owner_held_without_a_record(
    peaks: Peaks, folder: Path, surroundings: Surroundings
) -> None:
    code = """
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import owner_temp_dir
from pytest_peaks.session.reservations import Reservations, allocating
me = ProcessIdentity.of_self()
print(owner_temp_dir(me))
with allocating() as runtime:
    Reservations(runtime, "ports").take("21001", me, "gone")
"""
    temp = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert Path(temp).is_dir()
    found = answer(peaks("reap", "--json", cwd=folder))
    assert (found["temp_dirs"], found["reservations"]) == ([temp], ["ports/21001"])
    surroundings.assert_clean(folder)


def test_reap_on_a_project_without_peaks_creates_nothing(peaks: Peaks, folder: Path) -> None:
    done = peaks("reap", cwd=folder)
    assert (done.stdout, done.returncode) == ("nothing to reap\n", 0)
    assert sorted(path.name for path in folder.iterdir()) == [".git"]


# install


def script_at(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


# A machine of Debian's kind with no browser but what the test puts on PATH.
BARE = """
from pytest_peaks.cli import ways
from pytest_peaks.session import browsers
browsers._SHELLS = ()
browsers._CHROMIUMS = ("chromium",)
ways.Machine.here = classmethod(lambda cls: cls("linux", {root}, frozenset(["debian"])))
"""


@dataclass
class Bare:
    """Runs `peaks install` on a machine without a browser, with the tools that a test puts there."""

    tools: Path
    downloads: Path
    log: Path

    def tool(self, name: str, body: str) -> None:
        """A program on PATH that notes its call, and then does `body`."""
        script_at(self.tools / name, f'echo "{name} $*" >> {self.log}\n{body}')

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def install(
        self, *arguments: str, root: bool = True, host: str = "http://127.0.0.1:9"
    ) -> subprocess.CompletedProcess[str]:
        return patched(
            BARE.format(root=root),
            "install",
            *arguments,
            env={
                "PATH": str(self.tools),
                "PLAYWRIGHT_BROWSERS_PATH": str(self.downloads),
                "PLAYWRIGHT_DOWNLOAD_HOST": host,
                "PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "500",
                "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "",
                "NO_PROXY": "127.0.0.1",
            },
        )


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    made = Bare(tmp_path / "tools", tmp_path / "downloads", tmp_path / "calls")
    made.tool("apt-cache", 'echo "$2:"; echo "  Installed: (none)"; echo "  Candidate: 1.2.3-1"')
    made.tool(
        "apt-get",
        f"""
case "$*" in *install*)
    printf '#!/bin/sh\\necho Chromium 1.2.3\\n' > {made.tools}/chromium; /bin/chmod +x {made.tools}/chromium;;
esac
echo fetching
""",
    )
    return made


def test_install_says_what_is_there_and_changes_nothing(peaks: Peaks, folder: Path) -> None:
    found = answer(peaks("install", "--json", cwd=folder))
    assert (found["browser"], found["changed"]) == ("chromium", False)
    assert Path(found["executable"]).is_file()
    assert found["version"]
    assert f"chromium is there: {found['executable']}" in peaks("install", cwd=folder).stdout


@posix_only
def test_install_dry_run_names_the_ways_and_runs_none(bare: Bare) -> None:
    found = answer(bare.install("--dry-run", "--json"))
    assert found["changed"] is False
    assert [way["command"] for way in found["ways"]] == [
        "playwright install chromium-headless-shell",
        "apt-get update && apt-get install -y --no-install-recommends chromium chromium-headless-shell",
    ]
    assert bare.calls() == []
    assert not bare.downloads.exists()


@posix_only
def test_install_takes_the_systems_package_where_the_download_cannot_be_reached(bare: Bare) -> None:
    done = bare.install("--json")
    found = answer(done)
    assert found["changed"] is True
    assert found["executable"] == str(bare.tools / "chromium")
    assert found["version"] == "Chromium 1.2.3"
    assert "fetching" in done.stderr, "the output of what it runs is not shown"
    runs = [call for call in bare.calls() if call.startswith("apt-get")]
    assert runs[0].endswith(" update")
    assert runs[1].endswith(" install --no-install-recommends chromium chromium-headless-shell")


@posix_only
def test_install_without_root_runs_no_package_manager_and_gives_the_command(bare: Bare) -> None:
    bare.tool("sudo", "")
    done = bare.install("--json", root=False)
    found = answer(done)
    assert (found["error"], done.returncode) == ("INSTALL_FAILED", 1)
    assert "Playwright's install: " in found["message"]
    assert "the system's package: it needs root" in found["message"]
    assert "apt-get install -y --no-install-recommends chromium" in found["hint"]
    assert bare.calls() == []
    # Here Playwright would call sudo itself.
    chrome = answer(bare.install("chrome", "--json", root=False))
    assert chrome["message"].endswith("Playwright's install: it needs root")
    assert "playwright install chrome" in chrome["hint"]
    assert bare.calls() == []


@posix_only
def test_install_does_not_take_a_snap_for_a_browser(bare: Bare) -> None:
    bare.tool("apt-cache", 'echo "$2:"; echo "  Candidate: 2:1snap1-0ubuntu2"')
    found = answer(bare.install("--json"))
    assert found["error"] == "INSTALL_FAILED"
    assert "snap" in found["message"]
    assert not any(" install " in call for call in bare.calls())


@posix_only
def test_install_names_everything_it_tried_when_nothing_worked(bare: Bare) -> None:
    bare.tool("apt-get", "echo 'E: Unable to fetch some archives' >&2; exit 100")
    done = bare.install()
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr[done.stderr.index("INSTALL_FAILED") :]
    assert "Playwright's install: " in last
    assert "E: Unable to fetch some archives (exit code 100)" in last
    assert "hint: run by hand" in last


class Mirror(http.server.BaseHTTPRequestHandler):
    """Serves any browser as a zip with a script in it."""

    def do_GET(self) -> None:
        name = Path(self.path).stem
        inside = {
            "chrome-headless-shell": f"{name}/chrome-headless-shell",
            "chromium-headless-shell": "chrome-linux/headless_shell",
            "ffmpeg": name,
        }
        target = next(path for start, path in inside.items() if name.startswith(start))
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            entry = zipfile.ZipInfo(target)
            entry.external_attr = 0o755 << 16
            archive.writestr(entry, "#!/bin/sh\necho Chromium 4.5.6\n")
        self.send_response(200)
        self.send_header("Content-Length", str(len(content.getvalue())))
        self.end_headers()
        self.wfile.write(content.getvalue())

    def log_message(self, *_: Any) -> None:
        pass


@posix_only
def test_install_takes_playwrights_download_where_it_can_be_reached(bare: Bare) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            done = bare.install("--json", host=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    found = answer(done)
    assert (found["changed"], found["source"], found["version"]) == (True, "playwright", "Chromium 4.5.6")
    assert bare.downloads in Path(found["executable"]).parents
    assert not any(call.startswith("apt-get") for call in bare.calls())


@posix_only
def test_install_gives_up_on_a_host_that_never_answers(bare: Bare) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(50)
        found = answer(bare.install("--json", root=False, host=f"http://127.0.0.1:{silent.getsockname()[1]}"))
    assert "timed out" in found["message"]


@posix_only
def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib; child = subprocess.Popen(['sleep', '100']); "
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid)); child.wait()"
    )
    with pytest.raises(WayFailedError, match="said nothing for 2 s and was ended"):
        execute([sys.executable, "-c", code], os.environ, stall=2.0)
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(note.read_text())).status() == psutil.STATUS_ZOMBIE
