"""What goes with desks: `watch`, the doctor's check and its mending, a desk over stdio, whose terminal it is."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from leaks import Surroundings
from seatings import PEAKS, Desks, wait_until

from pytest_peaks.session import ports

pytestmark = pytest.mark.skipif(os.name != "posix", reason="terminals, signals")


@pytest.fixture
def desks(tmp_path: Path, surroundings: Surroundings) -> Iterator[Desks]:
    made = Desks.at(tmp_path, surroundings)
    yield made
    made.down()
    surroundings.assert_clean(made.folder)


def in_a_terminal(desks: Desks, command: list[str], *, env: dict[str, str] | None = None) -> tuple[int, int]:
    """Start a command as the leader of a terminal of its own; gives its pid and the terminal's other end."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(desks.folder)
        os.execvpe(command[0], command, {**desks.env(), **(env or {})})
    return pid, terminal


def read_all(terminal: int) -> str:
    """All that is said there until its end; closes this end."""
    said = b""
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # what Linux says at the end of a terminal
            part = b""
        if not part:
            os.close(terminal)
            return said.decode()
        said += part


def test_watch_in_a_pipe_tells_who_sits_where_once_and_again_when_it_changes(desks: Desks, site: str) -> None:
    desks.configure("one", "two")
    desks.ok("create", "alice", f"{site}/here?token=secret", "--owner-pid", str(os.getpid()))
    once = desks.text("watch", "--looks", "3", "--interval", "0.2").splitlines()
    assert len(once) == 3, "nothing but time has changed"
    assert once[0].split() == ["desk", "state", "session", "since", "idle", "memory", "page", "held", "by"]
    [line] = [line for line in once if line.startswith("one")]
    page, holder = re.escape(f"{site}/here"), f"the terminal of process {os.getpid()}"
    assert re.search(rf"leased +alice +\d+s +\d+s +\d+ MB +{page} +{holder}$", line)
    assert "secret" not in "".join(once)
    assert re.search(r"^two +free +- +- +- +- +- +-$", once[2])

    with desks.spawn("watch", "--interval", "0.1") as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "alice" in "".join(watching.stdout.readline() for _ in range(3))
        desks.ok("close", "alice", "--no-save")
        # What is seen of the turn's end on the way may come in between.
        assert any(line.split()[:2] == ["one", "free"] for line in watching.stdout)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
        assert watching.stderr.read() == ""


