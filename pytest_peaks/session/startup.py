"""From spawned to ready: reads what Chromium says, and what it meant if it exits instead."""

from __future__ import annotations

import re
import time
from pathlib import Path

from pytest_peaks.errors import (
    InvalidUserDataDirError,
    MissingLibrariesError,
    NoDisplayError,
    PeaksError,
    StartFailedError,
)
from pytest_peaks.session import processes
from pytest_peaks.session.identity import ProcessIdentity

# Chromium is ready after 0.1 s on an idle machine. A minute is for one that starts eight at once.
READY_TIMEOUT = 60.0
POLL = 0.005

_LISTENING = re.compile(r"^DevTools listening on (ws://(\S+):([0-9]+)/\S+)", re.MULTILINE)

# Lines that Chromium writes on machines where all is well.
_CHATTER = re.compile(
    r"dbus|vaapi|bluez|InitializeSandbox\(\) called with multiple threads|unexpected operator|logging destination"
)


class LostBindError(Exception):
    """Somebody else took the port between the probe and Chromium's bind."""


class SandboxError(Exception):
    """Chromium found no usable sandbox."""


def wait_until_ready(
    what: str, identity: ProcessIdentity, log: Path, profile: Path, *, sandboxed: bool
) -> tuple[str, int]:
    """Wait for the line in which Chromium says where it listens; gives its WebSocket URL and port.

    It is the one sign that all builds give: Debian's full Chromium writes no ``DevToolsActivePort``
    when a pipe and a port are asked for together. The line also tells when the port on 127.0.0.1
    was lost: Chromium then goes to ::1 without a word.

    :raises LostBindError: the port was taken by somebody else.
    :raises SandboxError: it exited since it could not use its sandbox.
    :raises PeaksError: it exited for another reason, or was not ready in time.
    """
    deadline = time.monotonic() + READY_TIMEOUT
    while True:
        alive = identity.is_alive()  # asked before the log is read, so that its last words are in it
        text = _read(log)
        match = _LISTENING.search(text)
        if match:
            if match[2] != "127.0.0.1":
                raise LostBindError
            return match[1], int(match[3])
        if not alive:
            raise _failure(what, identity, text, profile, sandboxed=sandboxed)
        if "Cannot start http server for devtools" in text:
            raise LostBindError
        if time.monotonic() > deadline:
            raise StartFailedError(
                f"{what} was not ready after {READY_TIMEOUT:.0f} s{log_tail(text)}",
                hint="`peaks doctor` says what is wrong with this machine",
            )
        time.sleep(POLL)


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def log_tail(log: str, lines: int = 12) -> str:
    """The end of a log as part of a sentence, without what is written on healthy machines; may be empty."""
    kept = [line for line in log.splitlines() if line.strip() and not _CHATTER.search(line)][-lines:]
    return "; the end of its log:\n  " + "\n  ".join(kept) if kept else ""


def _failure(
    what: str, identity: ProcessIdentity, log: str, profile: Path, *, sandboxed: bool
) -> PeaksError | SandboxError:
    """Turn what a browser said before it exited into the failure that it means."""
    library = re.search(r"error while loading shared libraries: (\S+?):", log)
    if library:
        return MissingLibrariesError(
            f"{what} needs the shared library {library[1]}, which is not installed",
            hint="run `playwright install-deps chromium` as root, or install the system's own chromium package",
        )
    if sandboxed and re.search(r"No usable sandbox|[Ss]andbox.*(failed|not permitted)|clone.*EPERM", log):
        return SandboxError()
    if "ProcessSingleton" in log or "SingletonLock" in log:
        return InvalidUserDataDirError(
            f"{what} could not lock its profile {profile}{log_tail(log)}",
            hint="name a folder on a local disk that you may write to",
        )
    if "Missing X server" in log or "cannot open display" in log:
        return NoDisplayError(
            f"{what} found no display{log_tail(log)}",
            hint="leave out --peaks-headed, or run under a virtual display: xvfb-run -a pytest …",
        )
    status = processes.reap_child(identity.pid)
    exited = "" if status is None else f" with status {status}"
    return StartFailedError(
        f"{what} exited{exited} before it was ready{log_tail(log)}",
        hint="`peaks doctor` says what is wrong with this machine",
    )
