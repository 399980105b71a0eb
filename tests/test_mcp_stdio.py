"""`peaks mcp`: MCP over stdin and stdout on a browser of its own, of which nothing stays."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from leaks import Surroundings

PATIENCE = 90.0
Peaks = Callable[..., subprocess.CompletedProcess[str]]


class Client:
    """An agent's harness: it runs the command and speaks JSON-RPC with it, a line a message."""

    def __init__(self, cwd: Path, arguments: Sequence[str]) -> None:
        self.errors = cwd / f"stderr-{time.monotonic_ns()}"
        self.lines: list[str] = []
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._number = 0
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from pytest_peaks.cli import main; main()", "mcp", *arguments],
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            with contextlib.suppress(ValueError):
                self._answers.put(json.loads(line))
        self._answers.put(None)

    def send(self, method: str, params: dict[str, Any] | None = None, **fields: Any) -> None:
        assert self.process.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, **fields}
        if params is not None:
            message["params"] = params
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._number += 1
        self.send(method, params or {}, id=self._number)
        while True:
            answer = self._answers.get(timeout=PATIENCE)
            assert answer is not None, f"it ended: {self.errors.read_text()}"
            if answer.get("id") == self._number and "method" not in answer:
                return answer

    def initialize(self) -> dict[str, Any]:
        answer = self.request(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "a-harness", "version": "1"},
            },
        )
        self.send("notifications/initialized")
        return answer["result"]  # type: ignore[no-any-return]

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        """The text of a tool's answer, and whether it is an error."""
        answer = self.request("tools/call", {"name": tool, "arguments": arguments})
        result = answer["result"]
        return "\n".join(part.get("text", "") for part in result["content"]), bool(result.get("isError"))

    def evaluate(self, function: str) -> Any:
        text, failed = self.call("browser_evaluate", function=function)
        assert not failed, text
        found = re.search(r"### Result\n(.*?)(?=\n### |\Z)", text, re.DOTALL)
        assert found, text
        return json.loads(found[1])

    def end(self) -> int:
        """Close its stdin; the exit status."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        """Let go of it, whatever became of it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def only_the_protocol(self) -> None:
        """Nothing else may ever be on stdout."""
        for line in self.lines:
            assert json.loads(line)["jsonrpc"] == "2.0"

    def browser(self) -> psutil.Process:
        """The Chromium that it holds."""
        tree = psutil.Process(self.process.pid).children()
        [found] = [child for child in tree if "--remote-debugging-pipe" in child.cmdline()]
        return found


@pytest.fixture
def client(tmp_path: Path, surroundings: Surroundings) -> Iterator[Callable[..., Client]]:
    """Start `peaks mcp` in a project of the test's own; nothing of any may be left."""
    opened: list[Client] = []

    def start(*arguments: str) -> Client:
        opened.append(Client(tmp_path, arguments))
        return opened[-1]

    yield start
    for one in opened:
        one.close()
        one.only_the_protocol()
    surroundings.assert_clean(tmp_path)


def test_a_session_from_its_first_word_to_its_last(
    client: Callable[..., Client], site: str, surroundings: Surroundings, tmp_path: Path
) -> None:
    one = client()
    told = one.initialize()
    assert told["protocolVersion"]
    assert told["serverInfo"]["name"]
    tools = {tool["name"] for tool in one.request("tools/list")["result"]["tools"]}
    assert {"browser_navigate", "browser_snapshot", "browser_click", "browser_tabs"} <= tools
    text, failed = one.call("browser_navigate", url=site)
    assert not failed, text
    text, failed = one.call("browser_snapshot")
    assert not failed
    assert '- heading "page"' in text
    text, failed = one.call("browser_evaluate", function="() => { throw new Error('wrong') }")
    assert failed
    assert "wrong" in text
    assert "error" in one.request("no/such/method")
    assert one.end() == 0
    surroundings.assert_clean(tmp_path)
    assert one.errors.read_text() == ""


