"""Browsers live and die with their owner, and nothing is signalled that is not meant."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import child_environment
from pytest_peaks.session.processes import end_tree, wait_until
from pytest_peaks.session.spawning import OwnerPipe, Spawned, spawn_browser

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX processes")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# How long something that takes milliseconds may take on a machine that is out of breath.
PATIENCE = 30.0

# As Chromium does: it reads its pipe on descriptor 3 and leaves when that ends.
STAND_IN = """#!{python} -IS
import json, os, stat, sys

facts = dict(
    argv=sys.argv[1:], sid=os.getsid(0), pgid=os.getpgid(0), pid=os.getpid(), env=dict(os.environ),
    descriptors={{fd: os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd")
                 if os.path.exists(f"/proc/self/fd/{{fd}}")}} if os.path.isdir("/proc/self/fd") else {{}},
    pipes=[stat.S_ISFIFO(os.fstat(fd).st_mode) for fd in (3, 4)],
    stdin=os.read(0, 1).decode(),
)
print("on stdout", flush=True)
print("on stderr", file=sys.stderr, flush=True)
with open({facts!r} + ".new", "w") as file:
    json.dump(facts, file)
os.rename({facts!r} + ".new", {facts!r})
while os.read(3, 4096):
    pass
"""


@dataclasses.dataclass
class StandIn:
    """An executable that behaves as a Chromium does towards its owner."""

    executable: Path
    log: Path
    facts_file: Path

    def facts(self) -> dict[str, Any]:
        assert wait_until(self.facts_file.exists, PATIENCE), self.log.read_text()
        return json.loads(self.facts_file.read_text())

    def spawn(self, *arguments: str, env: dict[str, str] | None = None) -> Spawned:
        return spawn_browser([str(self.executable), *arguments], os.environ if env is None else env, self.log)


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    made = StandIn(tmp_path / "stand-in", tmp_path / "log", tmp_path / "facts.json")
    made.executable.write_text(STAND_IN.format(python=sys.executable, facts=str(made.facts_file)))
    made.executable.chmod(0o755)
    yield made
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(made.executable) in process.cmdline():
                process.kill()
                processes.reap_child(process.pid)


def is_dead(identity: ProcessIdentity) -> Callable[[], bool]:
    return lambda: identity.state() == "dead"


def gone(spawned: Spawned) -> bool:
    ended = wait_until(is_dead(spawned.identity), PATIENCE)
    processes.reap_child(spawned.identity.pid)
    return ended


@contextlib.contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# Spawning


def test_a_browser_gets_its_pipe_a_null_stdin_a_log_and_a_session_of_its_own(stand_in: StandIn) -> None:
    spawned = stand_in.spawn("--one", "two words", env={"ONLY": "this"})
    facts = stand_in.facts()
    assert facts["argv"] == ["--remote-debugging-pipe", "--one", "two words"]
    assert facts["pipes"] == [True, True]
    assert facts["stdin"] == ""
    assert facts["env"]["ONLY"] == "this"
    assert "PATH" not in facts["env"]
    assert facts["pid"] == facts["sid"] == facts["pgid"] == spawned.identity.pid
    assert stand_in.log.read_text().splitlines() == ["on stdout", "on stderr"]
    assert stand_in.log.stat().st_mode & 0o077 == 0
    assert spawned.identity.is_alive()
    spawned.pipe.close()
    assert gone(spawned)


@linux
def test_no_other_descriptor_of_the_owner_reaches_the_browser(stand_in: StandIn, tmp_path: Path) -> None:
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    inherited = os.dup(secret)
    # As what the shell opened for pytest: `exec 9>lock`.
    os.set_inheritable(inherited, True)
    try:
        spawned = stand_in.spawn()
        descriptors = stand_in.facts()["descriptors"]
        spawned.pipe.close()
        assert gone(spawned)
    finally:
        os.close(secret)
        os.close(inherited)
    assert set(descriptors) == {"0", "1", "2", "3", "4"}
    assert descriptors["0"] == os.devnull
    assert descriptors["1"] == descriptors["2"] == str(stand_in.log)


@linux
def test_spawning_and_closing_leaves_the_owner_with_the_descriptors_it_had(stand_in: StandIn) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        spawned = stand_in.spawn()
        spawned.pipe.close()
        spawned.pipe.close()
        assert gone(spawned)
    with pytest.raises(FileNotFoundError):
        spawn_browser(["/no/such/browser"], os.environ, stand_in.log)
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_run_is_an_os_error(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.executable.chmod(0o644)
    with pytest.raises(PermissionError):
        stand_in.spawn()
    stand_in.executable.chmod(0o755)
    with pytest.raises(OSError, match=r"."):
        spawn_browser([str(stand_in.executable)], os.environ, tmp_path / "no" / "folder" / "log")


def test_a_browser_that_ends_at_once_has_an_identity_that_is_dead(stand_in: StandIn) -> None:
    stand_in.executable.write_text("#!/bin/sh\nexit 3\n")
    spawned = stand_in.spawn()
    assert wait_until(is_dead(spawned.identity), PATIENCE)
    assert processes.reap_child(spawned.identity.pid) == 3
    assert processes.reap_child(spawned.identity.pid) is None
    spawned.pipe.close()


OWNER = """
import os, sys
from pathlib import Path
from pytest_peaks.session.spawning import spawn_browser
spawned = spawn_browser([sys.argv[1]], os.environ, Path(sys.argv[2]))
how = sys.argv[3]
child = 0
if how == "fork":
    child = os.fork()
    if child == 0:
        import time
        time.sleep(300)
