"""The doors of a desk: when it was last used, what earlier clients leave behind, and the bridge that outlives it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest
from leaks import Surroundings
from test_mcp_stdio import PATIENCE, Client, Peaks

from pytest_peaks.doors.mcp import McpClient, driver_command
from pytest_peaks.hosting import use
from pytest_peaks.hosting.idle import LOOK_EVERY
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and the clock")


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)


@dataclass
class Desk:
    """A hosted session on a port of the test's own.

    :ivar folder: the project, with a space in its name.
    """

    folder: Path
    peaks: Peaks
    port: int

    def command(self) -> list[str]:
        """Start it, or find that it runs; prints where its MCP server is."""
        words = ["playwright", "start", "--terminal", "desk", "--port", str(self.port), "--reuse", "--json"]
        return [sys.executable, "-c", "from pytest_peaks.cli import main; main()", *words]

    def start(self, *arguments: str) -> Record:
        done = self.peaks(*self.command()[3:], *arguments, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return self.record()

    def record(self) -> Record:
        found = Registry(ProjectDirs.locate(self.folder).records).read("desk")
        assert found is not None
        return found

    def stop(self) -> None:
        done = self.peaks("playwright", "stop", "--terminal", "desk", cwd=self.folder)
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """Its supervisor is killed, so all of it ends."""
        record = self.record()
        os.kill(record.owner.pid, signal.SIGKILL)
        parts = record.processes.values()
        wait_until(lambda: not any(part.is_alive() for part in parts), "its parts end with it")
        # A server whose threads are still ending takes connections.
        wait_until(lambda: is_refused(self.port), "its port is nobody's")

    def clients(self) -> set[str]:
        """The MCP clients that are noted."""
        return set(os.listdir(Path(self.record().temp_dir) / "door" / "clients"))

    def last_use(self) -> float:
        at = use.last_use(self.record())
        assert at is not None
        return at

    def settled_use(self) -> float:
        """As :meth:`last_use`, when the end of the last call is noted too, which is after its answer."""
        at = self.last_use()
        while True:
            time.sleep(0.5)
            before, at = at, self.last_use()
            if at == before:
                return at


def is_refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


@pytest.fixture
def desk(tmp_path: Path, peaks: Peaks, surroundings: Surroundings) -> Iterator[Desk]:
    """A project with a desk to be started; nothing of it may be left."""
    folder = tmp_path / "a project"
    (folder / ".git").mkdir(parents=True)
    made = Desk(folder, peaks, surroundings.ports[7])
    yield made
    if Registry(ProjectDirs.locate(folder).records).path_of("desk").exists():
        made.stop()
    surroundings.assert_clean(folder)


def client_of(record: Record) -> McpClient:
    return McpClient(record.endpoints["mcp"])


def evaluate(client: McpClient, function: str) -> Any:
    return json.loads(client.call("browser_evaluate", function=function).section("Result"))


def run_code(client: McpClient, code: str) -> None:
    client.call("browser_run_code_unsafe", code=code)


# --- When it was last used


def test_a_call_is_a_use_and_neither_a_look_nor_a_silent_client_is(desk: Desk, site: str) -> None:
    record = desk.start()
    assert use.last_use(record) is None, "its start is none"
    with client_of(record) as one:
        before = time.monotonic()
        one.call("browser_navigate", url=site)
        first = desk.last_use()
        assert before <= first <= time.monotonic()
        one.call("browser_snapshot")
        second = desk.settled_use()
        assert second > first

        # It stays connected, and so does the server to the browser.
        for _ in range(2):
            listed = desk.peaks("playwright", "ls", "--json", cwd=desk.folder)
            assert json.loads(listed.stdout)["sessions"][0]["tabs"] == 1
            time.sleep(LOOK_EVERY + 1)
        assert desk.last_use() == second
        assert len(desk.clients()) == 1
    assert desk.clients() == set(), "it said goodbye"
    assert desk.last_use() == second


def test_a_long_call_is_a_use_until_its_end(desk: Desk, site: str) -> None:
    record = desk.start()
    with client_of(record) as one:
        one.call("browser_navigate", url=site)
        one.call("browser_wait_for", time=2)
        ended = time.monotonic()
        # While it is connected: the connection of one that is gone may be taken for somebody else's.
        wait_until(lambda: desk.last_use() > ended - 1.5, "its end is noted")


@pytest.mark.parametrize(
    "stays", [pytest.param(True, marks=pytest.mark.slow), False], ids=["stays", "goes at once"]
)
def test_a_program_that_drives_the_browser_directly_uses_it(desk: Desk, stays: bool) -> None:
    record = desk.start()
    code = (
        "import sys\n"
        "from playwright.sync_api import sync_playwright\n"
        "with sync_playwright() as driver:\n"
        "    browser = driver.chromium.connect_over_cdp(sys.argv[1])\n"
        "    print('connected', flush=True)\n"
        f"    {'sys.stdin.read()' if stays else ''}\n"
        "    browser.close()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, record.endpoints["cdp"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "connected\n"
        if not stays:
            other.wait(PATIENCE)
        wait_until(lambda: use.last_use(record) is not None, "it is noted")
        if stays:
            first = desk.last_use()
            wait_until(lambda: desk.last_use() > first, "it is noted again while it is connected")
    finally:
        other.communicate("")
    # And no more once it is gone.
    time.sleep(LOOK_EVERY + 1)
    last = desk.last_use()
    time.sleep(LOOK_EVERY + 1)
    assert desk.last_use() == last


@pytest.mark.slow
def test_another_servers_command_notes_as_well(desk: Desk, tmp_path: Path, site: str) -> None:
    """Its node gets the preload by NODE_OPTIONS."""
    node, script = driver_command()
    command = tmp_path / "another server"
    command.write_text(f'#!/bin/sh\n"{node}" "{script}" mcp "$@"\nexit $?\n')
    command.chmod(0o700)
    record = desk.start("--mcp-command", f"'{command}'")
    with client_of(record) as one:
        one.call("browser_navigate", url=site)
        used = desk.settled_use()
        assert len(desk.clients()) == 1
        # What is connected to the browser is not the recorded process, but carries the session's mark.
        time.sleep(2 * LOOK_EVERY + 1)
        assert desk.last_use() == used


def test_the_preload_works_from_a_folder_with_a_space(tmp_path: Path) -> None:
    from pytest_peaks.doors import bundled, mcp
    from pytest_peaks.session.spec import McpOptions

    folder = tmp_path / 'a "quoted" é\' folder'
    folder.mkdir()
    source = Path(bundled.__file__).with_name("door_notes.mjs")
    (folder / source.name).write_bytes(source.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled, "__file__", str(folder / "bundled.py"))
        environment = mcp.server_environment(McpOptions(command="x"), os.environ, tmp_path / "notes here")
    assert str(folder) not in environment["NODE_OPTIONS"], "it is escaped"
    node = driver_command()[0]
    code = "process.stdin.on('end', () => console.log('stdin is read'))"
    done = subprocess.run(
        [node, "-e", code], env=environment, input="", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "stdin is read\n", "")
    assert (tmp_path / "notes here" / "clients").is_dir()


def test_the_notes_are_private(desk: Desk, site: str) -> None:
    record = desk.start()
    with client_of(record) as one:
        one.call("browser_navigate", url=site)
        door = Path(record.temp_dir) / "door"
        found = [door, *door.rglob("*")]
        assert {path.name for path in found} >= {"door", "used", "clients", *desk.clients()}
        for path in found:
            with contextlib.suppress(
                FileNotFoundError
            ):  # a note that was just being written has its name now
                assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize(
    "noted",
    [None, b"", b"x", b"-5", b"1e9", b"\xff", b"99999999999999999999999", "fifo", "folder", "link"],
    ids=str,
)
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, noted: object) -> None:
    record = a_record(tmp_path)
    path = use.prepare(record) / "used"
    if isinstance(noted, bytes):
        path.write_bytes(noted)
    elif noted == "fifo":
        os.mkfifo(path)
    elif noted == "folder":
        path.mkdir()
    elif noted == "link":
        (tmp_path / "elsewhere").write_text("5")
        path.symlink_to(tmp_path / "elsewhere")
    assert use.last_use(record) is None
    assert use.end_clients(record) == 0


def test_a_note_of_another_boot_lies_in_the_future(tmp_path: Path) -> None:
    record = a_record(tmp_path)
    path = use.prepare(record) / "used"
    path.write_text(str(time.monotonic_ns() + 10**12))
    assert use.last_use(record) is None
    use.note(record)
    noted = use.last_use(record)
    assert noted is not None
    assert noted <= time.monotonic()
    use.forget(record)
    assert use.last_use(record) is None


def test_nothing_is_noted_or_raised_without_a_folder(tmp_path: Path) -> None:
    record = a_record(tmp_path / "gone")
    use.note(record)
    use.forget(record)
    assert use.last_use(record) is None
    assert use.end_clients(record) == 0


def a_record(temp: Path) -> Record:
    endpoints = {"mcp": "http://127.0.0.1:9/mcp", "cdp": "ws://127.0.0.1:9/x"}
    return Record(
        "desk",
        9,
        "chromium",
        "",
        now_iso(),
        ProcessIdentity.of_self(),
        temp_dir=str(temp),
        endpoints=endpoints,
    )


# --- What clients leave behind


def test_what_a_client_left_in_its_connection_can_be_ended(desk: Desk, site: str) -> None:
    record = desk.start()
    with client_of(record) as one, client_of(record) as two:
        run_code(
            one, "async page => { await page.context().addInitScript(() => { window.left = 'script' }) }"
        )
        run_code(
            one, "async page => { await page.context().route('**/routed', r => r.fulfill({body: 'left'})) }"
        )
        two.call("browser_navigate", url=f"{site}/routed")
        assert "left" in evaluate(two, "() => document.body.innerText"), "it reaches everybody"
        two.call("browser_navigate", url=f"{site}/page")
        assert evaluate(two, "() => window.left ?? null") == "script"
        assert len(desk.clients()) == 2

        used = desk.settled_use()
        assert use.end_clients(record) == 2
        assert desk.last_use() == used, "that is no use"
        assert desk.clients() == set()

        with client_of(record) as three:
            assert "/page" in three.call("browser_tabs", action="list").text, "the tabs stay"
            three.call("browser_navigate", url=f"{site}/routed")
            assert "left" not in evaluate(three, "() => document.body.innerText")
            assert evaluate(three, "() => window.left ?? null") is None

        # They work on, and are noted again.
        assert evaluate(one, "() => location.pathname") == "/routed"
        assert evaluate(two, "() => window.left ?? null") is None
        assert len(desk.clients()) == 2
        assert use.end_clients(record) == 2
    assert use.end_clients(record) == 0


def test_a_client_that_is_gone_or_never_was_is_no_obstacle(desk: Desk, site: str) -> None:
    record = desk.start()
    clients = Path(record.temp_dir) / "door" / "clients"
    (clients / "never-was-one").touch()
    (clients / "no.id").touch()
    with client_of(record) as one:
        one.call("browser_navigate", url=site)
        assert use.end_clients(record) == 1
        assert desk.clients() == {"no.id"}
    desk.kill()
    (clients / "never-was-one").touch()
    assert use.end_clients(record) == 0
    assert "never-was-one" in os.listdir(clients), "nobody was asked"


def test_a_stopped_server_is_not_waited_for_long(desk: Desk, site: str) -> None:
    record = desk.start()
    with client_of(record) as one, client_of(record) as two:
        one.call("browser_navigate", url=site)
        two.call("browser_snapshot")
        server = record.processes["mcp"].pid
        os.kill(server, signal.SIGSTOP)
        try:
            began = time.monotonic()
            assert use.end_clients(record) == 0
            assert time.monotonic() - began < PATIENCE
        finally:
            os.kill(server, signal.SIGCONT)


# --- The bridge

STREAM = 1  # the connection over which the server speaks on its own account


class Bridged(Client):
    """An agent's harness on a bridge to a desk, which starts the desk.

    :ivar roots: what it answers when it is asked for its roots; None if it has none.
    """

    def __init__(self, desk: Desk, roots: list[str] | None = None) -> None:
        self.desk, self.roots = desk, roots
        self.asked: list[str] = []
        code = (
            "import json, os, subprocess, sys\n"
            "from pytest_peaks.errors import NoSessionError\n"
            "from pytest_peaks.hosting import bridge\n"
            "def url_of():\n"
            "    with open('asked', 'a') as file: file.write('x')\n"
            "    if os.path.exists('refused'):\n"
            "        raise NoSessionError('the desk is closed', hint='come back tomorrow')\n"
            f"    done = subprocess.run({desk.command()!r}, capture_output=True, text=True,"
            " stdin=subprocess.DEVNULL)\n"
            "    if done.returncode: raise NoSessionError(done.stdout + done.stderr)\n"
            "    return json.loads(done.stdout)['mcpUrl']\n"
            "sys.exit(bridge.serve(url_of))\n"
        )
        (desk.folder / "bridge.py").write_text(code)
        self.command = [sys.executable, "bridge.py"]
        real = subprocess.Popen

        def ours(command: list[str], **options: Any) -> Any:
            return real(self.command, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subprocess, "Popen", ours)
            super().__init__(desk.folder, [])

    def initialize(self) -> dict[str, Any]:
        if self.roots is None:
            return super().initialize()
        answer = self.request(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {"roots": {}},
                "clientInfo": {"name": "a-harness", "version": "1"},
            },
        )
        self.send("notifications/initialized")
        return answer["result"]  # type: ignore[no-any-return]

    def ask(self, method: str, params: dict[str, Any], number: Any) -> None:
        """Send a request and do not wait."""
        self.send(method, params, id=number)

    def answer(self, number: Any) -> dict[str, Any]:
        """The next answer of all, which has to be that to request `number`; the server's own requests are answered."""
        while True:
            found = self._answers.get(timeout=PATIENCE)
            assert found is not None, f"it ended: {self.errors.read_text()}"
            if "method" not in found:
                assert found.get("id") == number, found
                return found
            if "id" in found:
                self.asked.append(found["method"])
            if found["method"] == "roots/list":
                roots = [{"uri": uri} for uri in self.roots or []]
                self.raw(json.dumps({"jsonrpc": "2.0", "id": found["id"], "result": {"roots": roots}}))

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        self.send(method, params or {}, id=self._number)
        return self.answer(self._number)

    def raw(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def urls_asked_for(self) -> int:
        path = self.desk.folder / "asked"
        return len(path.read_text()) if path.exists() else 0

    def connections(self) -> list[Any]:
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return [connection for connection in found if connection.status == psutil.CONN_ESTABLISHED]


@pytest.fixture
def bridged(desk: Desk) -> Iterator[Callable[..., Bridged]]:
    """Start a bridge; it may say nothing but the protocol, and nothing on stderr."""
    opened: list[Bridged] = []

    def start(roots: list[str] | None = None) -> Bridged:
        opened.append(Bridged(desk, roots))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
        one.only_the_protocol()
        assert one.errors.read_text() == ""


def test_a_bridge_from_its_first_word_to_its_last(
    bridged: Callable[..., Bridged], desk: Desk, site: str
) -> None:
    one = bridged()
    assert one.urls_asked_for() == 0, "the desk is not started before it is wanted"
    told = one.initialize()
    assert told["serverInfo"]["name"]
    tools = {tool["name"] for tool in one.request("tools/list")["result"]["tools"]}
    assert {"browser_navigate", "browser_snapshot"} <= tools
    text, failed = one.call("browser_navigate", url=site)
    assert not failed, text
    assert '- heading "page"' in one.call("browser_snapshot")[0]
    text, failed = one.call("browser_evaluate", function="() => { throw new Error('wrong') }")
    assert failed
    assert "wrong" in text
    assert "error" in one.request("no/such/method")
    assert one.evaluate("() => 'é😀\\u2028x'.repeat(2 ** 18)") == "é😀\u2028x" * 2**18
    sent = json.dumps("é😀\n" * 100_000)
    assert one.evaluate(f"() => {sent}.length") == 400_000
    assert one.urls_asked_for() == 1
    assert len(desk.clients()) == 1
    assert one.end() == 0
    assert desk.clients() == set(), "it said goodbye"
    with client_of(desk.record()) as other:
        assert site in other.call("browser_tabs", action="list").text, "the desk stays"


def test_what_is_no_message_is_said_to_be_none(bridged: Callable[..., Bridged]) -> None:
    one = bridged()
    one.raw("")
    for line in ("{", "not json", "[" * 100_000, '{"id": 1, "method": "ping"'):
        one.raw(line)
        assert one.answer(None)["error"]["code"] == -32700
    one.raw("5")
    assert one.answer(None)["error"]["code"] == -32600
    assert one.urls_asked_for() == 0
    one.initialize()
    assert one.request("ping")["result"] == {}
    assert one.end() == 0


def test_a_client_that_forgets_to_say_hello_is_told(bridged: Callable[..., Bridged]) -> None:
    one = bridged()
    assert one.request("tools/list")["error"]["message"].startswith("MCP_FAILED: the MCP server answers 400")
    one.initialize()
    assert one.request("tools/list")["result"]["tools"]
    assert one.end() == 0


def test_a_batch_is_passed_as_it_is(bridged: Callable[..., Bridged]) -> None:
    """Whether it is taken is the server's to say; each of its requests has an answer."""
    one = bridged()
    one.initialize()
    one.raw(json.dumps([{"jsonrpc": "2.0", "id": name, "method": "ping"} for name in ("a", "b")]))
    found = [one._answers.get(timeout=PATIENCE) for _ in range(2)]
    assert {answer["id"] for answer in found if answer} == {"a", "b"}
    assert one.end() == 0


def test_a_long_call_holds_up_no_other_and_can_be_called_off(
    bridged: Callable[..., Bridged], site: str
) -> None:
    one = bridged()
    one.initialize()
    one.call("browser_navigate", url=site)
    one.ask("tools/call", {"name": "browser_wait_for", "arguments": {"time": 600}}, "long")
    assert one.request("tools/list")["result"]["tools"]
    assert len(one.connections()) == 1 + STREAM
    one.send("notifications/cancelled", {"requestId": "long", "reason": "changed my mind"})
    wait_until(lambda: len(one.connections()) == STREAM, "nobody waits for the answer")
    assert one.request("ping")["result"] == {}, "and nothing is said of it"
    assert one.end() == 0


def test_messages_arrive_in_their_order(bridged: Callable[..., Bridged], site: str) -> None:
    one = bridged()
    one.initialize()
    one.call("browser_navigate", url=site)
    one.evaluate("() => (window.said = [], 1)")
    for number in range(20):
        function = f"() => window.said.push({number})"
        one.ask("tools/call", {"name": "browser_evaluate", "arguments": {"function": function}}, f"n{number}")
    answers = {(one._answers.get(timeout=PATIENCE) or {}).get("id") for _ in range(20)}
    assert answers == {f"n{number}" for number in range(20)}
    assert sorted(one.evaluate("() => window.said")) == list(range(20))
    assert one.end() == 0


def test_a_client_is_asked_for_its_roots(
    bridged: Callable[..., Bridged], desk: Desk, site: str, tmp_path: Path
) -> None:
    """The server asks before the first call, on a stream of its own; without it the call would take a minute."""
    one = bridged([tmp_path.as_uri()])
    one.initialize()
    one.call("browser_navigate", url=site)
    assert one.asked == ["roots/list"]
    assert use.end_clients(desk.record()) == 1
    assert one.evaluate("() => location.pathname") == "/"
    assert one.asked == ["roots/list"] * 2
    desk.kill()
    one.call("browser_navigate", url=site)
    assert one.asked == ["roots/list"] * 3, "also of the next start"
    assert one.end() == 0


def test_a_desk_that_is_killed_is_there_again_at_the_next_call(
    bridged: Callable[..., Bridged], desk: Desk, site: str
) -> None:
    one, two = bridged(), bridged()
    for each in (one, two):
        each.initialize()
    one.call("browser_navigate", url=site)
    before = desk.record()
    desk.kill()
    text, failed = one.call("browser_navigate", url=f"{site}/again")
    assert not failed, text
    assert desk.record().owner != before.owner
    assert desk.record().port == before.port
    assert one.evaluate("() => location.pathname") == "/again"
    # The other finds a server that does not know it.
    asked = two.urls_asked_for()
    assert two.evaluate("() => location.pathname") == "/again"
    assert two.urls_asked_for() == asked + 1
    assert len(desk.clients()) == 2
    assert [one.end(), two.end()] == [0, 0]
    assert desk.clients() == set()


def test_a_desk_that_others_started_anew(bridged: Callable[..., Bridged], desk: Desk, site: str) -> None:
    one = bridged()
    one.initialize()
    one.call("browser_navigate", url=site)
    for _ in range(2):
        desk.stop()
        desk.start()
        # Several at once, all of which the server does not know.
        for name in "abc":
            one.ask("tools/list", {}, name)
        found = [one._answers.get(timeout=PATIENCE) or {} for _ in range(3)]
        assert {answer["id"] for answer in found} == {*"abc"}
        assert all(answer["result"]["tools"] for answer in found)
        assert len(desk.clients()) == 1, "one session for all of them"
    assert one.urls_asked_for() == 3
    assert one.end() == 0


class Forgetful(BaseHTTPRequestHandler):
    """An MCP server that forgets each client after three messages, the first one after two.

    :cvar heard: what it was told, by whom, and in which version of the protocol.
    """

    heard: ClassVar[list[tuple[str, str | None, str | None]]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, session = message["method"], self.headers["mcp-session-id"]
        if session is not None and sum(one[1] == session for one in self.heard) >= (
            2 if session == "1" else 3
        ):
            self.send_error(404)
            return
        hello = method == "initialize"
        session = str(sum(one[0] == "initialize" for one in self.heard) + 1) if hello else session
        self.heard.append((method, session, self.headers["mcp-protocol-version"]))
        result = {"protocolVersion": "2025-03-26"} if hello else {"by": session}
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}, indent=1).encode()
        self.send_response(200 if "id" in message else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body) if "id" in message else 0))
        if hello:
            self.send_header("mcp-session-id", str(session))
        self.end_headers()
        self.wfile.write(body if "id" in message else b"")

    def do_DELETE(self) -> None:
        self.heard.append(("DELETE", self.headers["mcp-session-id"], None))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


