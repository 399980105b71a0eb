"""`peaks playwright start | ls | stop`, through the real command, a real browser and a real MCP client."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from leaks import Surroundings

from pytest_peaks.doors.mcp import McpClient
from pytest_peaks.errors import McpFailedError
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals")

DEFAULT = range(8931, 8950)
COMMAND = [sys.executable, "-c", "from pytest_peaks.cli import main; main()", "playwright"]
# For a machine that is out of breath; no test waits this long where all is well.
PATIENCE = 90.0


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)


@dataclass
class Hosts:
    """`peaks playwright` in one project.

    :ivar ports: such that no other test uses.
    """

    folder: Path
    ports: Iterator[int]

    @property
    def dirs(self) -> ProjectDirs:
        return ProjectDirs.locate(self.folder)

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            start_new_session=True,  # nobody's terminal
        )

    def spawn(self, *arguments: str, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def text(self, *arguments: str, **env: str) -> str:
        """What is said where all is well."""
        done = self.run(*arguments, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr
        return done.stdout

    def ok(self, *arguments: str, **env: str) -> dict[str, Any]:
        """The object that is printed where all is well."""
        return succeeded(self.run(*arguments, "--json", **env))

    def fails(self, code: str, status: int, *arguments: str, **env: str) -> dict[str, Any]:
        """The object that is printed for a failure, which says the same as the text on stderr."""
        return failed(self.run(*arguments, "--json", **env), code, status)

    def start(self, terminal: str, *arguments: str) -> dict[str, Any]:
        """Start a session on a port of this test's own; its record."""
        chosen = () if "--port" in arguments else ("--port", str(next(self.ports)))
        session: dict[str, Any] = self.ok("start", "--terminal", terminal, *chosen, *arguments)["session"]
        return session

    def listed(self) -> list[dict[str, Any]]:
        sessions: list[dict[str, Any]] = self.ok("ls")["sessions"]
        return sessions

    def record(self, terminal: str) -> Record:
        found = Registry(self.dirs.records).read(terminal)
        assert found is not None, f"{terminal} has a record"
        return found

    def has_record(self, terminal: str) -> bool:
        return Registry(self.dirs.records).path_of(terminal).exists()