def test_two_clients_are_isolated(client: Callable[..., Client], site: str) -> None:
    one, two = client(), client()
    for each, name in ((one, "one"), (two, "two")):
        each.initialize()
        each.call("browser_navigate", url=f"{site}/{name}")
        each.evaluate(f"() => (localStorage.setItem('k', '{name}'), document.cookie = 'k={name}', 1)")
    for each, name in ((one, "one"), (two, "two")):
        assert each.evaluate("() => [location.pathname, localStorage.k, document.cookie]") == [
            f"/{name}",
            name,
            f"k={name}",
        ]
    assert one.browser().pid != two.browser().pid
    assert one.end() == 0
    assert two.evaluate("() => localStorage.k") == "two", "the end of one is none of the other's"
    assert two.end() == 0


def test_big_messages_and_other_alphabets_pass(client: Callable[..., Client], site: str) -> None:
    one = client()
    one.initialize()
    one.call("browser_navigate", url=site)
    assert one.evaluate("() => 'x'.repeat(2 ** 20)") == "x" * 2**20
    text = "é😀\n" * 100_000
    sent = json.dumps(text)
    assert one.evaluate(f"() => {sent}.length") == len(text) + 100_000, "in UTF-16, both ways"
    assert one.evaluate("() => 'é😀'.repeat(1000)") == "é😀" * 1000
    assert one.end() == 0


@pytest.mark.parametrize("when", ["before-initialize", "at-once"])
def test_a_client_that_changes_its_mind(client: Callable[..., Client], when: str) -> None:
    one = client()
    if when == "before-initialize":
        one.send("notifications/initialized")
        time.sleep(1)
    assert one.end() == 0


