"""The MCP door: Playwright's own MCP server on a session's browser, and a small synchronous client.

The server comes with the Python wheel of Playwright: no npm, no network. It is attached over CDP,
so that its clients share the tabs, cookies and storage of the browser's default context, and none
of them can close the browser.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pytest_peaks import __version__
from pytest_peaks.errors import McpFailedError, McpToolError, StartFailedError
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.spec import McpOptions
from pytest_peaks.session.startup import LostBindError, log_tail

# Listening after 0.5 s on an idle machine.
LISTEN_TIMEOUT = 60.0
# A tool call has limits of its own in the server (5 s an action, 60 s a navigation).
CALL_TIMEOUT = 120.0
PROTOCOL = "2025-06-18"

# In HTTP mode the server watches for the end of its stdin but never reads it, so it would outlive
# its parent. Reading makes the watch work.
STDIN_GUARD = "data:text/javascript,process.stdin.resume()"

_LISTENING = re.compile(r"Listening on (http://\S+?)/?\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class McpServer:
    """A running server.

    :ivar url: where clients connect, as the server printed it (its Host check knows that name).
    :ivar spawned: its process, and its stdin: when the owner closes that or dies, the server ends.
    """

    spawned: processes.Spawned
    url: str

    def is_alive(self) -> bool:
        return self.spawned.identity.is_alive()


def driver_command() -> list[str]:
    """Node and ``cli.js`` of the Playwright wheel. Run directly, so that the pid is the program's own.

    ``PLAYWRIGHT_NODEJS_PATH`` names another node, as in Playwright.

    :raises McpFailedError: the installed Playwright has neither.
    """
    try:
        from playwright._impl._driver import compute_driver_executable

        return list(compute_driver_executable())
    except ImportError:
        # The same place, found without Playwright's private module.
        from importlib.util import find_spec

        spec = find_spec("playwright")
        places = list(spec.submodule_search_locations or ()) if spec else []
        if not places:
            raise McpFailedError("Playwright is not installed", hint="pip install playwright") from None
        driver = Path(places[0]) / "driver"
        node = os.environ.get("PLAYWRIGHT_NODEJS_PATH") or str(
            driver / ("node.exe" if os.name == "nt" else "node")
        )
        return [node, str(driver / "package" / "cli.js")]


def on_endpoint(endpoint: str) -> list[str]:
    """Arguments of a server on the browser at a CDP WebSocket URL, which stays ours."""
    return ["--cdp-endpoint", endpoint]


def with_own_browser(browser: str, user_data_dir: Path, *, headed: bool) -> list[str]:
    """Arguments of a server with a browser of its own, for those that have no CDP.

    It closes the browser with its last client, so its owner has to stay connected.
    """
    arguments = ["--browser", browser, "--user-data-dir", str(user_data_dir), "--shared-browser-context"]
    return arguments if headed else [*arguments, "--headless"]


def server_command(
    options: McpOptions, target: Sequence[str], port: int | None, output_dir: Path
) -> list[str]:
    """The command line of a server; over stdio where there is no port."""
    if options.command:
        head = shlex.split(options.command)
    else:
        node, script = driver_command()
        head = [node, "--import", STDIN_GUARD, script, "mcp"]
    return [
        *head,
        *(["--port", str(port)] if port is not None else []),
        *target,
        "--output-dir",
        str(output_dir),
        "--timeout-settle",
        str(options.settle),
        *(["--caps", ",".join(options.caps)] if options.caps else []),
        *options.args,
    ]


def start(
    options: McpOptions,
    target: Sequence[str],
    *,
    port: int,
    env: Mapping[str, str],
    log: Path,
    output_dir: Path,
) -> McpServer:
    """Start a server over HTTP and wait until a tool call has worked.

    :param target: :func:`on_endpoint` or :func:`with_own_browser`.
    :param port: 0 lets the system choose.
    :raises LostBindError: `port` was taken meanwhile.
    :raises StartFailedError: it exited, or was not ready in time; with the end of its log.
    """
    command = server_command(options, target, port, output_dir)
    environment = server_environment(options, env)
    try:
        spawned = processes.spawn_held(command, environment, log)
    except OSError as error:
        raise StartFailedError(
            f"the MCP server {command[0]} cannot be run: {error.strerror or error}",
            hint="correct --peaks-mcp-command, or leave it out for the bundled server",
        ) from error
    try:
        url = _wait_until_listening(spawned.identity, log)
        with McpClient(url) as client:
            client.call("browser_tabs", action="list")
    except BaseException:
        spawned.pipe.close()
        processes.end_tree(spawned.identity, grace=0.0)
        processes.reap_child(spawned.identity.pid)
        raise
    return McpServer(spawned, url)


def server_environment(options: McpOptions, env: Mapping[str, str]) -> dict[str, str]:
    """A session's environment with what a server needs besides."""
    environment = dict(env)
    # No client of ours opens the stream over which the server pings, and an agent's may sit in a
    # debugger: without an answer in 5 s the server would end the client's session.
    environment["PLAYWRIGHT_MCP_PING_TIMEOUT_MS"] = "0"
    if options.command:
        guard = f"--import={STDIN_GUARD}"
        environment["NODE_OPTIONS"] = f"{environment.get('NODE_OPTIONS', '')} {guard}".strip()
    return environment