def test_watch_on_a_terminal_is_a_live_table_and_as_json_one_object(desks: Desks) -> None:
    desks.lease("alice")
    pid, terminal = in_a_terminal(desks, [*PEAKS, "session", "watch", "--looks", "2", "--interval", "0.1"])
    shown = read_all(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert re.search("[│ ]playwright-desk-1 +│", shown)
    assert "alice" in shown
    found = desks.ok("watch")
    assert [row["desk"] for row in found["desks"]] == [f"playwright-desk-{number}" for number in (1, 2, 3)]
    assert found["desks"][0]["session"] == "alice"


def test_a_reader_who_goes_away_ends_watch_without_a_word(desks: Desks) -> None:
    with desks.spawn("watch", "--interval", "0.1") as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        watching.stdout.readline()
        watching.stdout.close()
        desks.lease("alice")  # so that there is something to say
        watching.wait(60)
        assert "Traceback" not in watching.stderr.read()


def doctor(desks: Desks, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [*PEAKS, "doctor", "--no-start", "--json", *arguments],
        cwd=desks.folder,
        env=desks.env(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, json.loads(done.stdout)


def desk_checks(report: dict[str, Any]) -> list[dict[str, str]]:
    return [check for check in report["checks"] if check["name"] == "desks"]


def test_the_doctor_tells_of_desks_and_what_to_do_where_one_needs_somebody(desks: Desks) -> None:
    desks.configure("one", "two")
    status, report = doctor(desks)
    assert [check["status"] for check in desk_checks(report)] == ["ok"]
    assert status == 0
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        desks.lease("alice", "--owner-pid", str(owner.pid))
        owner.kill()
    [check] = desk_checks(doctor(desks)[1])
    assert check["status"] == "warning"
    assert "nobody is left who holds alice" in check["detail"]
    assert "peaks session cleanup" in check["mend"]
    desks.config.write_text('{"desks": []}')
    status, report = doctor(desks)
    assert status == 1
    [check] = desk_checks(report)
    assert check["status"] == "problem"
    assert f"{desks.config}: desks is [], not a list with at least one desk" in check["detail"]
    desks.configure("one", "two")


@pytest.mark.parametrize(
    "content",
    [
        '{"version": 2',
        *(
            pytest.param(text, marks=pytest.mark.slow)
            for text in ("", '{"version": 2, "sessions": 3}', "\x00\x01")
        ),
    ],
)
def test_the_doctor_makes_a_damaged_ledger_anew_from_what_runs_and_what_is_saved(
    desks: Desks, site: str, content: str
) -> None:
    desks.ok("create", "alice", site)
    desks.ok("save", "alice")
    held = desks.lease("bob")
    desks.lease("carol")
    desks.ok("close", "carol")
    dave = desks.ok("create", "dave")
    desks.ok("save", "dave")
    desks.ok("close", "dave")
    desks.ledger.write_text(content)
    for verb in (["list"], ["pool"], ["create", "eve"], ["save", "alice"], ["close", "alice"], ["cleanup"]):
        found = desks.fails("bad_json", 1, *verb)
        assert str(desks.ledger) in found["message"]
        assert "peaks doctor --fix" in found["hint"]
    assert desks.ledger.read_text() == content
    status, report = doctor(desks)
    assert status == 1
    assert report["error"] == "PROBLEMS_FOUND"

    status, report = doctor(desks, "--fix")
    assert status == 0, report
    [said] = report["fixed"]
    [aside] = desks.ledger.parent.glob("playwright-sessions.corrupt-*.json")
    assert aside.read_text() == content
    assert aside.name in said
    rows = desks.rows()
    assert {name: row["desk"] for name, row in rows.items()} == {
        "alice": "playwright-desk-1",
        "bob": "playwright-desk-2",
        "dave": None,
    }
    assert rows["bob"]["lease_id"] == held["lease_id"]
    assert desks.lease("eve")["epoch"] > dave["epoch"], "above all that was counted before"
    desks.ok("save", "alice", "--lease", rows["alice"]["lease_id"])
    assert doctor(desks, "--fix")[1]["fixed"] == []


def test_the_doctor_leaves_a_later_versions_ledger_alone(desks: Desks) -> None:
    desks.lease("alice")
    content = '{"version": 99}'
    desks.ledger.write_text(content)
    status, report = doctor(desks, "--fix")
    assert status == 1
    assert report["fixed"] == []
    assert "later pytest-peaks" in desk_checks(report)[0]["detail"]
    assert desks.ledger.read_text() == content
    desks.ledger.unlink()
    desks.ok("close", "alice")


HELLO = [
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    },
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


class Client:
    """A client of `peaks mcp --desk`, over stdio."""

    def __init__(self, desks: Desks, command: list[str]) -> None:
        self.process = subprocess.Popen(
            [*PEAKS, *command],
            cwd=desks.home,
            env=desks.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.number = 1
        for message in HELLO:
            self.send(message)
        self.answer(1)

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def answer(self, number: int) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found.get("id") == number:
                return found
        raise AssertionError("the server has ended")

    def call(self, tool: str, **arguments: object) -> str:
        self.number += 1
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params})
        found = self.answer(self.number)
        return json.dumps(found.get("result", found))

    def close(self) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        status = self.process.wait(60)
        self.process.stdout.close()
        return status


def test_a_client_that_registered_a_desk_at_its_start_works_there_whatever_becomes_of_it(
    desks: Desks, site: str
) -> None:
    entries = desks.ok("pool", "--config")["mcpServersStdio"]
    assert not desks.runs()
    client = Client(desks, entries["playwright-desk-1"]["args"])  # which says what project it is of
    try:
        desks.ok("create", "alice", site)
        assert "page" in client.call("browser_snapshot")
        client.call("browser_evaluate", function="() => { localStorage.user = 'alice' }")
        desks.ok("close", "alice")
        desks.ok("create", "bob", site)
        assert "null" in client.call("browser_evaluate", function="() => localStorage.user ?? null")
        before = desks.record()
        psutil.Process(before.owner.pid).kill()
        wait_until(lambda: not ports.is_busy(before.port), "the server has ended with its supervisor")
        assert site in client.call("browser_navigate", url=site)
        assert desks.record().owner != before.owner
        desks.ok("resume", "alice", site)
        assert "alice" in client.call("browser_evaluate", function="() => localStorage.user ?? null")
    finally:
        assert client.close() == 0


def test_only_a_desk_of_the_pool_can_be_served_and_it_says_itself_what_it_is(desks: Desks) -> None:
    desks.configure("one", {"name": "yours", "external": True})
    for arguments, said in (
        (["--desk", "two"], "there is no desk 'two'"),
        (["--desk", "yours"], "yours is an MCP server of yours"),
        (["--desk", "one", "--auth", "a"], "--desk and --auth contradict each other"),
        (["--desk", "one", "--headed", "--terminal", "t"], "--desk and --terminal, --headed contradict"),
    ):
        done = subprocess.run(
            [*PEAKS, "mcp", *arguments],
            cwd=desks.folder,
            env=desks.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 2
        assert done.stderr.startswith("INVALID_OPTION: ")
        assert said in done.stderr


def test_a_terminals_shell_holds_a_desk_and_one_command_in_a_terminal_does_not(desks: Desks) -> None:
    create = " ".join(f"'{word}'" if " " in word else word for word in [*PEAKS, "session", "create"])
    shell, terminal = in_a_terminal(desks, ["bash", "--norc", "-i"])
    os.write(terminal, f"{create} alice --no-browser\n".encode())
    wait_until(lambda: desks.rows().get("alice", {}).get("held_by"), "the shell's command is done")
    row = desks.rows()["alice"]
    assert row["held_by"] == {"kind": "terminal", "pid": shell, "host": os.uname().nodename}
    os.kill(shell, 9)
    os.waitpid(shell, 0)
    os.close(terminal)
    assert desks.rows()["alice"]["owner_alive"] is False
    assert desks.lease("bob")["desk"] == "playwright-desk-1", "a dead owner's desk is free at once"
    assert desks.rows()["alice"]["status"] == "detached"

    pid, terminal = in_a_terminal(desks, ["bash", "-c", f"{create} carol --no-browser; true"])
    read_all(terminal)
    os.waitpid(pid, 0)
    assert desks.rows()["carol"]["owner_alive"] is True
    assert desks.rows()["carol"]["held_by"]["kind"] == "nobody"


def test_all_that_is_stopped_in_the_project_leaves_desks_alone(
    desks: Desks, peaks: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    desks.ok("create", "alice")
    done = peaks("playwright", "stop", "--all", cwd=desks.folder, env=desks.env())
    assert done.returncode == 0
    assert desks.rows()["alice"]["owner_alive"] is True
    assert desks.runs()
    listed = peaks("playwright", "ls", cwd=desks.folder, env=desks.env())
    assert "terminal=desk-playwright-desk-1" in listed.stdout