def test_what_the_environment_holds_does_not_leak_in(
    client: Callable[..., Client], site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLAYWRIGHT_MCP_CDP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PLAYWRIGHT_MCP_ISOLATED", "1")
    monkeypatch.setenv("PLAYWRIGHT_MCP_PORT", "9")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    one = client("--caps", "pdf,storage")
    one.initialize()
    tools = {tool["name"] for tool in one.request("tools/list")["result"]["tools"]}
    assert {"browser_pdf_save", "browser_storage_state"} <= tools
    text, failed = one.call("browser_navigate", url=site)
    assert not failed, text
    assert one.end() == 0


# --- Its end, however it comes


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize("when", ["in-use", pytest.param("starting", marks=pytest.mark.slow)])
def test_a_signal_ends_all_of_it(
    client: Callable[..., Client],
    surroundings: Surroundings,
    tmp_path: Path,
    site: str,
    name: str,
    when: str,
) -> None:
    number = signal.Signals[name]
    one = client()
    if when == "in-use":
        one.initialize()
        one.call("browser_navigate", url=site)
    else:
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / ".peaks" / "_runtime" / "playwright-sessions").exists():
            assert time.monotonic() < deadline
            time.sleep(0.005)
    one.process.send_signal(number)
    status = one.process.wait(PATIENCE)
    if name == "SIGKILL":
        assert status == -number
    else:
        assert status > 0, "a shell is told that it was ended"
    surroundings.assert_clean(tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_client_that_dies_takes_all_with_it(tmp_path: Path, surroundings: Surroundings, site: str) -> None:
    """The harness is killed and says no goodbye: stdin ends all the same."""
    script = tmp_path / "harness.py"
    script.write_text(
        "import sys, pathlib, time\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_mcp_stdio import Client\n"
        "one = Client(pathlib.Path.cwd(), [])\n"
        "one.initialize()\n"
        f"one.call('browser_navigate', url={site!r})\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    harness = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline
            assert harness.poll() is None
            time.sleep(0.02)
    finally:
        harness.kill()
        harness.wait()
    surroundings.assert_clean(tmp_path)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_browser_that_dies_ends_it(client: Callable[..., Client], site: str) -> None:
    one = client()
    one.initialize()
    one.call("browser_navigate", url=site)
    one.browser().kill()
    assert one.process.wait(PATIENCE) == 5
    assert one.errors.read_text().startswith("BROWSER_LOST: the browser died")


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX signals")
def test_a_server_that_dies_ends_it(client: Callable[..., Client], site: str) -> None:
    one = client()
    one.initialize()
    one.call("browser_navigate", url=site)
    [server] = [child for child in psutil.Process(one.process.pid).children() if "mcp" in child.cmdline()]
    server.kill()
    assert one.process.wait(PATIENCE) != 0


# --- Logged in

SECRET = "canary-of-a-session"


def save_login(project: Path, content: object, name: str = "alice") -> Path:
    path = project / ".peaks" / "auth" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_client_begins_logged_in(client: Callable[..., Client], tmp_path: Path, site: str) -> None:
    where = {"domain": "127.0.0.1", "path": "/"}
    flags = {"expires": -1, "httpOnly": True, "secure": False, "sameSite": "Lax"}
    cookie = {"name": "sid", "value": SECRET, **where, **flags}
    origin = {"origin": site, "localStorage": [{"name": "token", "value": SECRET}]}
    save_login(tmp_path, {"cookies": [cookie], "origins": [origin]})
    one = client("--auth", "alice")
    one.initialize()
    one.call("browser_navigate", url=f"{site}/echo-cookies")
    assert one.evaluate("() => document.body.innerText") == f"sid={SECRET}"
    assert one.evaluate("() => localStorage.getItem('token')") == SECRET
    assert one.end() == 0
    assert SECRET not in one.errors.read_text()
    assert not any(SECRET in log.read_text() for log in (tmp_path / ".peaks" / "_runtime" / "logs").iterdir())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "STATE_NOT_FOUND: there is no saved login 'alice'"),
        ("null", "INVALID_STATE: "),
        ("{}", "INVALID_STATE: "),
        (f'[{{"value": "{SECRET}"}}]', "INVALID_STATE: "),
        (f'{{"cookies": [{{"value": "{SECRET}', "INVALID_STATE: "),
        (
            {"cookies": [{"name": "sid", "value": SECRET}], "origins": []},
            "INVALID_STATE: ",
        ),
        (
            {
                "cookies": [
                    {
                        "name": "__Host-sid",
                        "value": SECRET,
                        "domain": "a.example",
                        "path": "/no",
                        "secure": True,
                    }
                ],
                "origins": [],
            },
            "INVALID_STATE: the browser refuses",
        ),
    ],
    ids=["missing", "null", "empty", "list", "truncated", "no domain", "refused"],
)
def test_a_login_that_cannot_be_used_is_refused_without_a_word_of_it(
    peaks: Peaks, surroundings: Surroundings, tmp_path: Path, content: object, says: str
) -> None:
    if content is not None:
        save_login(tmp_path, content)
    done = peaks("mcp", "--auth", "alice", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.startswith(says)
    assert "hint: " in done.stderr
    assert SECRET not in done.stderr
    surroundings.assert_clean(tmp_path)


def test_a_login_is_no_path(peaks: Peaks, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text('{"cookies": [], "origins": []}')
    for name in ("../../elsewhere", "/etc/passwd", ""):
        done = peaks("mcp", "--auth", name, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("INVALID_NAME: ")
    link = save_login(tmp_path, "{}", "link")
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere.json")
    assert peaks("mcp", "--auth", "link", cwd=tmp_path).stderr.startswith("INVALID_STATE: ")


# --- In a hosted session


@pytest.fixture
def hosted(peaks: Peaks, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A hosted session of the terminal `mine`; stopped at the end."""
    done = peaks("playwright", "start", "--terminal", "mine", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        yield json.loads(done.stdout)
    finally:
        stopped = peaks("playwright", "stop", "--terminal", "mine", cwd=tmp_path)
        assert stopped.returncode == 0, stopped.stderr


def test_joining_a_hosted_session(
    client: Callable[..., Client], peaks: Peaks, hosted: dict[str, Any], tmp_path: Path, site: str
) -> None:
    from pytest_peaks.doors.mcp import McpClient

    def listed() -> list[dict[str, Any]]:
        rows = json.loads(peaks("playwright", "ls", "--json", cwd=tmp_path).stdout)["sessions"]
        return [row for row in rows if row["alive"]]

    with McpClient(hosted["mcpUrl"]) as agent:
        agent.call("browser_navigate", url=site + "/shared")
        agent.call("browser_evaluate", function="() => localStorage.setItem('k', 'agent')")
        for end in ("closed", "killed"):
            one = client("--terminal", "mine")
            one.initialize()
            assert one.evaluate("() => [location.pathname, localStorage.k]") == ["/shared", "agent"], end
            one.evaluate("() => (document.title = 'by stdio', 1)")
            assert "by stdio" in agent.call("browser_tabs", action="list").text
            if end == "closed":
                assert one.end() == 0
            else:
                one.process.kill()
                one.process.wait(PATIENCE)
            [row] = listed()
            assert (row["pid"], row["tabs"]) == (hosted["session"]["pid"], 1), end


def test_a_hosted_session_that_is_stopped_ends_its_clients(
    client: Callable[..., Client], peaks: Peaks, hosted: dict[str, Any], tmp_path: Path, site: str
) -> None:
    one = client("--terminal", "mine")
    one.initialize()
    one.call("browser_navigate", url=site)
    assert peaks("playwright", "stop", "--terminal", "mine", cwd=tmp_path).returncode == 0
    assert one.process.wait(PATIENCE) == 5
    assert one.errors.read_text().startswith("BROWSER_LOST: the session of mine has ended")
    started = peaks("playwright", "start", "--terminal", "mine", cwd=tmp_path)  # for the fixture's stop
    assert started.returncode == 0


# --- Refusals: the reason on stderr, and stdout is the protocol's alone


@pytest.mark.parametrize(
    ("arguments", "says", "status"),
    [
        (["--terminal", "nobody"], "NO_SESSION: no playwright session of terminal nobody", 2),
        (["--terminal", "../x"], "INVALID_NAME: ", 2),
        (["--browser", "firefox"], "INVALID_OPTION: firefox can't be served by `peaks mcp`", 2),
        (["--browser", "nonsense"], "INVALID_OPTION: 'nonsense' is not a browser", 2),
        (["--executable", "/nowhere/chromium"], "BROWSER_NOT_FOUND: ", 1),
        (
            ["--mcp-command", "/nowhere/server"],
            "START_FAILED: the MCP server /nowhere/server cannot be run",
            5,
        ),
        (["--mcp-command", "node 'unbalanced"], "START_FAILED: ", 5),
        (["--port", "1"], "USAGE: ", 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_refused(
    peaks: Peaks, tmp_path: Path, surroundings: Surroundings, arguments: list[str], says: str, status: int
) -> None:
    done = peaks("mcp", *arguments, cwd=tmp_path, env={"PEAKS_DEBUG": ""})
    assert done.stderr.startswith(says), done.stderr
    assert "hint: " in done.stderr
    assert done.returncode == status
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    surroundings.assert_clean(tmp_path)


def test_another_servers_command(client: Callable[..., Client], site: str) -> None:
    from pytest_peaks.doors.mcp import driver_command

    node, script = driver_command()
    one = client("--mcp-command", f"env OTHER_SERVER=1 {node} {script} mcp")
    one.initialize()
    text, failed = one.call("browser_navigate", url=site)
    assert not failed, text
    children = psutil.Process(one.process.pid).children(recursive=True)
    assert any(child.environ().get("OTHER_SERVER") for child in children)
    assert one.end() == 0


def test_no_descriptor_of_the_client_is_kept(client: Callable[..., Client], site: str) -> None:
    """stdin and stdout end with the command, also for the server and the browser below it."""
    one = client()
    one.initialize()
    one.call("browser_navigate", url=site)
    mine = {os.readlink(f"/proc/{one.process.pid}/fd/{number}") for number in (0, 1)}
    for child in psutil.Process(one.process.pid).children(recursive=True):
        held = set()
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{child.pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    held.add(os.readlink(entry))
        assert not mine & held, child.cmdline()[:3]
    assert one.end() == 0
