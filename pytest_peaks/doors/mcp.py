"""The MCP door: Playwright's own MCP server on a session's browser.

The server comes with the Python wheel of Playwright: no npm, no network. It is attached over CDP,
so that its clients share the tabs, cookies and storage of the browser's default context, and none
of them can close the browser.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.doors.bundled import DOOR_NOTES, driver_command, mcp_preloads
from pytest_peaks.doors.mcp_client import McpClient, Tool, ToolResult, client_config
from pytest_peaks.errors import StartFailedError
from pytest_peaks.session import processes, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import node_environment
from pytest_peaks.session.spec import McpOptions
from pytest_peaks.session.startup import LostBindError, log_tail

# Listening after 0.5 s on an idle machine.
LISTEN_TIMEOUT = 60.0

COMMAND_HINT = "correct --peaks-mcp-command, or leave it out for the bundled server"

_LISTENING = re.compile(r"Listening on (http://\S+?)/?\s", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class McpServer:
    """A running server.

    :ivar url: where clients connect, as the server printed it (its Host check knows that name).
    :ivar spawned: its process, and its stdin: when the owner closes that or dies, the server ends.
    """

    spawned: spawning.Spawned
    url: str

    def is_alive(self) -> bool:
        return self.spawned.identity.is_alive()


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
    """The command line of a server; over stdio where there is no port.

    :raises StartFailedError: the command that was given is none.
    """
    if options.command:
        head = _split(options.command)
    else:
        node, script = driver_command()
        preloads = [word for url in mcp_preloads() for word in ("--import", url)]
        head = [node, *preloads, script, "mcp"]
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


def _split(command: str) -> list[str]:
    try:
        head = shlex.split(command)
    except ValueError as error:
        raise StartFailedError(
            f"the MCP server's command {command!r} cannot be read: {error}", hint=COMMAND_HINT
        ) from None
    if not head:
        raise StartFailedError("the MCP server's command is empty", hint=COMMAND_HINT)
    return head


def start(
    options: McpOptions,
    target: Sequence[str],
    *,
    port: int,
    env: Mapping[str, str],
    log: Path,
    output_dir: Path,
    notes: Path | None = None,
) -> McpServer:
    """Start a server over HTTP and wait until a tool call has worked.

    :param target: :func:`on_endpoint` or :func:`with_own_browser`.
    :param port: 0 lets the system choose.
    :param notes: the folder in which the server notes when it is used, and by whom; see ``hosting/use.py``.
    :raises LostBindError: `port` was taken meanwhile.
    :raises StartFailedError: it exited, or was not ready in time; with the end of its log.
    """
    command = server_command(options, target, port, output_dir)
    environment = server_environment(options, env, notes)
    try:
        spawned = spawning.spawn_held(command, environment, log)
    except OSError as error:
        raise StartFailedError(
            f"the MCP server {command[0]} cannot be run: {error.strerror or error}",
            hint=COMMAND_HINT,
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


def server_environment(
    options: McpOptions, env: Mapping[str, str], notes: Path | None = None
) -> dict[str, str]:
    """A session's environment with what a server needs besides."""
    environment = node_environment(env)
    # No client of ours opens the stream over which the server pings, and an agent's may sit in a
    # debugger: without an answer in 5 s the server would end the client's session.
    environment["PLAYWRIGHT_MCP_PING_TIMEOUT_MS"] = "0"
    environment.pop(DOOR_NOTES, None)
    if notes is not None:
        environment[DOOR_NOTES] = str(notes)
    if options.command:
        preloads = " ".join(f"--import={url}" for url in mcp_preloads())
        environment["NODE_OPTIONS"] = f"{environment.get('NODE_OPTIONS', '')} {preloads}".strip()
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