elif how == "multiprocessing":
    import multiprocessing, time
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    worker.start()
    child = worker.pid
elif how == "popen":
    import subprocess
    child = subprocess.Popen(["sleep", "300"], close_fds=False).pid
print(child, spawned.identity.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["alone", "fork", "multiprocessing", "popen"])
def test_the_kill_of_its_owner_ends_a_browser_whatever_children_the_owner_left(
    stand_in: StandIn, how: str
) -> None:
    with python(OWNER, str(stand_in.executable), str(stand_in.log), how) as owner:
        child, browser = map(int, line_of(owner).split())
        stand_in.facts()
        process = ProcessIdentity.of(browser)
        assert process is not None, "the browser ended although its owner lives"
        survivor = ProcessIdentity.of(child) if child else None
        owner.kill()
        owner.wait()
        try:
            assert wait_until(is_dead(process), PATIENCE)
            assert survivor is None or survivor.is_alive(), "the child was to outlive the owner"
        finally:
            if child:
                os.kill(child, signal.SIGKILL)


def test_an_owner_that_is_stopped_keeps_its_browser(stand_in: StandIn) -> None:
    with python(OWNER, str(stand_in.executable), str(stand_in.log), "alone") as owner:
        _, browser = map(int, line_of(owner).split())
        stand_in.facts()
        process = ProcessIdentity.of(browser)
        assert process is not None
        owner.send_signal(signal.SIGSTOP)
        assert not wait_until(is_dead(process), 0.3)
        owner.kill()
        assert wait_until(is_dead(process), PATIENCE)


def test_a_pipe_is_closed_once_although_its_numbers_are_used_again(tmp_path: Path) -> None:
    ends = os.pipe()
    pipe = OwnerPipe(*ends)
    pipe.close()
    again = os.pipe()
    try:
        assert set(again) == set(ends), "the system gives the lowest free numbers"
        pipe.close()
        OwnerPipe.close_all()
        for end in again:
            os.fstat(end)
    finally:
        for end in again:
            os.close(end)


