"""The process of an MCP server: its command line, its environment, and its spawn.

Apart from :mod:`pytest_peaks.doors.mcp`, so that a server can be spawned before the client's imports.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_peaks.doors.bundled import AWAITED, DOOR_NOTES, driver_command, mcp_preloads, waiting_preload
from pytest_peaks.errors import StartFailedError
from pytest_peaks.session import spawning
from pytest_peaks.session.live import node_environment
from pytest_peaks.session.registry import write_atomically
from pytest_peaks.session.spec import McpOptions

COMMAND_HINT = "correct --peaks-mcp-command, or leave it out for the bundled server"


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


def spawn(
    options: McpOptions,
    target: Sequence[str] | Path,
    *,
    port: int,
    env: Mapping[str, str],
    log: Path,
    output_dir: Path,
    notes: Path | None = None,
) -> spawning.Spawned:
    """Start the process of a server over HTTP.

    :param target: :func:`on_endpoint` or :func:`with_own_browser`; or a path, at which :func:`tell` puts
        one later: the bundled server loads its code meanwhile. Not for another command.
    :param port: 0 lets the system choose.
    :param notes: the folder in which the server notes when it is used, and by whom; see ``hosting/use.py``.
    :raises StartFailedError: the command can't be run.
    """
    known = [] if isinstance(target, Path) else target
    command = server_command(options, known, port, output_dir)
    environment = server_environment(options, env, notes)
    if isinstance(target, Path):
        assert not options.command, "another command is told at once"
        command[1:1] = ["--import", waiting_preload()]
        environment[AWAITED] = str(target)
    try:
        return spawning.spawn_held(command, environment, log)
    except OSError as error:
        raise StartFailedError(
            f"the MCP server {command[0]} cannot be run: {error.strerror or error}",
            hint=COMMAND_HINT,
        ) from error


def tell(file: Path, target: Sequence[str]) -> None:
    """Tell a server that waits at `file` which browser it works on."""
    write_atomically(file, json.dumps(list(target)))