def test_what_a_server_hears_that_forgot_the_client(tmp_path: Path) -> None:
    Forgetful.heard.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Forgetful)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/mcp"
    code = f"import sys; from pytest_peaks.hosting import bridge; sys.exit(bridge.serve(lambda: {url!r}))"
    other = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    said = []
    with server, other:
        for method in ("initialize", "notifications/initialized", "one", "two", "three"):
            message = {"jsonrpc": "2.0", "method": method}
            if not method.startswith("notifications/"):
                message["id"] = method
            other.stdin.write(json.dumps(message) + "\n")
            other.stdin.flush()
            if "id" in message:
                said.append(json.loads(other.stdout.readline()))
        other.stdin.close()
        assert other.wait(PATIENCE) == 0
        assert other.stdout.read() == "", (
            "each answer is one line, and its second hello is none of the client's"
        )
        server.shutdown()
    assert [answer["id"] for answer in said] == ["initialize", "one", "two", "three"]
    assert [answer["result"].get("by") for answer in said] == [None, "2", "3", "4"]
    heard = iter(Forgetful.heard)
    for number, last in enumerate((None, "one", "two", "three"), 1):
        session, version = str(number), "2025-03-26"
        assert next(heard) == ("initialize", session, None)
        assert next(heard) == ("notifications/initialized", session, version)
        if last is not None:
            assert next(heard) == (last, session, version)
    assert next(heard) == ("DELETE", "4", None)
    assert next(heard, None) is None


