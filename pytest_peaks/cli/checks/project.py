"""Checks of peaks' own things: settings, folders, ports, records, leftovers. They change nothing."""

from __future__ import annotations

import difflib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pytest_peaks import config
from pytest_peaks.cli.checks import Check, Subject
from pytest_peaks.cli.plain import counted
from pytest_peaks.options import OPTIONS
from pytest_peaks.session import paths, ports
from pytest_peaks.session.registry import Registry
from pytest_peaks.session.reservations import Reservations, allocating

if TYPE_CHECKING:
    import pytest

REAP = "`peaks reap` removes it, and so does the next run here"
# Variables that are no options of a run.
_OTHER_VARIABLES = (
    "PEAKS_RUNTIME_DIR",
    "PEAKS_DEBUG",
    "PEAKS_CLI_MAX_SESSIONS",
    "PEAKS_STATE_KEY",
    "PEAKS_STATE_KEY_FD",
    "PEAKS_STATE_KEY_KEYRING",
)
# Git answers at once; this is for a repository on a network that hangs.
GIT_TIMEOUT = 10.0


class _EnvironmentOnly:
    """Stands in for pytest's configuration where no pytest runs: nothing was given but the environment."""

    def __init__(self, rootpath: Path) -> None:
        self.rootpath = rootpath

    def getoption(self, _name: str, default: Any = None) -> Any:
        return default

    def getini(self, _name: str) -> str:
        return ""


def from_environment(root: Path) -> config.PeaksConfig:
    """What the environment alone asks a run in `root` for.

    :raises PeaksError: a variable has an unusable value; names it.
    """
    return config.read(cast("pytest.Config", _EnvironmentOnly(root)))


def settings(subject: Subject) -> Iterator[Check]:
    """The ``PEAKS_*`` variables: their values, and names that look like a slip of the pen."""
    known = [option.env for option in OPTIONS] + list(_OTHER_VARIABLES)
    slips = False
    for name in sorted(os.environ):
        if name.startswith("PEAKS") and name not in known:
            meant = difflib.get_close_matches(name, known, 1, cutoff=0.8)
            if meant:
                slips = True
                yield Check(
                    "settings", "warning", f"{name} means nothing to pytest-peaks", f"{meant[0]} does"
                )
    from_environment(subject.dirs.root)
    given = [name for name in known if os.environ.get(name)]
    if not slips:
        yield Check("settings", "ok", f"from the environment: {', '.join(given) or 'nothing'}")


def runtime_dir(_: Subject) -> Iterator[Check]:
    """The user's folder for reservations and locks, and that it can be locked."""
    folder = paths.runtime_dir()
    with allocating(folder):
        pass
    mode = stat.S_IMODE(folder.stat().st_mode)
    yield Check("runtime-dir", "ok", f"{folder} (mode {mode:04o})")


def project_dirs(subject: Subject) -> Iterator[Check]:
    """Where the project's ``.peaks`` is, and whether it can be written to."""
    base = subject.dirs.base
    beside = base == subject.dirs.root / ".peaks"
    detail = str(base) if beside else f"{base}, since {subject.dirs.root} cannot be written to"
    failure = _write_failure(base)
    if failure:
        yield Check(
            "project-dirs",
            "problem",
            f"{base} cannot be written to: {failure}",
            "make the project or the user's state dir (XDG_STATE_HOME) writable",
        )
    else:
        yield Check("project-dirs", "ok", detail if base.exists() else f"{detail} (made by the first run)")


def _write_failure(folder: Path) -> str:
    """Why no file can be made in `folder`, or in the folder that it would be made in; empty if one can."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def free_ports(subject: Subject) -> Iterator[Check]:
    """How many ports of the range are neither reserved nor listened on."""
    span = subject.ports
    if span.first == 0:
        yield Check("ports", "ok", "the system chooses each")
        return
    with allocating() as runtime:
        held = Reservations(runtime, "ports")
        reserved = {port for port in range(span.first, span.last + 1) if held.holder(str(port)) is not None}
    everything = range(span.first, span.last + 1)
    free = sum(port not in reserved and not ports.is_busy(port) for port in everything)
    detail = f"{free} of {len(everything)} free in {span}, {len(reserved)} reserved by live sessions"
    if free:
        yield Check("ports", "ok", detail)
    elif span.strict:
        yield Check("ports", "problem", detail, "give --peaks-ports another range, or 0")
    else:
        yield Check("ports", "ok", f"{detail}; the system chooses one")


def records(subject: Subject) -> Iterator[Check]:
    """The sessions on record, and files among the records that are none."""
    found, problems = Registry(subject.dirs.records).list()
    by_state: dict[str, list[str]] = {"alive": [], "dead": [], "foreign": []}
    for record in found:
        by_state[record.owner.state()].append(record.session_id)
    yield Check("records", "ok", counted(len(by_state["alive"]), "live session"))
    if by_state["dead"]:
        yield Check("records", "warning", f"left by dead owners: {', '.join(by_state['dead'])}", REAP)
    if by_state["foreign"]:
        yield Check(
            "records",
            "warning",
            f"of owners on other hosts or in other containers: {', '.join(by_state['foreign'])}",
            "`peaks reap --foreign` removes them if those owners are gone",
        )
    for problem in problems:
        mend = "look at it; it is left in place" if problem.left_in_place else "`peaks reap` sets it aside"
        yield Check("records", "warning", f"{problem.path} cannot be used: {problem.reason}", mend)


def saved_logins(subject: Subject) -> Iterator[Check]:
    """The saved logins: whether each can be read, and that none is in the repository."""
    from pytest_peaks.auth.store import Store

    store = Store(subject.dirs)
    entries = store.entries()
    tracked = _tracked_by_git(subject.dirs.root, store.folder)
    if tracked:
        yield Check(
            "saved-logins",
            "problem",
            f"git tracks {', '.join(tracked)}: whoever has the repository has these logins",
            f"git rm --cached {' '.join(tracked)}, and end those sessions: they stay in the history",
        )
    for entry in entries:
        if entry.problem:
            name = f"{entry.name}@{entry.account}" if entry.account else entry.name
            yield Check(
                "saved-logins", "warning", f"{name}: {entry.problem}", f"`peaks auth save {entry.name}`"
            )
        elif os.name == "posix" and stat.S_IMODE(entry.path.lstat().st_mode) & 0o077:
            yield Check(
                "saved-logins", "warning", f"{entry.path} can be read by others", f"chmod 600 {entry.path}"
            )
    if not tracked and not any(entry.problem for entry in entries):
        yield Check("saved-logins", "ok", counted(len(entries), "saved login"))


def _tracked_by_git(root: Path, folder: Path) -> list[str]:
    """Files in `folder` that git tracks; empty as well where there is no git, or no repository."""
    if root not in folder.parents:
        return []
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", str(folder)],
            cwd=root,
            capture_output=True,
            check=False,
            timeout=GIT_TIMEOUT,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return (
        [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name] if listed.returncode == 0 else []
    )


def leftovers(_: Subject) -> Iterator[Check]:
    """Temp dirs of dead owners, of all projects."""
    left = paths.orphaned_temp_dirs()
    if left:
        yield Check("leftovers", "warning", f"temp dirs of dead runs: {', '.join(map(str, left))}", REAP)
    else:
        yield Check("leftovers", "ok", "no temp dirs of dead runs")
