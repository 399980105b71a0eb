"""For whom a command holds a desk: it is gone itself when the desk is used."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pytest_peaks.desks.holding import Owner
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.hosting.terminals import session_leader
from pytest_peaks.session.identity import ProcessIdentity

ENV_OWNER = "PEAKS_OWNER_PID"


def of_caller(given: int | None = None, environ: Mapping[str, str] | None = None) -> Owner:
    """The process that a caller names; else the shell of its terminal; else the desk holds itself.

    A terminal's leader that was started for one command (``sh -c``) is none that lasts.

    :param given: the pid of a process; before the variable ``PEAKS_OWNER_PID``.
    :raises InvalidOptionError: no process has the pid that was named.
    """
    environ = os.environ if environ is None else environ
    text = environ.get(ENV_OWNER, "") if given is None else str(given)
    if text:
        identity = (
            ProcessIdentity.of(int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else None
        )
        if identity is None:
            raise InvalidOptionError(
                f"the owner {text[:40]!r} is no running process",
                hint=f"--owner-pid, or the variable {ENV_OWNER}",
            )
        return Owner("terminal", identity)
    leader = session_leader()
    if leader is not None and _lasts(leader):
        identity = ProcessIdentity.of(leader)
        if identity is not None:
            return Owner("terminal", identity)
    return Owner("desk")


def _lasts(pid: int) -> bool:
    """Whether a terminal's leader is a shell that somebody sits at, rather than one command."""
    import psutil

    try:
        name, *arguments = psutil.Process(pid).cmdline() or [""]
    except psutil.Error:
        return False
    shell = os.path.basename(name).lstrip("-").removesuffix(".exe")  # noqa: PTH119 - a name and not a path
    shells = ("sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "pwsh", "nu")
    # A shell with an argument that is no switch runs a script; `-c` (also within `-lc`) runs a command.
    runs_something = any(
        not word.startswith(("-", "+")) or (not word.startswith("--") and "c" in word) for word in arguments
    )
    return pid != os.getpid() and shell in shells and not runs_something
