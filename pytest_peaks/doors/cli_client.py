"""A client of playwright-cli's daemon: what its own client does, without starting node for it.

playwright-cli is two programs: a daemon that drives a browser, and a client that reads a command
line, sends it as one line of JSON over a socket and prints the answer. Nearly all that a command
takes is the start of the client's node (0.25 s); the daemon answers in some 10 ms. So the client is
here, in Python; `tests/test_cli_contract.py` holds what it gives against the original.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.doors.cli_line import GLOBAL_OPTIONS, Args
from pytest_peaks.errors import CliFailedError, CliNotOpenError, CliUsageError, PeaksError, StaleRefError

# An action may take 5 s and a navigation 60 s in the daemon; a dialog that nobody answers longer.
ANSWER_TIMEOUT = 120.0
CONNECT_TIMEOUT = 5.0
STOP_TIMEOUT = 15.0
# Between two looks at whether an answer has come, while something else is to go on meanwhile.
BEAT = 0.005
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What the daemon said.

    :ivar text: what playwright-cli would print.
    :ivar is_error: it would exit with status 1.
    :ivar refused: the arguments were refused before anything was tried.
    """

    text: str
    is_error: bool = False
    refused: bool = False


def ask(
    path: str,
    args: Args,
    *,
    cwd: str,
    raw: bool = False,
    as_json: bool = False,
    meanwhile: Callable[[], None] | None = None,
    timeout: float = ANSWER_TIMEOUT,
) -> Answer:
    """Have the daemon at socket `path` run a command.

    :param args: as :func:`parse` gives them.
    :param cwd: where relative file names start.
    :param meanwhile: called again and again while the answer is waited for.
    :raises CliNotOpenError: nobody listens there, or the daemon ended meanwhile.
    :raises CliFailedError: it did not answer in time.
    """
    command = {key: value for key, value in args.items() if key not in GLOBAL_OPTIONS}
    params = {"args": command, "cwd": cwd, "raw": raw, "json": as_json}
    message = _exchange(path, "run", params, timeout, meanwhile)
    if "error" in message:
        return Answer(str(message["error"]), is_error=True, refused=True)
    result = message.get("result") or {}
    return Answer(str(result.get("text") or ""), bool(result.get("isError")))


def stop(path: str) -> bool:
    """Have the daemon at socket `path` close its browser and end. False if nobody listens there."""
    try:
        _exchange(path, "stop", {}, STOP_TIMEOUT, None)
    except CliNotOpenError:
        return False
    except CliFailedError:
        pass  # it does not answer: who asked has other means
    return True


def is_open(path: str) -> bool:
    """Whether a daemon listens at socket `path`."""
    try:
        with contextlib.closing(_connect(path)):
            return True
    except (BlockingIOError, TimeoutError):
        return True  # it listens, and is behind with its work
    except OSError:
        return False


def _connect(path: str) -> Any:
    if os.name == "nt":
        # A named pipe is a file to Python; it blocks, and a dead daemon's is not there any more.
        return open(path, "r+b", buffering=0)  # noqa: PTH123 - no path, and closed by the caller
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(CONNECT_TIMEOUT)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _exchange(
    path: str, method: str, params: Mapping[str, Any], timeout: float, meanwhile: Callable[[], None] | None
) -> dict[str, Any]:
    line = json.dumps({"id": 1, "method": method, "params": params}) + "\n"
    try:
        with contextlib.closing(_connect(path)) as connection:
            if os.name == "nt":
                connection.write(line.encode())
                received = connection.readline()
            else:
                connection.settimeout(timeout)
                connection.sendall(line.encode("utf-8", errors="replace"))
                received = _line(connection, timeout, meanwhile)
    except TimeoutError:
        raise CliFailedError(
            f"the CLI's daemon gave no answer within {timeout:.0f} s",
            hint="a dialog may be open: dialog-accept or dialog-dismiss",
        ) from None
    except OSError:
        received = b""
    if not received:
        raise CliNotOpenError("the browser is not open: its daemon has ended")
    message: dict[str, Any] = json.loads(received)
    return message


def _line(connection: socket.socket, timeout: float, meanwhile: Callable[[], None] | None) -> bytes:
    chunks: list[bytes] = []
    deadline = time.monotonic() + timeout
    if meanwhile is not None:
        connection.settimeout(BEAT)
    while True:
        try:
            chunk = connection.recv(_CHUNK)
        except TimeoutError:
            if meanwhile is None or time.monotonic() > deadline:
                raise
            meanwhile()
            continue
        chunks.append(chunk)
        if not chunk:
            return b""
        if chunk.endswith(b"\n"):
            return b"".join(chunks)


def failure(answer: Answer, command: str) -> PeaksError:
    """The error that a failed answer means, with the CLI's own text."""
    text = answer.text
    if text.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, AttributeError):
            text = str(json.loads(text).get("error") or text)
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours
    text = re.sub(r"\A(### Error\s*)?(Error: |error: )*", "", text.strip())
    if re.search(r"\bRef \S+ not found", text):
        return StaleRefError(text, hint="refs hold until the page changes: take a new snapshot")
    if "does not handle the modal state" in text:
        return CliFailedError(
            f"{command}: {text}", hint="deal with the dialog first: dialog-accept, dialog-dismiss"
        )
    if answer.refused:
        return CliUsageError(f"{command}: {text}", hint=f"`peaks cli --help {command}` says what it takes")
    return CliFailedError(f"{command}: {text}")


def socket_of(folder: Path, name: str) -> str | None:
    """The socket of session `name` once its daemon listens, from the session file that it wrote in `folder`."""
    for file in folder.glob(f"*/{name}.session"):
        with contextlib.suppress(OSError, ValueError):
            path = json.loads(file.read_text(encoding="utf-8")).get("socketPath")
            if isinstance(path, str):
                return path
    return None