def _wait_until_listening(identity: ProcessIdentity, log: Path) -> str:
    deadline = time.monotonic() + LISTEN_TIMEOUT
    while True:
        alive = identity.is_alive()
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        match = _LISTENING.search(text)
        if match:
            return f"{match[1]}/mcp"
        if not alive:
            if "EADDRINUSE" in text:
                raise LostBindError
            raise StartFailedError(
                f"the MCP server exited before it listened{log_tail(text)}",
                hint="correct its arguments; `--peaks-mcp-command` names another server",
            )
        if time.monotonic() > deadline:
            raise StartFailedError(
                f"the MCP server did not listen after {LISTEN_TIMEOUT:.0f} s{log_tail(text)}",
                hint="`peaks doctor` says what is wrong with this machine",
            )
        time.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the server offers; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered.

    :ivar text: all text parts, joined by line breaks.
    :ivar images: the image parts, decoded.
    :ivar structured: the structured content, None if there is none.
    """

    text: str
    images: tuple[bytes, ...] = field(default=(), repr=False)
    structured: Mapping[str, Any] | None = None

    def section(self, title: str) -> str:
        """The part of `text` under ``### title``; empty if there is none."""
        match = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", self.text, re.MULTILINE | re.DOTALL)
        return match[1].strip() if match else ""

    def __str__(self) -> str:
        return self.text


class McpClient:
    """A client over streamable HTTP, synchronous, without an event loop of its own.

    So it works while Playwright's sync API is in use. It posts and never opens the server's stream,
    so that it is not pinged, and can sit in a debugger for as long as it likes.

    :param url: the server's, as it printed it.
    :param timeout: seconds that one answer may take.
    :param after_call: called after every tool call.
    """

    def __init__(
        self, url: str, *, timeout: float = CALL_TIMEOUT, after_call: Callable[[], None] | None = None
    ) -> None:
        self.url = url
        self._after_call = after_call
        self._timeout = timeout
        self._session: str | None = None
        self._ids = itertools.count(1)
        self._tools: tuple[Tool, ...] | None = None

    def __repr__(self) -> str:
        return f"<McpClient {self.url}>"

    def __enter__(self) -> McpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> dict[str, Any]:
        """What an agent's harness is configured with: ``{"mcpServers": {"playwright": {"url": …}}}``."""
        return client_config(self.url)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the server offers."""
        if self._tools is None:
            listed = self._request("tools/list", {}).get("tools", [])
            self._tools = tuple(
                Tool(tool["name"], tool.get("description", ""), tool.get("inputSchema", {}))
                for tool in listed
            )
        return self._tools

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool.

        :raises McpToolError: the tool says that it failed; with its text.
        :raises McpFailedError: the server is gone, or refuses the request.
        """
        answer = self._request("tools/call", {"name": tool, "arguments": arguments})
        if self._after_call is not None:
            self._after_call()
        parts = answer.get("content") or []
        text = "\n".join(part.get("text", "") for part in parts if part.get("type") == "text")
        if answer.get("isError"):
            raise McpToolError(f"{tool}: {text.removeprefix('### Error').strip()}")
        images = tuple(base64.b64decode(part["data"]) for part in parts if part.get("type") == "image")
        return ToolResult(text, images, answer.get("structuredContent"))

    def snapshot(self) -> str:
        """The page's accessibility tree with refs, as YAML."""
        return _fenced(self.call("browser_snapshot").text)

    def close(self) -> None:
        """End the client's session; the browser stays. Idempotent, never raises."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._http("DELETE", None, {"mcp-session-id": session})

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._session is None and method != "initialize":
            self._initialize()
        number = next(self._ids)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        message = self._message(number, self._post(body))
        if "error" in message:
            error = message["error"]
            raise McpFailedError(f"{self.url} refuses {method}: {error.get('message', error)}")
        result: dict[str, Any] = message.get("result", {})
        return result

    def _initialize(self) -> None:
        self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "pytest-peaks", "version": __version__},
            },
        )
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _post(self, body: Mapping[str, Any]) -> str:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        try:
            status, answered, text = self._http("POST", json.dumps(body), headers)
        except (OSError, http.client.HTTPException) as error:
            raise McpFailedError(
                f"the MCP server at {self.url} does not answer: {error}", hint="its session may have ended"
            ) from None
        if status >= 400:
            self._session = None
            raise McpFailedError(f"the MCP server at {self.url} answers {status}: {text.strip()[:200]}")
        self._session = answered.get("mcp-session-id") or self._session
        return text

    def _http(
        self, method: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], str]:
        # http.client and not urllib: a proxy in the environment is not for loopback.
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=self._timeout)
        try:
            connection.request(method, place.path, body.encode() if body else None, dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", errors="replace")
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, text
        finally:
            connection.close()

    def _message(self, number: int, text: str) -> dict[str, Any]:
        """The answer to request `number` in a plain JSON body or an event stream."""
        for line in text.splitlines() if text.lstrip().startswith(("event:", "data:", "id:")) else [text]:
            data = line.removeprefix("data:").strip()
            if not data.startswith("{"):
                continue
            with contextlib.suppress(ValueError):
                message: dict[str, Any] = json.loads(data)
                if message.get("id") == number:
                    return message
        raise McpFailedError(f"the MCP server at {self.url} gave no answer that can be read")


def client_config(url: str, name: str = "playwright") -> dict[str, Any]:
    """The ``mcpServers`` entry of a server at `url`, to paste into a client's configuration."""
    return {"mcpServers": {name: {"type": "http", "url": url}}}


def _fenced(text: str) -> str:
    match = re.search(r"```yaml\n(.*?)\n?```", text, re.DOTALL)
    return match[1] if match else text


__all__: Sequence[str] = (
    "McpClient",
    "McpOptions",
    "McpServer",
    "Tool",
    "ToolResult",
    "client_config",
    "driver_command",
    "start",
)
