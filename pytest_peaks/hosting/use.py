"""When a hosted session was last used, through whichever of its doors, and ending what its clients left behind.

The notes are in the folder ``door`` of the session's temp dir. Its MCP server writes them
(``doors/door_notes.mjs``), and its supervisor does for what comes to the browser directly
(:class:`pytest_peaks.hosting.idle.DirectUse`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from pathlib import Path

from pytest_peaks.session.paths import temp_dir_owner
from pytest_peaks.session.record import Record

# Closing takes some ten milliseconds. All clients are asked at once.
CLOSE_TIMEOUT = 4.0
# Nanoseconds of some three hundred years have as many digits.
LONGEST_NOTE = 20

_CLIENT = re.compile(r"[A-Za-z0-9-]{8,64}")


def prepare(record: Record) -> Path:
    """Make the folder of a session's notes; private.

    :raises OSError: it can't be made.
    """
    folder = _folder(record)
    for path in (folder, folder / "clients"):
        path.mkdir(mode=0o700, exist_ok=True)
    return folder


def note(record: Record) -> None:
    """Note that a session is being used. Never raises: a session that is ending has no folder any more."""
    folder = _folder(record)
    part = folder / f"used.{os.getpid()}"
    with contextlib.suppress(OSError):
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(str(time.monotonic_ns()))
        part.replace(folder / "used")


def forget(record: Record) -> None:
    """Take back what was noted of a session's use so far. Never raises."""
    with contextlib.suppress(OSError):
        (_folder(record) / "used").unlink(missing_ok=True)


def last_use(record: Record) -> float | None:
    """When a session was last used through any of its doors, in seconds of ``time.monotonic()``.

    None if nothing was noted yet, or what was noted can't be read or lies in the future. Never raises.
    """
    path = _folder(record) / "used"
    try:
        # Whatever it is: neither followed nor waited for.
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(path, os.O_RDONLY | flags), "rb") as file:
            noted = file.read(LONGEST_NOTE)
    except (OSError, ValueError):
        return None
    if not noted.isdigit():
        return None
    at = int(noted)
    return at / 1e9 if at <= time.monotonic_ns() else None


def end_clients(record: Record) -> int:
    """Close the browser connections of a session's MCP clients, with all that they left in them.

    Routes and init scripts of a client last as long as its connection and reach everybody's pages.
    The clients themselves may work on: the next call of one makes a new connection. Takes a few
    seconds at most and never raises.

    :returns: how many were closed.
    """
    url = record.endpoints.get("mcp")
    # A browser without CDP is shared by all clients' connection.
    if url is None or "cdp" not in record.endpoints:
        return 0
    # A record is never trusted as a path in which something is to be removed.
    if temp_dir_owner(Path(record.temp_dir).parent) != record.owner:
        return 0
    clients = _folder(record) / "clients"
    try:
        names = [path.name for path in clients.iterdir() if _CLIENT.fullmatch(path.name)]
    except OSError:
        return 0
    ended: list[str] = []

    def end(name: str) -> None:
        if _end(url, clients / name):
            ended.append(name)

    asking = [threading.Thread(target=end, args=(name,), daemon=True) for name in names]
    for thread in asking:
        thread.start()
    deadline = time.monotonic() + CLOSE_TIMEOUT
    for thread in asking:
        thread.join(max(0.0, deadline - time.monotonic()))
    return len(ended)


def _end(url: str, noted: Path) -> bool:
    """Close the connection of one client; False if it is gone, or the server silent."""
    import http.client
    import uuid
    from urllib.parse import urlsplit

    body = {
        "jsonrpc": "2.0",
        "id": f"peaks-{uuid.uuid4().hex}",  # never one of the client's own, which may be under way
        "method": "tools/call",
        "params": {"name": "browser_close", "arguments": {}},
    }
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-session-id": noted.name,
        "x-peaks": "1",  # which is no use
    }
    # Before it is closed: the next call of the client notes it again, so none that opens a connection is missed.
    # One that is dead isn't asked a second time: the server would first ask it for its roots, for a minute.
    with contextlib.suppress(OSError):
        noted.unlink(missing_ok=True)
    try:
        place = urlsplit(url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CLOSE_TIMEOUT)
    except (ValueError, http.client.HTTPException):
        return False
    with contextlib.closing(connection):
        try:
            connection.request("POST", place.path, json.dumps(body), headers)
        except (OSError, http.client.HTTPException):
            with contextlib.suppress(OSError):
                noted.touch(mode=0o600)
            return False
        try:
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return False
        return answer.status < http.client.BAD_REQUEST


def _folder(record: Record) -> Path:
    return Path(record.temp_dir) / "door"