def test_a_call_that_may_have_been_carried_out_is_not_made_twice(
    bridged: Callable[..., Bridged], desk: Desk, site: str
) -> None:
    one = bridged()
    one.initialize()
    one.call("browser_navigate", url=site)
    one.ask("tools/call", {"name": "browser_wait_for", "arguments": {"time": 600}}, "long")
    assert one.request("ping")["result"] == {}
    desk.kill()
    said = one.answer("long")["error"]["message"]
    assert said.startswith("MCP_FAILED: the connection to the MCP server broke: ")
    assert " — what was asked for may have been done" in said
    assert one.urls_asked_for() == 1
    assert not one.call("browser_navigate", url=site)[1]
    assert one.end() == 0


def test_a_refusal_is_the_answer_until_there_is_none(
    bridged: Callable[..., Bridged], desk: Desk, site: str
) -> None:
    one = bridged()
    refused = desk.folder / "refused"
    refused.touch()
    says = "NO_SESSION: the desk is closed — come back tomorrow"
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "a-harness", "version": "1"},
    }
    assert one.request("initialize", hello)["error"] == {"code": -32000, "message": says}
    one.send("notifications/initialized")
    assert one.request("tools/list")["error"]["message"] == says
    refused.unlink()
    assert one.request("tools/list")["result"]["tools"], "introduced by what it said then"
    desk.kill()
    refused.touch()
    assert one.request("tools/list")["error"]["message"] == says
    refused.unlink()
    assert not one.call("browser_navigate", url=site)[1]
    assert one.end() == 0


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_a_bridge_and_not_the_desk(
    bridged: Callable[..., Bridged], desk: Desk, site: str, name: str
) -> None:
    one = bridged()
    one.initialize()
    one.call("browser_navigate", url=site)
    one.ask("tools/call", {"name": "browser_wait_for", "arguments": {"time": 600}}, "long")
    assert one.request("ping")["result"] == {}
    one.process.send_signal(signal.Signals[name])
    assert one.process.wait(PATIENCE) > 0, "a shell is told that it was ended"
    assert desk.clients() == set()
    assert client_of(desk.record()).tools