def one_object(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stdout + done.stderr
    found = json.loads(lines[0])
    assert isinstance(found, dict)
    assert found["schema"] == 1
    assert "Traceback" not in done.stderr
    return found


def succeeded(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found = one_object(done)
    assert found["ok"] is True, found
    assert done.returncode == 0
    return found


def failed(done: subprocess.CompletedProcess[str], code: str, status: int) -> dict[str, Any]:
    found = one_object(done)
    assert (found["ok"], found.get("error"), done.returncode) == (False, code, status), found
    assert "--peaks" not in found["hint"]
    return found


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the developer's terminal."""
    for name in ("TERM_SESSION_ID", "WT_SESSION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def hosts(tmp_path: Path, surroundings: Surroundings) -> Iterator[Hosts]:
    """A project of the test's own, checked for leaks at the end."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    yield Hosts(folder, iter(surroundings.ports))
    surroundings.assert_clean(folder)


@contextmanager
def listener(port: int) -> Iterator[None]:
    """Another program on `port`, if there is none already."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
            other.listen()
        except OSError:
            pass
        yield


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def url_of(session: dict[str, Any]) -> str:
    return str(session["endpoints"]["mcp"])


def works(session: dict[str, Any]) -> bool:
    """Whether a tool call works."""
    with McpClient(url_of(session)) as client:
        return bool(client.call("browser_tabs", action="list").text)


def script(folder: Path, name: str, body: str) -> str:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o700)
    return str(file)


@pytest.fixture
def bystander() -> Iterator[ProcessIdentity]:
    """A process that must not be signalled."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        identity = ProcessIdentity.of(process.pid)
        assert identity is not None
        yield identity
        assert process.poll() is None, "it was signalled"
        process.communicate(b"\n")


# Start


def test_start_says_what_the_first_design_says_and_how_to_connect(hosts: Hosts) -> None:
    port = next(hosts.ports)
    lines = hosts.text("start", "--terminal", "mine", "--port", str(port)).splitlines()
    assert lines[0] == f"playwright MCP started on port {port} (browser=chromium, terminal=mine)"
    assert lines[1] == f"MCP URL: http://localhost:{port}/mcp"
    config = json.loads("\n".join(lines[3:]))
    assert config == {"mcpServers": {"playwright": {"type": "http", "url": f"http://localhost:{port}/mcp"}}}
    assert hosts.text("stop", "--terminal", "mine") == (
        f"stopped playwright session on port {port} (terminal=mine)\n"
    )


def test_what_is_started_is_a_real_server_on_a_real_browser(hosts: Hosts, site: str) -> None:
    session = hosts.start("mine")
    with McpClient(url_of(session)) as client:
        assert "browser_navigate" in {tool.name for tool in client.tools}
        client.call("browser_navigate", url=f"{site}/one")
        assert 'heading "page"' in client.snapshot()
    # Another client finds what the first one left: it is one browser, and it stays.
    with McpClient(url_of(session)) as client:
        assert f"{site}/one" in client.call("browser_tabs", action="list").text
    assert [row["tabs"] for row in hosts.listed()] == [1]
    hosts.ok("stop", "--terminal", "mine")


def test_the_record_has_the_first_designs_fields_and_says_whose_the_session_is(hosts: Hosts) -> None:
    port = next(hosts.ports)
    answer = hosts.ok("start", "--terminal", "mine", "--port", str(port))
    file = hosts.folder / ".peaks/_runtime/playwright-sessions/mine.json"
    assert answer["sessionFile"] == str(file)
    record = json.loads(file.read_text())
    assert record == answer["session"]
    assert list(record)[:7] == [
        *("terminalId", "port", "browser", "userDataDir", "startedAt", "pid"),
        "schema",
    ]
    assert (record["terminalId"], record["port"], record["browser"], record["schema"]) == (
        *("mine", port, "chromium"),
        1,
    )
    assert record["userDataDir"] == str(hosts.folder / ".peaks/_runtime/playwright-userdata/mine")
    assert Path(record["userDataDir"]).is_dir()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["startedAt"])
    assert (record["kind"], record["status"], record["ephemeral"]) == ("hosted", "ready", True)

    parts = hosts.record("mine")
    assert record["pid"] == parts.processes["browser"].pid
    assert parts.owner.is_alive()
    assert all(part.is_alive() for part in parts.processes.values())
    assert {*parts.processes} == {"browser", "mcp"}
    # It outlives the command, in a session of its own.
    assert os.getsid(parts.owner.pid) == parts.owner.pid
    hosts.ok("stop", "--terminal", "mine")


def test_only_this_machine_and_this_user_can_reach_it(hosts: Hosts, surroundings: Surroundings) -> None:
    session = hosts.start("mine")
    ours = {part["pid"] for part in session["identities"].values()} | {session["owner"]["pid"]}
    listening = [
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.pid in ours and connection.status == psutil.CONN_LISTEN and connection.laddr
    ]
    assert len(listening) >= 2  # the server's and the browser's
    assert set(listening) <= {"127.0.0.1", "::1"}

    # A page in some browser, under a name that leads here, gets nothing.
    with closing(http.client.HTTPConnection("127.0.0.1", session["port"], timeout=30)) as connection:
        connection.request("POST", "/mcp", "{}", {"Host": "evil.example", "Content-Type": "application/json"})
        assert connection.getresponse().status == 403

    runtime = hosts.folder / ".peaks/_runtime"
    for folder in (*runtime.iterdir(), surroundings.runtime, Path(session["tempDir"])):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
    logs = [runtime / "logs/mine.log", runtime / "logs/mine.mcp.log"]
    record = runtime / "playwright-sessions/mine.json"
    for file in (record, *logs, *surroundings.runtime.rglob("*.json")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    hosts.ok("stop", "--terminal", "mine")


def test_none_of_it_gets_into_a_repository(tmp_path: Path, hosts: Hosts) -> None:
    (hosts.folder / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(hosts.folder)], check=True)
    hosts.start("mine")
    status = subprocess.run(
        ["git", "-C", str(hosts.folder), "status", "--porcelain", "--untracked-files=all"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert status.stdout == ""
    hosts.ok("stop", "--terminal", "mine")


def test_the_two_terminals_of_the_first_design(hosts: Hosts) -> None:
    """Its "Typical two-terminal setup", line by line; the default range is everybody's on this machine."""
    terminal_a, terminal_b = {"TERM_SESSION_ID": "w0t0p0:AA"}, {"TERM_SESSION_ID": "w0t1p0:BB"}
    said = r"playwright MCP started on port (\d+) \(browser=chromium, terminal={}\)"
    first = re.match(said.format("w0t0p0_AA"), hosts.text("start", **terminal_a))
    second = re.match(said.format("w0t1p0_BB"), hosts.text("start", **terminal_b))
    assert first
    assert second
    ports = [int(first[1]), int(second[1])]
    assert ports[0] != ports[1]
    assert set(ports) <= set(DEFAULT)

    listed = hosts.text("ls", **terminal_a).splitlines()
    row = r"port={}\s+browser=chromium\s+terminal={}\s+pid=\d+\s+started=\d{{4}}-\d\d-\d\dT[\d:.]+Z(\s|$)"
    expected = sorted(zip(ports, ("w0t0p0_AA", "w0t1p0_BB"), strict=True))
    assert len(listed) == 2
    for line, (port, terminal) in zip(listed, expected, strict=True):
        assert re.match(row.format(port, terminal), line), line

    assert hosts.text("stop", **terminal_a) == (
        f"stopped playwright session on port {ports[0]} (terminal=w0t0p0_AA)\n"
    )
    assert [found["port"] for found in hosts.listed()] == [ports[1]]
    assert works(hosts.listed()[0])
    hosts.text("stop", **terminal_b)
    assert hosts.text("ls") == "no playwright sessions running\n"


@pytest.mark.parametrize("place", ["before the group", "before the verb", "after the verb"])
def test_json_is_taken_anywhere(hosts: Hosts, place: str) -> None:
    def call(verb: str, *rest: str) -> dict[str, Any]:
        words = {
            "before the group": ["--json", "playwright", verb],
            "before the verb": ["playwright", "--json", verb],
            "after the verb": ["playwright", verb, "--json"],
        }[place]
        done = subprocess.run(
            [*COMMAND[:-1], *words, *rest], cwd=hosts.folder, capture_output=True, text=True, check=False
        )
        assert not done.stderr
        return succeeded(done)

    port = next(hosts.ports)
    started = call("start", "--terminal", "mine", "--port", str(port))
    assert started["action"] == "start"
    assert started["reused"] is False
    assert started["mcpUrl"] == f"http://localhost:{port}/mcp"
    assert started["mcpServers"] == {"playwright": {"type": "http", "url": started["mcpUrl"]}}
    [row] = call("ls")["sessions"]
    assert {key: row[key] for key in started["session"]} == started["session"]
    assert (row["alive"], row["mcpUrl"], row["tabs"]) == (True, started["mcpUrl"], 1)
    assert 0 <= row["ageSeconds"] < PATIENCE
    assert call("stop", "--terminal", "mine")["stopped"]["terminalId"] == "mine"


def test_the_project_is_the_repository_around_the_working_directory(hosts: Hosts, tmp_path: Path) -> None:
    below = hosts.folder / "a" / "b"
    below.mkdir(parents=True)
    inside = replace(hosts, folder=below)
    inside.start("mine")
    assert hosts.has_record("mine")
    outside = replace(hosts, folder=tmp_path)
    assert outside.listed() == []
    [row] = outside.ok("ls", "--project", str(below))["sessions"]
    assert row["project"] == str(hosts.folder)
    # From anywhere, every project of this user.
    assert [row["terminalId"] for row in outside.ok("ls", "--all")["sessions"]] == ["mine"]
    outside.ok("stop", "--terminal", "mine", "--project", str(hosts.folder))


def test_one_terminal_has_a_session_in_each_of_two_projects(hosts: Hosts, tmp_path: Path) -> None:
    other = replace(hosts, folder=tmp_path / "other")
    (other.folder / ".git").mkdir(parents=True)
    mine, theirs = hosts.start("mine"), other.start("mine")
    assert {row["port"] for row in hosts.ok("ls", "--all")["sessions"]} == {mine["port"], theirs["port"]}
    hosts.ok("stop", "--terminal", "mine")
    assert works(theirs)
    other.ok("stop", "--terminal", "mine")


# Which terminal


def test_terminals_whose_ids_look_alike_have_a_session_each(hosts: Hosts) -> None:
    slash, space = {"TERM_SESSION_ID": "a/b"}, {"TERM_SESSION_ID": "a b"}
    first = hosts.ok("start", "--port", str(next(hosts.ports)), **slash)["session"]
    second = hosts.ok("start", "--port", str(next(hosts.ports)), **space)["session"]
    assert first["terminalId"] == "a_b"
    assert re.fullmatch(r"a_b-[0-9a-f]{8}", second["terminalId"])
    for environ, session in ((slash, first), (space, second)):
        assert hosts.ok("start", "--reuse", **environ)["session"]["port"] == session["port"]
    hosts.ok("stop", **slash)
    assert hosts.ok("start", "--reuse", **space)["session"]["port"] == second["port"]
    hosts.fails("NO_SESSION", 2, "stop", **slash)
    hosts.ok("stop", **space)


def test_a_terminal_id_can_be_chosen(hosts: Hosts) -> None:
    chosen = {"PEAKS_TERMINAL_ID": "chosen", "TERM_SESSION_ID": "other"}
    port = str(next(hosts.ports))
    assert hosts.ok("start", "--port", port, **chosen)["session"]["terminalId"] == "chosen"
    assert hosts.ok("stop", **chosen)["stopped"]["terminalId"] == "chosen"
    named = hosts.ok("start", "--terminal", "named", "--port", port, **chosen)
    assert named["session"]["terminalId"] == "named"
    hosts.ok("stop", "--terminal", "named", **chosen)


@pytest.mark.parametrize("text", ["..", "a/b", "", "x" * 65, "x@y", "../../victim"])
def test_an_id_that_could_be_a_path_is_refused_and_nothing_touched(
    hosts: Hosts, bystander: ProcessIdentity, text: str
) -> None:
    victim = hosts.dirs.records.parent.parent.parent / "victim.json"
    owner = bystander.to_json()
    victim.write_text(json.dumps({"terminalId": "victim", "pid": bystander.pid, "owner": owner}))
    before = victim.read_text()
    for verb in ("start", "stop"):
        hosts.fails("INVALID_NAME", 2, verb, "--terminal", text)
    assert victim.read_text() == before
    assert not (hosts.folder / ".peaks").exists()


def test_start_refuses_the_name_of_a_further_session(hosts: Hosts) -> None:
    assert "--port" in hosts.fails("INVALID_NAME", 2, "start", "--terminal", "x@8940")["hint"]


def test_without_a_terminal_the_only_live_session_is_meant(hosts: Hosts) -> None:
    hosts.fails("NO_SESSION", 2, "stop")
    first = hosts.start("one")
    again = hosts.ok("start", "--reuse")
    assert (again["reused"], again["session"]["port"]) == (True, first["port"])
    second = hosts.start("two")
    for arguments in (("stop",), ("start", "--reuse")):
        message = hosts.fails("NO_SESSION", 2, *arguments)["message"]
        for session in (first, second):
            assert f"{session['terminalId']} on port {session['port']}" in message
    named = hosts.ok("start", "--reuse", "--port", str(second["port"]))
    assert named["session"]["terminalId"] == "two"
    hosts.ok("stop", "--terminal", "two")
    assert hosts.ok("stop")["stopped"]["terminalId"] == "one"


@pytest.fixture
def shell(hosts: Hosts, tmp_path: Path) -> Iterator[Any]:
    """A shell on a terminal, where ``peaks …`` is the command."""
    pexpect = pytest.importorskip("pexpect")
    quoted = " ".join(f"'{word}'" for word in COMMAND)
    command = script(tmp_path, "peaks", f'shift; exec {quoted} "$@"')
    child = pexpect.spawn(
        "/bin/sh",
        cwd=str(hosts.folder),
        env={**os.environ, "PS1": "", "PATH": f"{Path(command).parent}:{os.environ['PATH']}"},
        encoding="utf-8",
        timeout=PATIENCE,
        dimensions=(24, 80),
        echo=False,
    )
    yield child
    child.close(force=True)


def typed(shell: Any, line: str) -> str:
    """Run a line; what it printed."""
    shell.sendline(f"{line}; echo done-$((20+3))")
    shell.expect("done-23\r\n")
    return str(shell.before)


def test_a_terminals_id_is_its_shells_whatever_wraps_the_command(hosts: Hosts, shell: Any) -> None:
    port = next(hosts.ports)
    expected = "tty-" + hashlib.sha256(f"{shell.pid}-no-tty".encode()).hexdigest()[:16]
    said = typed(shell, f"peaks playwright start --port {port}")
    assert f"playwright MCP started on port {port} (browser=chromium, terminal={expected})" in said
    for wrapped in (
        "peaks playwright start --reuse",
        "sh -c 'peaks playwright start --reuse; true'",
        "sh -c \"sh -c 'peaks playwright start --reuse; true'; true\"",
        "(true; peaks playwright start --reuse; true)",
        "setsid -w true; nice peaks playwright start --reuse",
    ):
        assert f"is running on port {port} (browser=chromium, terminal={expected})" in typed(shell, wrapped)
    assert "CONFLICT" in typed(shell, "sh -c 'peaks playwright start; true'")
    assert f"stopped playwright session on port {port}" in typed(shell, "sh -c 'peaks playwright stop; true'")


def test_a_session_survives_the_end_of_its_terminal_whole(hosts: Hosts, shell: Any) -> None:
    port = next(hosts.ports)
    typed(shell, f"peaks playwright start --terminal mine --port {port}")
    shell.kill(signal.SIGHUP)
    shell.close(force=True)
    wait_until(lambda: not shell.isalive(), "the shell's end")
    [row] = hosts.listed()
    assert row["alive"]
    assert works(row)
    assert all(part.is_alive() for part in hosts.record("mine").processes.values())
    hosts.ok("stop", "--terminal", "mine")


def test_a_terminal_that_is_closed_during_a_start_leaves_nothing(hosts: Hosts, shell: Any) -> None:
    hang = script(hosts.folder, "hang", "exec sleep 600")
    shell.sendline(f"peaks playwright start --terminal mine --port {next(hosts.ports)} --executable {hang}")
    wait_until(lambda: hosts.has_record("mine") and hosts.record("mine").pid, "a browser that starts")
    shell.close(force=True)


# Ls


def test_ls_is_a_table_on_a_terminal_and_cuts_no_url(hosts: Hosts, shell: Any) -> None:
    session = hosts.start("a-terminal-with-a-rather-long-name-that-takes-much-of-the-width")
    said = re.sub(r"\x1b\[[0-9;]*m", "", typed(shell, "peaks playwright ls"))
    assert "MCP URL" in said
    assert "│" in said
    assert url_of(session) in said
    assert session["terminalId"] in said
    assert "…" not in said
    hosts.ok("stop", "--all")


def test_ls_in_a_pipe_is_a_line_a_session_sorted_by_port(hosts: Hosts) -> None:
    ports = [next(hosts.ports), next(hosts.ports)]
    hosts.start("aa", "--port", str(ports[1]))
    hosts.start("bb", "--port", str(ports[0]))
    lines = hosts.text("ls").splitlines()
    assert [re.findall(r"(\w+)=(\S+)", line)[0] for line in lines] == [("port", str(port)) for port in ports]
    for line, port in zip(lines, ports, strict=True):
        fields = dict(re.findall(r"(\w+)=(\S+)", line))
        assert list(fields) == [
            *("port", "browser", "terminal", "pid", "started"),
            *("state", "age", "tabs", "mcp"),
        ]
        assert (fields["state"], fields["tabs"]) == ("alive", "1")
        assert fields["mcp"] == f"http://localhost:{port}/mcp"
        assert re.fullmatch(r"\d+s", fields["age"])
    stopped = hosts.ok("stop", "--all")["stopped"]
    assert [session["terminalId"] for session in stopped] == ["bb", "aa"]
    assert hosts.ok("stop", "--all")["stopped"] == []
    assert hosts.listed() == []


def test_ls_loads_neither_playwright_nor_what_draws_tables(hosts: Hosts) -> None:
    hosts.start("mine")
    code = """
import atexit, sys
heavy = ("playwright", "rich", "pytest", "asyncio")
atexit.register(lambda: print("imported:", [name for name in heavy if name in sys.modules]))
"""
    for arguments in (["ls"], ["ls", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", code + COMMAND[2], "playwright", *arguments],
            cwd=hosts.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "mine" in done.stdout
        assert done.stdout.endswith("imported: []\n")
    hosts.ok("stop", "--all")


# A second start


def test_a_second_start_conflicts_and_says_how_to_go_on(hosts: Hosts) -> None:
    session = hosts.start("mine")
    done = hosts.run("start", "--terminal", "mine")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[0] == (
        f"CONFLICT: another playwright MCP is already running on port {session['port']} (terminal mine). "
        "Reuse it (--reuse) or pick a new port (--port <n>)."
    )
    conflict = hosts.fails("CONFLICT", 2, "start", "--terminal", "mine")
    assert f"port {session['port']}" in conflict["message"]
    assert "--reuse" in conflict["hint"]
    # Another terminal's is not in the way.
    hosts.start("theirs")
    hosts.ok("stop", "--all")


def test_reuse_returns_the_session_and_spawns_nothing(hosts: Hosts, surroundings: Surroundings) -> None:
    session = hosts.start("mine", "--reuse")  # there was none yet
    before = {process.pid for process in surroundings.processes()}
    for arguments in ((), ("--browser", "chromium"), ("--port", str(session["port"]))):
        again = hosts.ok("start", "--terminal", "mine", "--reuse", *arguments)
        assert again["reused"] is True
        assert again["session"] == session
        assert again["mcpUrl"] == url_of(session)
        assert again["sessionFile"].endswith("/mine.json")
    assert {process.pid for process in surroundings.processes()} == before
    said = hosts.text("start", "--terminal", "mine", "--reuse")
    assert said.startswith(f"playwright MCP is running on port {session['port']} (browser=chromium")
    hosts.ok("stop", "--terminal", "mine")


def test_reuse_refuses_a_session_that_is_not_what_was_asked_for(hosts: Hosts) -> None:
    session = hosts.start("mine")
    for arguments, reason in (
        (("--browser", "firefox"), "its browser is chromium, not firefox"),
        (("--user-data-dir", "profiles/alice"), "its profile is"),
    ):
        refused = hosts.fails("CONFLICT", 2, "start", "--terminal", "mine", "--reuse", *arguments)
        assert reason in refused["message"]
        assert str(session["port"]) in refused["message"]
    hosts.ok("stop", "--terminal", "mine")


def test_a_port_is_the_other_way_out_of_a_conflict(hosts: Hosts) -> None:
    first = hosts.start("mine")
    second = hosts.start("mine", "--port", str(next(hosts.ports)))
    assert second["terminalId"] == f"mine@{second['port']}"
    assert second["userDataDir"] != first["userDataDir"]
    assert [row["terminalId"] for row in hosts.listed()] == ["mine", second["terminalId"]]
    assert works(first)
    assert works(second)
    reused = hosts.ok("start", "--terminal", "mine", "--reuse", "--port", str(second["port"]))
    assert reused["session"] == second
    ambiguous = hosts.fails("NO_SESSION", 2, "stop", "--terminal", "mine")
    assert "--port" in ambiguous["hint"]
    hosts.fails("NO_SESSION", 2, "stop", "--terminal", "theirs", "--port", str(second["port"]))
    assert hosts.ok("stop", "--port", str(second["port"]))["stopped"] == {**second, "portFree": True}
    assert works(first)
    third = hosts.start("mine", "--port", str(second["port"]))
    assert third["port"] == second["port"]
    hosts.ok("stop", "--terminal", third["terminalId"])
    hosts.ok("stop", "--terminal", "mine")


def test_a_dead_record_is_cleared_and_reported(hosts: Hosts) -> None:
    session = hosts.start("mine")
    record = hosts.record("mine")
    for identity in (record.owner, *record.processes.values()):
        psutil.Process(identity.pid).kill()
    [row] = hosts.listed()
    assert (row["alive"], row["state"], row["tabs"]) == (False, "dead", None)
    port = next(hosts.ports)
    said = hosts.text("start", "--terminal", "mine", "--port", str(port))
    assert f"started on port {port}" in said
    assert f"cleared away a dead session on port {session['port']}" in said
    assert [row["port"] for row in hosts.listed()] == [port]
    hosts.ok("stop", "--terminal", "mine")


# Ports


def test_a_busy_port_of_the_range_walks_upward_and_says_so(hosts: Hosts) -> None:
    asked = DEFAULT[-6]
    with listener(asked):
        answer = hosts.ok("start", "--terminal", "mine", "--port", str(asked))
        assert answer["walked"] is True
        assert asked < answer["session"]["port"] <= DEFAULT[-1]
        said = hosts.text("start", "--terminal", "other", "--port", str(asked))
    assert f"port {asked} is taken; " in said
    hosts.ok("stop", "--all")


def test_the_end_of_the_range_is_the_end_of_the_walk(hosts: Hosts) -> None:
    with listener(DEFAULT[-1]):
        hosts.fails("PORT_EXHAUSTED", 3, "start", "--terminal", "mine", "--port", str(DEFAULT[-1]))


@pytest.mark.parametrize("holder", ["127.0.0.1", "0.0.0.0", "::", "::1", "session"])
def test_a_port_outside_of_the_range_is_that_port_or_none(hosts: Hosts, holder: str) -> None:
    asked = next(hosts.ports)
    with socket.socket(socket.AF_INET6 if ":" in holder else socket.AF_INET) as other:
        if holder == "session":
            hosts.start("other", "--port", str(asked))
        else:
            try:
                other.bind((holder, asked))
            except OSError:
                pytest.skip(f"{holder} is no address here")
            other.listen()
        refused = hosts.fails("PORT_EXHAUSTED", 3, "start", "--terminal", "mine", "--port", str(asked))
    assert refused["message"] == f"port {asked} is taken"
    assert "--port" in refused["hint"]
    if holder == "session":
        hosts.ok("stop", "--all")


@pytest.mark.parametrize(
    "text", ["abc", "80", "0", "70000", "-1", "8931x", "8931-8940", "", "٨٩٣١", "8931.0"]
)
def test_what_is_no_port_is_refused(hosts: Hosts, text: str) -> None:
    for verb in ("start", "stop"):
        assert text in hosts.fails("INVALID_PORT", 2, verb, "--port", text)["message"]
    assert not (hosts.folder / ".peaks").exists()


def test_a_port_that_is_lost_between_probe_and_bind_is_left_to_the_other(hosts: Hosts) -> None:
    # This one takes the first port just before the real server would, once.
    asked = DEFAULT[2]
    thief = script(
        hosts.folder,
        "thief",
        f"""if mkdir {hosts.folder}/once 2>/dev/null; then
  echo 'Error: listen EADDRINUSE: address already in use' >&2; exit 1
fi
exec {server_of_the_wheel()} "$@"
""",
    )
    started = hosts.ok("start", "--terminal", "mine", "--port", str(asked), "--mcp-command", thief)
    assert asked < started["session"]["port"] <= DEFAULT[-1]
    assert works(started["session"])
    hosts.ok("stop", "--terminal", "mine")


def server_of_the_wheel() -> str:
    """The bundled server's command line, as a user could give it."""
    from pytest_peaks.doors.mcp import driver_command

    return " ".join([*driver_command(), "mcp"])


@pytest.mark.parametrize("how", ["itself", "below a wrapper"])
def test_another_mcp_server_has_the_same_life(hosts: Hosts, surroundings: Surroundings, how: str) -> None:
    command = server_of_the_wheel()
    if how == "below a wrapper":  # as npx is one
        command = script(hosts.folder, "wrapper", f'{command} "$@"; exit $?')
    options = ("--mcp-command", command, "--idle-timeout", "1")
    session = hosts.start("mine", *options)
    McpClient(url_of(session)).call("browser_tabs", action="list")
    wait_until(lambda: not hosts.has_record("mine"), "the end of an idle session")
    surroundings.assert_clean(hosts.folder)

    session = hosts.start("mine", *options[:2])
    record = hosts.record("mine")
    psutil.Process(record.owner.pid).kill()
    wait_until(lambda: not any(part.is_alive() for part in record.processes.values()), "its end")
    wait_until(lambda: not surroundings.processes(), "the end of what is below")
    hosts.ok("stop", "--terminal", "mine")

    hosts.start("mine", *options[:2])
    hosts.ok("stop", "--terminal", "mine")
    assert surroundings.processes() == []


# Profiles


def test_a_users_own_profile_is_kept_and_lent_once(hosts: Hosts, tmp_path: Path) -> None:
    session = hosts.start("mine", "--user-data-dir", "profiles/alice")
    profile = hosts.folder / "profiles/alice"
    assert session["userDataDir"] == str(profile)
    assert session["ephemeral"] is False
    second = ("start", "--terminal", "other", "--port", str(next(hosts.ports)))
    (hosts.folder / "link").symlink_to(profile)
    for spelling in ("profiles/alice", "./profiles/../profiles/alice", str(profile), "link"):
        refused = hosts.fails("PROFILE_IN_USE", 2, *second, "--user-data-dir", spelling)
        assert str(profile) in refused["message"]
    again = hosts.ok("start", "--terminal", "mine", "--reuse", "--user-data-dir", "profiles/alice")
    assert again["reused"] is True
    hosts.ok("stop", "--terminal", "mine")
    assert any(profile.iterdir())


OUTSIDE = ("..", "../elsewhere", "/tmp/elsewhere", "a/../..", "leads-out/x", "leads-out", "../project2")
NONE_AT_ALL = (".", "", "a-file", "~nobody-of-that-name/x", ".peaks", ".peaks/_runtime/playwright-userdata/x")


@pytest.mark.parametrize("text", [*OUTSIDE, *NONE_AT_ALL])
def test_a_profile_elsewhere_is_refused(hosts: Hosts, tmp_path: Path, text: str) -> None:
    (tmp_path / "project2").mkdir()
    (tmp_path / "outside").mkdir()
    (hosts.folder / "leads-out").symlink_to(tmp_path / "outside")
    (hosts.folder / "a-file").write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    hosts.fails("INVALID_USER_DATA_DIR", 2, "start", "--terminal", "mine", "--user-data-dir", text)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_kept_profile_is_the_terminals_next_one(hosts: Hosts, site: str) -> None:
    def in_page(session: dict[str, Any], expression: str) -> str:
        with McpClient(url_of(session)) as client:
            client.call("browser_navigate", url=site)
            return client.call("browser_evaluate", function=f"() => {expression}").section("Result")

    session = hosts.start("mine")
    in_page(session, "localStorage.setItem('kept', 'yes')")
    hosts.ok("stop", "--terminal", "mine", "--keep-profile")
    assert Path(session["userDataDir"]).is_dir()
    reaped = subprocess.run([*COMMAND[:-1], "reap"], cwd=hosts.folder, check=True, capture_output=True)
    assert b"nothing to reap" in reaped.stdout
    # Nor does the start of another terminal, which sweeps, remove it.
    hosts.start("other")
    again = hosts.start("mine")
    assert again["userDataDir"] == session["userDataDir"]
    assert in_page(again, "localStorage.getItem('kept')") == '"yes"'
    hosts.ok("stop", "--terminal", "mine")
    assert not Path(session["userDataDir"]).exists()
    fresh = hosts.start("mine")
    assert in_page(fresh, "localStorage.getItem('kept')") == "null"
    hosts.ok("stop", "--all")


# Starts that fail


def test_an_unknown_browser_is_an_error(hosts: Hosts) -> None:
    refused = hosts.fails("INVALID_OPTION", 2, "start", "--terminal", "mine", "--browser", "netscape")
    assert "firefox" in refused["hint"]


def test_a_missing_browser_comes_with_its_command(hosts: Hosts, tmp_path: Path) -> None:
    refused = hosts.fails(
        *("BROWSER_NOT_FOUND", 1, "start", "--terminal", "mine", "--browser", "firefox"),
        PLAYWRIGHT_BROWSERS_PATH=str(tmp_path),
    )
    assert "playwright install firefox" in refused["hint"]
    assert "--executable" in refused["hint"]
    assert not hosts.has_record("mine")


def test_a_window_without_a_display(hosts: Hosts) -> None:
    refused = hosts.fails(
        *("NO_DISPLAY", 1, "start", "--terminal", "mine", "--headed"), DISPLAY="", WAYLAND_DISPLAY=""
    )
    assert "--headed" in refused["hint"]


@pytest.mark.parametrize(
    ("option", "body"), [("--executable", "echo boom; exit 3"), ("--mcp-command", "echo boom; exit 3")]
)
def test_what_does_not_start_is_told_with_the_end_of_its_log(hosts: Hosts, option: str, body: str) -> None:
    broken = script(hosts.folder, "broken", body)
    for value in (broken, "/bin/false"):
        refused = hosts.fails(
            *("START_FAILED", 5, "start", "--terminal", "mine", "--port", str(next(hosts.ports))),
            *(option, value),
        )
        if value == broken:
            assert "boom" in refused["message"]
        assert refused["hint"]
        assert hosts.listed() == []
    done = hosts.run("start", "--terminal", "mine", "--port", str(next(hosts.ports)), option, broken)
    assert done.stdout == ""
    assert done.stderr.startswith("START_FAILED: ")


def test_a_command_that_is_not_there(hosts: Hosts) -> None:
    port = str(next(hosts.ports))
    refused = hosts.fails(
        *("START_FAILED", 5, "start", "--terminal", "mine", "--port", port),
        *("--mcp-command", "no-such-server; touch pwned"),
    )
    assert "no-such-server" in refused["message"]
    assert "--mcp-command" in refused["hint"]
    assert not (hosts.folder / "pwned").exists()  # no shell
    hosts.fails(
        *("BROWSER_NOT_FOUND", 1, "start", "--terminal", "mine", "--port", port),
        *("--executable", "no-such-browser"),
    )


def test_an_executable_is_looked_for_from_where_the_user_is(hosts: Hosts) -> None:
    below = hosts.folder / "below"
    below.mkdir()
    script(below, "broken", "echo found; exit 3")
    inside = replace(hosts, folder=below)
    refused = inside.fails(
        *("START_FAILED", 5, "start", "--terminal", "mine", "--port", str(next(hosts.ports))),
        *("--executable", "broken"),
    )
    assert "found" in refused["message"]


MOMENTS = ("spawned", "recorded", "browser", "server", "ready", "answered")

# A start that stands still once it has spawned its supervisor, so that it takes no answer.
FROZEN = """
import os, signal
from pytest_peaks.session import spawning

spawn = spawning.spawn_detached

def spawn_and_freeze(*arguments):
    spawned = spawn(*arguments)
    os.kill(os.getpid(), signal.SIGSTOP)
    return spawned

spawning.spawn_detached = spawn_and_freeze
"""


def has_come(moment: str, hosts: Hosts, around: Surroundings) -> bool:
    """How far a start is."""
    if moment == "answered":
        return any((around.runtime / "starts").glob("*.json"))
    if moment in ("spawned", "server"):
        word = "hosting.supervisor" if moment == "spawned" else "door_notes.mjs"
        return any(word in line for line in command_lines(around))
    found = Registry(hosts.dirs.records).read("mine")
    if found is None or moment == "recorded":
        return found is not None
    return found.status == "ready" if moment == "ready" else bool(found.processes)


def command_lines(around: Surroundings) -> list[str]:
    found = []
    for process in around.processes():
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_start_that_is_ended_before_its_answer_leaves_nothing(
    hosts: Hosts, surroundings: Surroundings, moment: str, number: int
) -> None:
    port = str(next(hosts.ports))
    start = subprocess.Popen(
        [
            sys.executable,
            "-c",
            FROZEN + COMMAND[2],
            "playwright",
            "start",
            "--terminal",
            "mine",
            "--port",
            port,
        ],
        cwd=hosts.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    status = psutil.Process(start.pid).status
    wait_until(lambda: status() == psutil.STATUS_STOPPED, "a start with a supervisor")
    wait_until(lambda: has_come(moment, hosts, surroundings), moment)
    start.send_signal(number)
    start.send_signal(signal.SIGCONT)
    said = start.communicate(timeout=PATIENCE)
    assert start.returncode in (-number, 130), said
    surroundings.assert_clean(hosts.folder)


@pytest.mark.parametrize("what", ["--executable", "--mcp-command"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_start_that_hangs_ends_with_its_command(
    hosts: Hosts, surroundings: Surroundings, what: str, number: int
) -> None:
    hang = script(hosts.folder, "hang", f"touch {hosts.folder}/hangs; exec sleep 600")
    start = hosts.spawn("start", "--terminal", "mine", "--port", str(next(hosts.ports)), what, hang)
    wait_until((hosts.folder / "hangs").exists, "a start that hangs")
    [row] = hosts.listed()
    assert (row["alive"], row["state"]) == (False, "starting")
    start.send_signal(number)
    start.communicate(timeout=PATIENCE)
    surroundings.assert_clean(hosts.folder)


def test_a_supervisor_that_is_killed_during_a_start_is_told(hosts: Hosts) -> None:
    hang = script(hosts.folder, "hang", f"touch {hosts.folder}/hangs; exec sleep 600")
    port = str(next(hosts.ports))
    start = hosts.spawn("start", "--terminal", "mine", "--port", port, "--executable", hang, "--json")
    wait_until((hosts.folder / "hangs").exists, "a start that hangs")
    psutil.Process(hosts.record("mine").owner.pid).kill()
    out, err = start.communicate(timeout=PATIENCE)
    done = subprocess.CompletedProcess([], start.returncode, out, err)
    assert "supervisor died" in failed(done, "START_FAILED", 5)["message"]


def test_a_session_can_be_stopped_while_it_starts(hosts: Hosts) -> None:
    hang = script(hosts.folder, "hang", f"touch {hosts.folder}/hangs; exec sleep 600")
    start = hosts.spawn(
        *("start", "--terminal", "mine", "--port", str(next(hosts.ports)), "--executable", hang)
    )
    wait_until((hosts.folder / "hangs").exists, "a start that hangs")
    hosts.fails("CONFLICT", 2, "start", "--terminal", "mine")
    hosts.ok("stop", "--terminal", "mine")
    start.communicate(timeout=PATIENCE)
    assert start.returncode == 5


def test_capabilities_are_the_servers(hosts: Hosts) -> None:
    plain, more = hosts.start("plain"), hosts.start("more", "--caps", "vision,storage")
    tools = []
    for session in (plain, more):
        with McpClient(url_of(session)) as client:
            tools.append({tool.name for tool in client.tools})
    assert tools[0] < tools[1]
    assert any("storage" in name for name in tools[1] - tools[0])
    hosts.ok("stop", "--all")


def test_a_long_temp_dir_is_no_obstacle(hosts: Hosts, tmp_path: Path) -> None:
    # A socket's name has to fit; Chromium would abort.
    long = tmp_path / ("x" * 100)
    long.mkdir()
    arguments = ("start", "--terminal", "mine", "--port", str(next(hosts.ports)))
    session = hosts.ok(*arguments, TMPDIR=str(long))["session"]
    assert works(session)
    hosts.ok("stop", "--terminal", "mine")
    assert not Path(session["tempDir"]).parent.exists()


# Stop


def test_stop_leaves_nothing_and_the_port_can_be_had_again(hosts: Hosts, surroundings: Surroundings) -> None:
    first = hosts.start("mine")
    record = hosts.record("mine")
    stopped = hosts.ok("stop", "--terminal", "mine")["stopped"]
    assert stopped == {**first, "portFree": True}
    # Now, not soon.
    assert not any(part.is_alive() for part in (record.owner, *record.processes.values()))
    assert is_free(first["port"])
    assert not Path(record.temp_dir).exists()
    assert not Path(record.user_data_dir).exists()
    assert not hosts.has_record("mine")
    surroundings.assert_clean(hosts.folder)
    again = hosts.start("mine", "--port", str(first["port"]))
    assert again["port"] == first["port"]
    assert hosts.ok("stop", "--port", str(first["port"]))["stopped"]["terminalId"] == "mine"


def test_stop_without_a_session(hosts: Hosts) -> None:
    for arguments in ((), ("--terminal", "mine"), ("--port", "8931")):
        refused = hosts.fails("NO_SESSION", 2, "stop", *arguments)
        assert "peaks playwright start" in refused["hint"]
    done = hosts.run("stop", "--terminal", "mine")
    assert done.stderr.startswith("NO_SESSION: no playwright session of terminal mine")
    assert hosts.text("stop", "--all") == "no playwright sessions running\n"


def test_stop_never_signals_a_process_that_only_has_the_pid(hosts: Hosts, bystander: ProcessIdentity) -> None:
    session = hosts.start("mine")
    before = hosts.record("mine")
    psutil.Process(before.owner.pid).kill()
    wait_until(lambda: not any(part.is_alive() for part in before.processes.values()), "the session's end")
    taken = replace(bystander, started=bystander.started - 1)
    changed = before.with_(owner=taken, pid=taken.pid, processes={"browser": taken, "mcp": taken})
    Registry(hosts.dirs.records).write(changed)
    assert hosts.listed()[0]["state"] == "dead"
    assert hosts.ok("stop", "--terminal", "mine")["stopped"]["port"] == session["port"]


def test_a_session_of_another_machine_is_told_of_and_left_alone(hosts: Hosts, tmp_path: Path) -> None:
    dirs = hosts.dirs.create()
    there = replace(ProcessIdentity.of_self(), host="elsewhere")
    record = Record("theirs", 21000, "chromium", "", now_iso(), there, status="ready", kind="hosted")
    Registry(dirs.records).write(record)
    [row] = hosts.listed()
    assert (row["alive"], row["state"]) == (False, "elsewhere")
    assert "elsewhere" in hosts.fails("NO_SESSION", 2, "stop", "--terminal", "theirs")["message"]
    assert hosts.ok("stop", "--all")["stopped"] == []
    hosts.fails("CONFLICT", 2, "start", "--terminal", "theirs", "--port", str(next(hosts.ports)))
    assert hosts.record("theirs") == record
    Registry(dirs.records).remove("theirs")


def test_an_ended_supervisor_ends_its_session(hosts: Hosts, surroundings: Surroundings) -> None:
    session = hosts.start("mine")
    psutil.Process(session["owner"]["pid"]).terminate()
    surroundings.assert_clean(hosts.folder)


# Parts that die


@pytest.mark.parametrize("parts", [("browser",), ("mcp",), ("browser", "mcp")])
def test_a_session_whose_part_is_killed_ends_whole(
    hosts: Hosts, surroundings: Surroundings, parts: tuple[str, ...]
) -> None:
    session = hosts.start("mine")
    record = hosts.record("mine")
    for part in parts:
        psutil.Process(record.processes[part].pid).kill()
    wait_until(lambda: not hosts.listed(), "the session's end")
    surroundings.assert_clean(hosts.folder)
    hosts.fails("NO_SESSION", 2, "stop", "--terminal", "mine")
    again = hosts.ok("start", "--terminal", "mine", "--reuse", "--port", str(session["port"]))
    assert again["reused"] is False
    assert works(again["session"])
    hosts.ok("stop", "--terminal", "mine")


@pytest.mark.parametrize("then", ["stop", "start --reuse", "reap"])
def test_a_killed_supervisor_takes_its_browser_and_server_along(hosts: Hosts, then: str) -> None:
    session = hosts.start("mine")
    record = hosts.record("mine")
    psutil.Process(record.owner.pid).kill()
    wait_until(
        lambda: not any(part.is_alive() for part in record.processes.values()), "the end of its parts", 5
    )
    assert [row["state"] for row in hosts.listed()] == ["dead"]
    if then == "reap":
        done = subprocess.run([*COMMAND[:-1], "reap"], cwd=hosts.folder, check=True, capture_output=True)
        assert b"removed session mine" in done.stdout
    elif then == "stop":
        assert hosts.ok("stop", "--terminal", "mine")["stopped"]["port"] == session["port"]
    else:
        again = hosts.ok("start", "--terminal", "mine", "--reuse", "--port", str(session["port"]))
        assert (again["reused"], again["cleared"]) == (False, ["mine"])
        assert works(again["session"])
        hosts.ok("stop", "--terminal", "mine")


@pytest.mark.parametrize("part", ["browser", "mcp", "owner"])
def test_a_frozen_part_is_no_obstacle(hosts: Hosts, part: str) -> None:
    session = hosts.start("mine")
    record = hosts.record("mine")
    identity = record.owner if part == "owner" else record.processes[part]
    psutil.Process(identity.pid).suspend()
    [row] = hosts.listed()
    assert row["alive"]
    assert row["tabs"] == (None if part == "browser" else 1)
    assert hosts.ok("start", "--terminal", "mine", "--reuse")["session"]["port"] == session["port"]
    hosts.fails("CONFLICT", 2, "start", "--terminal", "mine")
    assert hosts.ok("stop", "--terminal", "mine")["stopped"]["portFree"] is True


# The idle clock


def test_an_idle_session_is_gone_whole(hosts: Hosts, surroundings: Surroundings) -> None:
    session = hosts.start("mine", "--idle-timeout", "1")
    # A client that never said goodbye is none, nor is whoever only looks.
    McpClient(url_of(session)).call("browser_tabs", action="list")
    wait_until(lambda: not hosts.listed(), "the session's end")
    surroundings.assert_clean(hosts.folder)


@pytest.mark.parametrize("how", [pytest.param("connected", marks=pytest.mark.slow), "calling"])
def test_a_client_keeps_its_session(hosts: Hosts, surroundings: Surroundings, how: str) -> None:
    session = hosts.start("mine", "--idle-timeout", "1.5")
    until = time.monotonic() + 5
    if how == "connected":
        with socket.create_connection(("localhost", session["port"])):
            time.sleep(max(0, until - time.monotonic()))
            assert hosts.record("mine").owner.is_alive()
    else:
        with McpClient(url_of(session)) as client:
            while time.monotonic() < until:
                client.call("browser_tabs", action="list")
                time.sleep(0.2)
    wait_until(lambda: not hosts.has_record("mine"), "the session's end")


def test_without_an_idle_timeout_a_session_stays(hosts: Hosts) -> None:
    with_timeout = hosts.start("short", "--idle-timeout", "0.5")
    hosts.start("long")
    wait_until(lambda: not hosts.has_record("short"), "the other session's end")
    assert [row["terminalId"] for row in hosts.listed()] == ["long"]
    with pytest.raises(McpFailedError):
        works(with_timeout)
    hosts.ok("stop", "--terminal", "long")


@pytest.mark.parametrize("text", ["-1", "soon", "nan"])
def test_what_is_no_time_is_refused(hosts: Hosts, text: str) -> None:
    hosts.fails("USAGE", 2, "start", "--terminal", "mine", "--idle-timeout", text)


# Races


def test_eight_terminals_that_start_at_once_get_eight_ports(hosts: Hosts) -> None:
    starts = [hosts.spawn("start", "--terminal", f"t{number}", "--json") for number in range(8)]
    done = [(start, *start.communicate(timeout=PATIENCE * 2)) for start in starts]
    answers = [
        succeeded(subprocess.CompletedProcess([], start.returncode, out, err)) for start, out, err in done
    ]
    ports = [answer["session"]["port"] for answer in answers]
    assert len(set(ports)) == 8
    assert set(ports) <= set(DEFAULT)
    assert len({answer["session"]["userDataDir"] for answer in answers}) == 8
    assert all(works(answer["session"]) for answer in answers)
    assert [row["port"] for row in hosts.listed()] == sorted(ports)
    hosts.ok("stop", "--all")


@pytest.mark.parametrize("reuse", [False, True])
def test_of_four_starts_in_one_terminal_one_wins(hosts: Hosts, reuse: bool) -> None:
    more = ["--reuse"] if reuse else []
    starts = [hosts.spawn("start", "--terminal", "mine", "--json", *more) for _ in range(4)]
    done = []
    for start in starts:
        out, err = start.communicate(timeout=PATIENCE * 2)
        done.append(subprocess.CompletedProcess([], start.returncode, out, err))
    winners = [succeeded(one) for one in done if one.returncode == 0]
    if reuse:
        assert sorted(answer["reused"] for answer in winners) == [False, True, True, True]
    else:
        assert len(winners) == 1
        for loser in done:
            if loser.returncode:
                failed(loser, "CONFLICT", 2)
    [row] = hosts.listed()
    assert {answer["session"]["port"] for answer in winners} == {row["port"]}
    assert works(row)
    hosts.ok("stop", "--terminal", "mine")


def test_terminals_whose_ids_look_alike_may_start_at_once(hosts: Hosts) -> None:
    starts = [hosts.spawn("start", "--json", TERM_SESSION_ID=name) for name in ("a/b", "a b")]
    names = set()
    for start in starts:
        out, err = start.communicate(timeout=PATIENCE * 2)
        done = subprocess.CompletedProcess([], start.returncode, out, err)
        names.add(succeeded(done)["session"]["terminalId"])
    assert len(names) == 2
    assert "a_b" in names
    hosts.ok("stop", "--all")


def everything(hosts: Hosts, surroundings: Surroundings) -> set[str]:
    """What is there of processes, and of files in the project, the runtime dir and the temp dir."""
    found = {f"process {process.pid}" for process in surroundings.processes()}
    for folder in (hosts.folder, surroundings.runtime, surroundings.temp):
        found |= {str(path) for path in folder.rglob("*")}
    return found


@pytest.mark.parametrize("times", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_starts_and_stops_leave_no_more_than_one_did(
    hosts: Hosts, surroundings: Surroundings, times: int
) -> None:
    port = str(next(hosts.ports))

    def once() -> None:
        assert works(hosts.start("mine", "--port", port))
        hosts.ok("stop", "--terminal", "mine")

    once()
    surroundings.assert_clean(hosts.folder)
    before = everything(hosts, surroundings)
    for _ in range(times):
        once()
    surroundings.assert_clean(hosts.folder)
    assert everything(hosts, surroundings) == before


def test_clients_that_come_and_go_leave_no_descriptors(hosts: Hosts) -> None:
    session = hosts.start("mine", "--idle-timeout", "600")
    parts = [psutil.Process(part["pid"]) for part in (session["owner"], session["identities"]["mcp"])]

    def descriptors() -> list[int]:
        return [process.num_fds() for process in parts]

    for _ in range(3):
        works(session)
    before = descriptors()
    for _ in range(15):
        works(session)
    # A socket that is just being closed may still be there.
    wait_until(lambda: all(now <= then for now, then in zip(descriptors(), before, strict=True)), "no growth")
    hosts.ok("stop", "--terminal", "mine")


# Records that are none


def test_a_bad_record_breaks_nothing_and_is_named(hosts: Hosts) -> None:
    session = hosts.start("good")
    text = (hosts.dirs.records / "good.json").read_text()
    bad = {
        "truncated": text[:200],
        "null": "null",
        "list": "[]",
        "empty": "",
        "port": text.replace(f'"port": {session["port"]}', '"port": "8931"'),
        "other": text,  # it names another session
        "foreign-pid": text.replace('"good"', '"foreign-pid"').replace('"pid": ', '"pid": -'),
    }
    newer = {"newer": json.dumps({"schema": 2, "terminalId": "newer"})}
    for name, content in (bad | newer).items():
        (hosts.dirs.records / f"{name}.json").write_text(content)
    (hosts.dirs.records / "notes.txt").write_text("no record at all")

    listed = hosts.ok("ls")
    assert [row["terminalId"] for row in listed["sessions"]] == ["good"]
    for name in bad | newer:
        assert any(f"/{name}.json: " in line for line in listed["problems"]), name
    lines = hosts.text("ls").splitlines()
    assert sum(line.startswith("not a record: ") for line in lines) == len(bad | newer)
    assert not any("notes.txt" in line for line in lines)

    started = hosts.ok("start", "--terminal", "null", "--port", str(next(hosts.ports)))
    assert any("/null.json: " in line for line in started["problems"])
    # Set aside, not overwritten; one of a later version stays, since its session may be alive.
    aside = [path.name for path in (hosts.dirs.records / "set-aside").iterdir()]
    assert sorted({name.partition(".")[0] for name in aside}) == sorted(bad)
    hosts.fails("CONFLICT", 2, "start", "--terminal", "newer", "--port", str(next(hosts.ports)))
    assert (hosts.dirs.records / "newer.json").read_text() == newer["newer"]

    hosts.ok("stop", "--terminal", "null")
    hosts.ok("stop", "--all")
    for path in itertools.chain((hosts.dirs.records / "set-aside").iterdir(), hosts.dirs.records.glob("*.*")):
        path.unlink()
    (hosts.dirs.records / "set-aside").rmdir()


def test_a_record_with_odd_contents_is_listed_as_far_as_it_goes(hosts: Hosts) -> None:
    session = hosts.start("good")
    record = hosts.record("good")
    odd = record.with_(
        session_id="odd", started_at="yesterday", endpoints={"cdp": "ws://127.0.0.1:99999999/"}, processes={}
    )
    Registry(hosts.dirs.records).write(odd)
    rows = {row["terminalId"]: row for row in hosts.listed()}
    assert (rows["odd"]["ageSeconds"], rows["odd"]["tabs"], rows["odd"]["mcpUrl"]) == (None, None, None)
    assert "age=?" in hosts.text("ls")
    assert works(session)
    (hosts.dirs.records / "odd.json").unlink()
    hosts.ok("stop", "--all")