def test_a_detached_process_has_a_session_of_its_own_and_outlives_its_starter(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from pytest_peaks.session.spawning import spawn_detached
print(spawn_detached([sys.executable, "-c", "import os, time; print(os.getsid(0), flush=True); time.sleep(300)"],
                     os.environ, Path(sys.argv[1])).pid, flush=True)
"""
    log = tmp_path / "log"
    with python(code, str(log)) as starter:
        pid = int(line_of(starter))
        identity = ProcessIdentity.of(pid)
        assert identity is not None
        starter.wait(PATIENCE)
    assert wait_until(lambda: log.exists() and log.read_text().strip() == str(pid), PATIENCE)
    assert identity.is_alive()
    assert end_tree(identity, grace=0)
    assert not identity.is_alive()


# Ending

TREE = """
import os, subprocess, sys, signal, time
depth, how = int(sys.argv[1]), sys.argv[2]
if how == "ignores TERM":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if depth > 1:
    child = subprocess.Popen([sys.executable, "-IS", "-c", sys.argv[3], str(depth - 1), how, sys.argv[3]],
                             stdout=subprocess.PIPE, start_new_session=True)
    below = child.stdout.readline().decode()
else:
    below = ""
print(os.getpid(), below.strip(), flush=True)
if how == "stopped" and depth == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(300)
"""


@contextlib.contextmanager
def tree(how: str, depth: int = 3) -> Iterator[list[ProcessIdentity]]:
    """Processes that started one another, root first, each in a session of its own; collected in the end."""
    with subprocess.Popen(
        [sys.executable, "-IS", "-c", TREE, str(depth), how, TREE],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as root:
        found = [ProcessIdentity.of(int(pid)) for pid in line_of(root).split()]
        identities = [identity for identity in found if identity is not None]
        try:
            assert len(identities) == depth
            yield identities
        finally:
            for identity in identities:
                if identity.is_alive():
                    os.kill(identity.pid, signal.SIGKILL)


@pytest.mark.parametrize("grace", [0.0, 0.5])
@pytest.mark.parametrize("how", ["plain", "ignores TERM", "stopped"])
def test_a_tree_of_three_levels_ends_whatever_state_it_is_in(how: str, grace: float) -> None:
    with tree(how) as identities:
        if how == "stopped":
            middle = psutil.Process(identities[1].pid)
            assert wait_until(lambda: middle.status() == psutil.STATUS_STOPPED, PATIENCE)
        started = time.monotonic()
        assert end_tree(identities[0], grace=grace)
        assert time.monotonic() - started < 5.0 + grace
        assert [identity.state() for identity in identities] == ["dead"] * 3


def test_a_stopped_root_ends_within_five_seconds() -> None:
    with tree("plain", depth=1) as (root,):
        os.kill(root.pid, signal.SIGSTOP)
        assert wait_until(lambda: psutil.Process(root.pid).status() == psutil.STATUS_STOPPED, PATIENCE)
        started = time.monotonic()
        assert end_tree(root, grace=0.5)
        assert time.monotonic() - started < 5.0
        assert not root.is_alive()


def test_a_process_that_leaves_when_asked_is_given_the_time_to(tmp_path: Path) -> None:
    code = """
import pathlib, signal, sys, time
def leave(*_):
    time.sleep(0.3)
    pathlib.Path(sys.argv[1]).write_text("tidied up")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("up", flush=True)
time.sleep(300)
"""
    with python(code, str(tmp_path / "note")) as process:
        assert line_of(process) == "up"
        identity = ProcessIdentity.of(process.pid)
        assert identity is not None
        assert end_tree(identity, grace=PATIENCE)
        assert (tmp_path / "note").read_text() == "tidied up"


@contextlib.contextmanager
def signals_noted() -> Iterator[list[tuple[int, int]]]:
    """What would have been signalled; nothing is."""
    sent: list[tuple[int, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psutil.Process, "send_signal", lambda self, number: sent.append((self.pid, number)))
        patch.setattr(psutil.Process, "kill", lambda self: sent.append((self.pid, signal.SIGKILL)))
        patch.setattr(psutil.Process, "terminate", lambda self: sent.append((self.pid, signal.SIGTERM)))
        patch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
        patch.setattr(processes, "KILL_WAIT", 0.05)
        yield sent


def test_a_process_whose_start_time_differs_survives() -> None:
    with tree("plain", depth=2) as identities:
        other = dataclasses.replace(identities[0], started=identities[0].started - 1)
        assert end_tree(other, grace=0.0), "the process that was recorded is gone"
        assert not processes.send(other, signal.SIGINT)
        assert not wait_until(lambda: not identities[0].is_alive(), 0.3)
        assert identities[1].is_alive()


@pytest.mark.parametrize("changes", [{"host": "elsewhere"}, {"boot": "another"}, {"namespace": "pid:[1]"}])
def test_a_process_of_another_machine_or_boot_is_not_looked_for_here(changes: dict[str, str]) -> None:
    with tree("plain", depth=1) as (root,):
        end_tree(dataclasses.replace(root, **changes), grace=0.0)
        assert not wait_until(lambda: not root.is_alive(), 0.3)


def test_neither_pid_1_nor_what_it_started_is_ever_signalled() -> None:
    init = ProcessIdentity.of(1)
    if init is None:
        pytest.skip("pid 1 is not visible")
    with signals_noted() as sent:
        assert not end_tree(init, grace=0.01)
        assert not processes.send(init, signal.SIGINT)
    assert sent == []


def test_neither_the_caller_nor_what_it_started_is_ever_signalled() -> None:
    with tree("plain", depth=1), signals_noted() as sent:
        assert not end_tree(ProcessIdentity.of_self(), grace=0.01)
        assert not processes.send(ProcessIdentity.of_self(), signal.SIGINT)
    assert sent == []


def test_the_caller_survives_the_end_of_a_tree_that_it_is_in() -> None:
    code = """
import os, subprocess, sys
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
processes.KILL_WAIT = 0.05
processes.end_tree(ProcessIdentity.of(os.getppid()), grace=0.0)
print("still here", flush=True)
"""
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with python(parent, code) as process:
        assert line_of(process) == "still here"
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_a_process_of_another_user_is_not_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    with tree("plain", depth=1) as (root,), signals_noted() as sent:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        assert not end_tree(root, grace=0.01)
        assert not processes.send(root, signal.SIGINT)
        assert root.is_alive()
    assert sent == []


# Escapees

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1] + ".new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(300)
    os._exit(0)
os.wait()
"""


@contextlib.contextmanager
def daemon(note: Path, *arguments: str, **env: str) -> Iterator[ProcessIdentity]:
    subprocess.run(
        [sys.executable, "-IS", "-c", DAEMON, str(note), *arguments], check=True, env={**os.environ, **env}
    )
    assert wait_until(note.exists, PATIENCE)
    identity = ProcessIdentity.of(int(note.read_text()))
    assert identity is not None
    try:
        yield identity
    finally:
        if identity.is_alive():
            os.kill(identity.pid, signal.SIGKILL)


def test_a_daemon_that_carries_the_mark_is_found_and_ended_and_no_other(tmp_path: Path) -> None:
    name = f"session-{os.getpid()}"
    with (
        daemon(tmp_path / "a", **{processes.MARK: name}) as marked,
        daemon(tmp_path / "b", **{processes.MARK: name + "0"}) as other,
        daemon(tmp_path / "c", NOTE=name) as unmarked,
    ):
        assert [process.pid for process in processes.marked(name, "")] == [marked.pid]
        assert processes.end_marked(name, "")
        assert not marked.is_alive()
        assert other.is_alive()
        assert unmarked.is_alive()
        assert processes.end_marked(name, "")


def test_a_daemon_on_the_sessions_profile_is_found_and_ended_and_no_other(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    with (
        daemon(tmp_path / "a", f"--user-data-dir={profile}") as ours,
        daemon(tmp_path / "b", f"--user-data-dir={profile}-2") as other,
        daemon(tmp_path / "c", str(profile)) as mention,
    ):
        assert processes.end_marked("no-such-session", str(profile))
        assert not ours.is_alive()
        assert other.is_alive()
        assert mention.is_alive()


def test_without_a_profile_a_switch_that_names_none_is_nobodys(tmp_path: Path) -> None:
    with daemon(tmp_path / "a", "--user-data-dir=") as foreign:
        assert processes.end_marked("no-such-session", "")
        assert foreign.is_alive()


def test_the_caller_is_not_ended_although_it_carries_the_mark() -> None:
    code = """
import os
from pytest_peaks.session import processes
assert processes.end_marked(os.environ[processes.MARK], "")
print("still here")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, processes.MARK: f"self-{os.getpid()}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "still here\n", done.stderr


# The environment


def test_a_sessions_environment_has_its_mark_its_temp_dir_and_no_settings_of_other_servers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_MCP_ALLOWED_HOSTS", "*")
    monkeypatch.setenv("PLAYWRIGHT_MCP_CDP_ENDPOINT", "http://elsewhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/browsers")
    monkeypatch.setenv(processes.MARK, "outer")
    env = child_environment("inner", tmp_path)
    assert not [name for name in env if name.startswith("PLAYWRIGHT_MCP_")]
    assert env["PLAYWRIGHT_BROWSERS_PATH"] == "/browsers"
    assert env[processes.MARK] == "inner"
    assert {env[name] for name in ("TMPDIR", "TEMP", "TMP")} == {str(tmp_path)}
    assert os.environ[processes.MARK] == "outer"
