"""The MCP door: Playwright's own MCP server on a session's browser.

The server comes with the Python wheel of Playwright: no npm, no network. It is attached over CDP,
so that its clients share the tabs, cookies and storage of the browser's default context, and none
of them can close the browser.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.doors.bundled import client_config, driver_command
from pytest_peaks.doors.mcp_client import McpClient, Tool, ToolResult
from pytest_peaks.doors.mcp_process import (
    COMMAND_HINT,
    on_endpoint,
    server_command,
    server_environment,
    spawn,
    with_own_browser,
)
from pytest_peaks.errors import StartFailedError
from pytest_peaks.session import processes, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.spec import McpOptions
from pytest_peaks.session.startup import LostBindError, log_tail

# Listening after 0.5 s on an idle machine.
LISTEN_TIMEOUT = 60.0
LISTEN_POLL = 0.004

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

    The parameters are those of :func:`spawn`.

    :raises LostBindError: `port` was taken meanwhile.
    :raises StartFailedError: it exited, or was not ready in time; with the end of its log.
    """
    spawned = spawn(options, target, port=port, env=env, log=log, output_dir=output_dir, notes=notes)
    return wait_until_ready(spawned, log)


def wait_until_ready(spawned: spawning.Spawned, log: Path) -> McpServer:
    """Wait until a tool call of a server that was spawned has worked; one that fails is ended.

    :raises LostBindError: its port was taken meanwhile.
    :raises StartFailedError: it exited, or was not ready in time; with the end of its log.
    """
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
        time.sleep(LISTEN_POLL)


__all__: Sequence[str] = (
    "COMMAND_HINT",
    "McpClient",
    "McpOptions",
    "McpServer",
    "Tool",
    "ToolResult",
    "client_config",
    "driver_command",
    "on_endpoint",
    "server_command",
    "server_environment",
    "start",
    "wait_until_ready",
    "with_own_browser",
)
