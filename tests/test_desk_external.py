"""Desks that somebody else runs: an MCP server that an agent registered, and a browser that is there already."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from authapp import App, serve
from leaks import Surroundings
from seatings import PEAKS, Desks, evaluate, log_in, succeeded, title, wait_until

from pytest_peaks.doors.bundled import driver_command
from pytest_peaks.doors.mcp_client import McpClient
from pytest_peaks.errors import McpFailedError, McpToolError
from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserName, BrowserSpec

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and modes")
NOBODY = "login"
TOOLS = {"browser_storage_state", "browser_set_storage_state"}


@pytest.fixture
def app() -> Iterator[App]:
    with serve() as running:
        yield running


@pytest.fixture
def desks(tmp_path: Path, surroundings: Surroundings) -> Iterator[Desks]:
    """A project with a space in its path; nothing of peaks runs for desks of this kind."""
    made = Desks.at(tmp_path / "a project", surroundings)
    yield made
    made.down()


def executable() -> Path:
    return browsers.find(BrowserSpec(browser=BrowserName.CHROMIUM)).executable


@contextmanager
def mcp_server(desks: Desks, *arguments: str) -> Iterator[str]:
    """The MCP server of Playwright, as its user starts it in the project; gives its URL."""
    port = desks.port(10)
    command = [*driver_command(), "mcp", "--port", str(port), *arguments]
    log = desks.folder.parent / "server.log"
    # What it leaves of its own is no leak of peaks.
    with tempfile.TemporaryDirectory(prefix="pks-", dir="/tmp") as temp, log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=desks.folder,
            env=desks.env(TMPDIR=temp),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            wait_until(lambda: "Listening on" in log.read_text(), "the server listens")
            yield f"http://localhost:{port}/mcp"
        finally:
            process.terminate()
            process.wait()


def isolated(desks: Desks, *more: str) -> Any:
    """As the first design registers it, with what makes its storage tools exist."""
    return mcp_server(
        desks, "--isolated", "--headless", "--no-sandbox", "--executable-path", str(executable()), *more
    )


def follow(desks: Desks, client: McpClient, answer: dict[str, Any]) -> None:
    """Do what an answer says is left to be done, to the letter and from elsewhere."""
    for step in answer["next"]:
        if "command" in step:
            words = shlex.split(step["command"])
            assert words[0] == "peaks"
            done = subprocess.run(
                [*PEAKS, *words[1:], "--json"],
                cwd="/",
                env=desks.env(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert succeeded(done)["saved"] is True
        else:
            assert step["tool"].startswith(answer["mcp_prefix"])
            client.call(step["tool"].removeprefix(answer["mcp_prefix"]), **step["arguments"])


def test_the_steps_that_are_given_bring_a_login_back_at_a_registered_server(desks: Desks, app: App) -> None:
    with isolated(desks, "--caps=storage") as url:
        desks.configure({"name": "mine", "mcp_url": url})
        alice = desks.ok("create", "alice", f"{app.url}/page")
        assert (alice["mcp_url"], alice["restored"], alice["warnings"]) == (url, False, [])
        with McpClient(url) as client:
            follow(desks, client, alice)
            assert evaluate(client, "() => document.title") == "page"
            log_in(client, app.url, "alice")
            saved = desks.ok("save", "alice")
            assert saved["saved"] is False
            follow(desks, client, saved)
            assert desks.state("alice").stat().st_mode & 0o777 == 0o600
            assert [path.name for path in desks.state("alice").parent.iterdir()] == ["alice.json"]
            assert desks.rows()["alice"]["state_exists"] is True
            closed = desks.ok("close", "alice")
            follow(desks, client, {**closed, "mcp_prefix": alice["mcp_prefix"]})

            bob = desks.ok("create", "bob", f"{app.url}/me")
            follow(desks, client, bob)
            assert evaluate(client, "() => document.title") == NOBODY
            desks.ok("close", "bob")

            again = desks.ok("resume", "alice", f"{app.url}/me")
            assert (again["restore"], again["restored"]) == (True, False)
            follow(desks, client, again)
            assert evaluate(client, "() => document.title") == "alice"
            seated = desks.ok("resume", "alice")
            assert seated["next"] == [], "nothing is to be restored over what is there"
            assert title(client, f"{app.url}/me") == "alice"


def test_what_the_first_design_said_of_these_servers_and_is_not_so(desks: Desks, app: App) -> None:
    with isolated(desks) as url, McpClient(url) as client:
        assert not TOOLS & {tool.name for tool in client.tools}, "without --caps=storage there are none"
        log_in(client, app.url, "alice")
        client.call("browser_navigate", url="about:blank")
        assert title(client, f"{app.url}/me") == "alice", "going elsewhere blanks nothing"
        client.call("browser_close")
        assert title(client, f"{app.url}/me") == NOBODY
    with isolated(desks, "--caps=storage") as url, McpClient(url) as client:
        assert {tool.name for tool in client.tools} >= TOOLS
        log_in(client, app.url, "alice")
        with pytest.raises(McpToolError, match="allowed roots"):
            client.call("browser_storage_state", filename="/tmp/outside.json")
        given = client.call("browser_storage_state", filename="inside.json")
        assert "cookies" not in given.text, "a link, and not the state"
        with pytest.raises((McpToolError, McpFailedError)):
            client.call("browser_set_storage_state", cookies=[], origins=[])


def test_an_encrypted_state_is_not_handed_to_tools_that_cannot_read_it(desks: Desks) -> None:
    key = {"PEAKS_STATE_KEY": "k" * 43 + "="}
    desks.configure({"name": "mine", "external": True})
    desks.ok("create", "alice", **key)
    desks.ok("save", "alice", "--from", str(desks.storage_state()), **key)
    assert "cookies" not in desks.state("alice").read_text()
    desks.ok("close", "alice", **key)
    again = desks.ok("resume", "alice", **key)
    assert [step["tool"] for step in again["next"]] == ["mcp__mine__browser_close"]
    assert any("is encrypted" in warning for warning in again["warnings"])


@pytest.mark.parametrize("kind", ["external", "mcp_url"])
def test_a_server_that_nobody_runs_or_registered_is_explained(desks: Desks, kind: str) -> None:
    url = f"http://localhost:{desks.port(1)}/mcp"
    desks.configure({"name": "mine", **({"external": True} if kind == "external" else {"mcp_url": url})})
    made = desks.ok("create", "alice")
    [warning] = made["warnings"]
    assert "mine" in warning
    assert (f"nothing listens at {url}" if kind == "mcp_url" else "knows no address") in warning
    assert "peaks session pool --config" in warning
    assert warning in desks.run("resume", "alice").stdout
    (desks.home / ".claude.json").write_text(
        json.dumps({"projects": {str(desks.folder): {"mcpServers": {"mine": {"command": "npx"}}}}})
    )
    assert desks.ok("resume", "alice")["warnings"] == []


def test_a_bare_name_is_only_leased_on_a_machine_without_a_browser(desks: Desks, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "from pytest_peaks.session import browsers\n"
        "browsers._SHELLS = browsers._CHROMIUMS = ('/nowhere/chromium',)\n"
    )
    nothing = {"PYTHONPATH": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": str(tmp_path / "none")}
    desks.configure("d", {"name": "hosted", "port": desks.port(5)})
    made = desks.ok("create", "alice", **nothing)
    assert (made["desk"], made["restored"]) == ("d", False)
    assert "the desk is only leased" in made["warnings"][0]
    assert [step["tool"] for step in made["next"]] == ["mcp__d__browser_close"]
    assert desks.ok("save", "alice", **nothing)["saved"] is False
    assert desks.ok("save", "alice", "--from", str(desks.storage_state()), **nothing)["saved"] is True
    # One that was configured as hosted is not taken for somebody else's.
    refused = desks.fails("browser_not_found", 1, "create", "bob", **nothing)
    assert "/nowhere/chromium" in refused["message"]
    assert desks.desk_states() == {"d": "leased", "hosted": "free"}, "it is not the desk's fault"
    assert desks.ok("close", "alice", **nothing)["freed_desk"] == "d"
    again = desks.ok("resume", "alice", **nothing)
    assert [step["tool"] for step in again["next"]] == [
        "mcp__d__browser_close",
        "mcp__d__browser_set_storage_state",
    ]


@contextmanager
def browser_of_its_own(folder: Path) -> Iterator[str]:
    """A Chromium that somebody runs; gives its endpoint."""
    process = subprocess.Popen(
        [
            str(executable()),
            "--headless",
            "--no-sandbox",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder}",
            "about:blank",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stderr is not None
        endpoint = next(
            match[1] for line in process.stderr if (match := re.search(r"listening on (ws://\S+)", line))
        )
        yield endpoint
        assert process.poll() is None, "it is not ours to end"
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize("scheme", ["http", pytest.param("ws", marks=pytest.mark.slow)])
def test_identities_take_turns_in_a_browser_that_is_there_already(
    desks: Desks, app: App, tmp_path: Path, scheme: str
) -> None:
    with (
        browser_of_its_own(tmp_path / "profile") as endpoint,
        mcp_server(desks, "--cdp-endpoint", endpoint) as url,
        McpClient(url) as client,
    ):
        given = endpoint if scheme == "ws" else "http://" + endpoint.split("/")[2]
        desks.configure({"name": "mine", "endpoint": given, "mcp_url": url})
        log_in(client, app.url, "somebody")
        made = desks.ok("create", "alice", f"{app.url}/page")
        assert (made["mcp_url"], made["restored"], made["next"]) == (url, False, [])
        assert title(client, f"{app.url}/me") == NOBODY, "whoever was here before is gone"
        log_in(client, app.url, "alice")
        assert desks.ok("save", "alice")["saved"] is True
        assert desks.ok("close", "alice")["freed_desk"] == "mine"
        assert desks.ok("create", "bob")["desk"] == "mine"
        assert title(client, f"{app.url}/me") == NOBODY
        desks.ok("close", "bob")
        assert desks.ok("resume", "alice", f"{app.url}/me")["restored"] is True
        assert title(client, f"{app.url}/me") == "alice"
        desks.ok("close", "alice", "--no-save")
        desks.ok("pool", "--down")


def test_a_browser_that_is_gone_is_a_desk_that_failed(desks: Desks) -> None:
    desks.configure({"name": "mine", "endpoint": f"ws://127.0.0.1:{desks.port(1)}/devtools/browser/hush"})
    done = desks.run("create", "alice", "--json")
    assert json.loads(done.stdout)["error"] == "desk_failed"
    assert done.returncode == 5
    assert "hush" not in done.stdout + done.stderr, "whose path is a key to the browser"
    assert desks.rows() == {}
