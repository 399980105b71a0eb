"""An MCP server over stdio with a browser of its own: what ``peaks mcp`` runs.

This process is the owner of the session and stands between the client and the server, so that both
end with it: when the client closes our stdin, the server's is closed; when we are killed, its stdin
ends and Chromium's pipe as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import replay, seed
from pytest_peaks.auth.store import Store
from pytest_peaks.doors import mcp
from pytest_peaks.doors.playwright import PlaywrightDoor, bounded
from pytest_peaks.errors import (
    BrowserLostError,
    InvalidOptionError,
    InvalidStateError,
    NoSessionError,
    ReplayFailedError,
    StartFailedError,
)
from pytest_peaks.hosting import sessions
from pytest_peaks.hosting.terminals import Terminal
from pytest_peaks.session import guardian, processes
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.live import LiveSession, child_environment
from pytest_peaks.session.manager import SessionManager
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.spec import BrowserSpec, McpOptions, Run
from pytest_peaks.session.watchdog import Watchdog

# The server ends in a tenth of a second when its stdin does.
END_WAIT = 3.0
CHUNK = 64 * 1024
# A login of cookies takes 0.01 s, every origin with storage 0.1 s more.
LOGIN_TIMEOUT = 30.0


def serve_own(dirs: ProjectDirs, spec: BrowserSpec, options: McpOptions, auth: str | None = None) -> int:
    """Serve a client on an isolated browser, until its stdin ends. The server's exit code.

    :param auth: name of a saved login that the browser has before the client's first call.
    :raises StateNotFoundError: there is none of that name.
    :raises InvalidStateError: it can't be used.
    :raises BrowserLostError: the browser died while it was used.
    :raises PeaksError: the browser or the server did not start.
    """
    # With a guardian, as a pytest run has: it clears away what is left if we are killed.
    state = Store(dirs).load(auth) if auth is not None else None
    run = Run(uuid.uuid4().hex[:12], 0, "mcp", ProcessIdentity.of_self())
    manager = SessionManager(dirs, run, PortRange(0, 0, strict=False))
    end_on_signals()
    try:
        session = manager.acquire(spec)
        assert session.endpoint is not None, "a browser that peaks spawns is reached over CDP"
        if state is not None:
            _log_in(session, state, manager.temp_dir)
        temp = Path(session.record.temp_dir)
        env = child_environment(session.session_id, temp)
        code = _relay(
            options,
            mcp.on_endpoint(session.endpoint),
            env,
            temp / "output",
            watched=session.record.processes["browser"],
        )
        if not session.is_alive():
            raise BrowserLostError("the browser died, so its server ended", hint="start `peaks mcp` anew")
        return code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if manager.close():
            guardian.call_off(run.uid)


def _log_in(session: LiveSession, state: State, temp_dir: Path) -> None:
    """Put a saved login into the default context of a browser that is still blank."""
    from playwright.sync_api import Error

    door = PlaywrightDoor(lambda: temp_dir, lambda: None)
    try:
        browser: Any = door.attach(session)
        context = browser.contexts[0]
        with bounded(LOGIN_TIMEOUT, session.kill, door.kill_driver):
            replay(context, state)
            seed(context.pages[0] if context.pages else context.new_page(), state)
        browser.close()
    except (Error, ReplayFailedError) as error:
        # Playwright's message may quote the state.
        said = f": {error.message}" if isinstance(error, ReplayFailedError) else ""
        raise InvalidStateError(
            f"the browser refuses the saved login{said}", hint="save it anew: `peaks auth save NAME`"
        ) from None
    finally:
        door.stop()


def serve_hosted(dirs: ProjectDirs, terminal: Terminal, options: McpOptions) -> int:
    """Serve a client on a hosted session, which stays when the client goes. The server's exit code.

    :raises NoSessionError: that terminal has no live session.
    :raises InvalidOptionError: its browser can't be joined.
    :raises BrowserLostError: it ended while it was used.
    """
    hosted = sessions.choose(sessions.look(dirs)[0], terminal, None)
    if not hosted.alive:
        raise NoSessionError(
            f"the session of {terminal.id} is not alive", hint="`peaks playwright start` starts one"
        )
    endpoint = hosted.record.endpoints.get("cdp")
    if endpoint is None:
        raise InvalidOptionError(
            f"{hosted.record.browser} has no CDP, so the session of {terminal.id} can't be joined over stdio",
            hint=f"connect to its MCP server: {hosted.mcp_url}",
        )
    temp = Path(hosted.record.temp_dir)
    # With the session's mark and in its temp dir: this server ends, and what it left goes, with the session.
    env = child_environment(hosted.record.mark, temp)
    end_on_signals()
    try:
        code = _relay(options, mcp.on_endpoint(endpoint), env, temp / "output")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    if code and processes.wait_until(lambda: not hosted.record.owner.is_alive(), END_WAIT):
        raise BrowserLostError(
            f"the session of {terminal.id} has ended", hint="`peaks playwright start` starts one"
        )
    return code


def serve_endpoint(dirs: ProjectDirs, endpoint: str) -> int:
    """Serve a client on a browser that somebody else runs, which stays. The server's exit code.

    :param endpoint: its CDP WebSocket URL.
    :raises StartFailedError: the server can't be run.
    """
    manager = SessionManager(dirs, None, PortRange(0, 0, strict=False))
    end_on_signals()
    try:
        temp = manager.temp_dir
        env = child_environment(f"endpoint-{manager.owner.pid}", temp)
        return _relay(McpOptions(), mcp.on_endpoint(endpoint), env, temp / "output")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        manager.close()


def end_on_signals() -> None:
    """SIGTERM and SIGHUP end us like Ctrl-C: with everything cleared away."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), interrupt)


def _relay(
    options: McpOptions,
    target: Sequence[str],
    env: Mapping[str, str],
    output_dir: Path,
    *,
    watched: ProcessIdentity | None = None,
) -> int:
    """Run a server over stdio and pass on what client and server say, until either ends.

    :param watched: a process without which the server is of no use: it ends with it.
    """
    command = mcp.server_command(options, target, None, output_dir)
    environment = mcp.server_environment(options, env)
    try:
        server = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
    except OSError as error:
        raise StartFailedError(
            f"the MCP server {command[0]} cannot be run: {error.strerror or error}", hint=mcp.COMMAND_HINT
        ) from error
    identity = ProcessIdentity.of(server.pid)
    assert server.stdin is not None, "asked for"
    assert server.stdout is not None, "asked for"
    threading.Thread(target=_copy, args=(sys.stdin.buffer, server.stdin), daemon=True).start()
    answers = threading.Thread(target=_copy, args=(server.stdout, sys.stdout.buffer), daemon=True)
    answers.start()

    def end_server() -> None:
        if identity is not None:
            processes.end_tree(identity, grace=END_WAIT)

    watchdog = Watchdog(watched, end_server) if watched is not None else None
    try:
        code = server.wait()
        return code if code >= 0 else 128 - code
    finally:
        if watchdog is not None:
            watchdog.stop()
        with contextlib.suppress(OSError):
            server.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(END_WAIT)
        if server.poll() is None and identity is not None:
            processes.end_tree(identity, grace=0.0)
            server.wait()
        answers.join(END_WAIT)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    """Copy bytes as they come; close the target when the source ends."""
    with contextlib.suppress(OSError, ValueError):
        while chunk := os.read(source.fileno(), CHUNK):
            target.write(chunk)
            target.flush()
    with contextlib.suppress(OSError, ValueError):
        target.close()