def test_a_bridge_that_nobody_spoke_to_ends(bridged: Callable[..., Bridged]) -> None:
    one, two = bridged(), bridged()
    assert one.end() == 0
    two.initialize()
    two.ask("tools/call", {"name": "browser_wait_for", "arguments": {"time": 600}}, "long")
    assert two.end() == 0, "also in the middle of a call"
    assert one.urls_asked_for() == 1


def test_the_official_client(desk: Desk, site: str) -> None:
    mcp = pytest.importorskip("mcp")
    stdio = pytest.importorskip("mcp.client.stdio")
    one = Bridged(desk)
    one.close()

    async def talk() -> None:
        command, *arguments = one.command
        parameters = mcp.StdioServerParameters(
            command=command, args=arguments, env=dict(os.environ), cwd=str(desk.folder)
        )
        async with stdio.stdio_client(parameters) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            tools = await session.list_tools()
            assert "browser_navigate" in {tool.name for tool in tools.tools}
            for last in (False, True):
                answer = await session.call_tool("browser_navigate", {"url": site})
                assert "### Error" not in answer.content[0].text
                both = await asyncio.gather(*[session.call_tool("browser_snapshot", {}) for _ in range(5)])
                assert all('heading "page"' in each.content[0].text for each in both)
                if not last:
                    await asyncio.to_thread(desk.kill)

    asyncio.run(talk())
    assert desk.clients() == set()
