"""User-data dirs: which may be used, who holds one, and how one is removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import time
from pathlib import Path

from pytest_peaks.errors import InvalidUserDataDirError, ProfileInUseError
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.reservations import Reservations, allocating

# In a profile that peaks made and the user wants kept.
KEEP = ".peaks-keep"

# A dying Chromium may add a file while its profile is being removed; it is gone soon after.
REMOVE_ATTEMPTS = 20
REMOVE_PAUSE = 0.05


def check_user_data_dir(text: str | os.PathLike[str], root: Path) -> Path:
    """The absolute path of a user-data dir that a user asked for; relative ones start at `root`.

    :raises InvalidUserDataDirError: it is a file, can't be made or written to, or is a directory
        that must not become a browser's profile: the project, one above it, or the home folder.
    """
    try:
        path = Path(os.path.realpath(root / Path(text).expanduser()))
    except (RuntimeError, ValueError) as error:  # an unknown user after the ~, a NUL byte
        raise InvalidUserDataDirError(
            f"{os.fspath(text)!r} is not a path: {error}",
            hint="name a folder of its own, such as profiles/alice",
        ) from error
    if path == root or path in root.parents or path == Path.home().resolve():
        raise InvalidUserDataDirError(
            f"{path} must not be a browser's profile", hint="name a folder of its own, such as profiles/alice"
        )
    try:
        if path.exists() and not path.is_dir():
            # Chromium would start all the same, on a temporary profile, and keep nothing.
            raise InvalidUserDataDirError(
                f"{path} is not a directory", hint="name a directory, or a new path"
            )
        path.mkdir(parents=True, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError as error:
        raise InvalidUserDataDirError(
            f"{path} cannot be made: {error.strerror or error}", hint="name a folder that you may write to"
        ) from error
    if not writable:
        raise InvalidUserDataDirError(
            f"{path} cannot be written to", hint="name a folder that you may write to"
        )
    return path


def _key(path: Path) -> str:
    return hashlib.sha256(os.fsencode(os.path.realpath(path))).hexdigest()[:32]


def hold(path: Path, owner: ProcessIdentity, session: str) -> None:
    """Take the profile at `path` for `session`, if no live session and no other browser has it.

    peaks keeps its own note because the headless shell takes no lock at all on its profile.

    :raises ProfileInUseError: it is held; says by whom.
    """
    hint = "close that browser, give this test a user_data_dir of its own, or run both in one worker"
    with allocating() as runtime:
        held = Reservations(runtime, "profiles")
        holder = held.holder(_key(path))
        if holder is not None and holder[1] != session:
            raise ProfileInUseError(
                f"{path} is in use by session {holder[1]} (process {holder[0].pid} on {holder[0].host})",
                hint=hint,
            )
        locked_by = _singleton_holder(path)
        if locked_by is not None:
            raise ProfileInUseError(f"{path} is in use by a browser ({locked_by})", hint=hint)
        held.take(_key(path), owner, session)


def release(path: Path, session: str, runtime: Path | None = None) -> None:
    """Give a profile back; nothing happens if another session holds it."""
    with allocating(runtime) as folder:
        Reservations(folder, "profiles").drop(_key(path), session)


def _singleton_holder(path: Path) -> str | None:
    """Who holds Chromium's own lock (a symlink ``SingletonLock -> host-pid``), None if nobody does."""
    try:
        host, _, number = str((path / "SingletonLock").readlink()).rpartition("-")
    except OSError:
        return None
    if host != platform.node():
        # It may be alive there, and Chromium refuses such a profile as well.
        return f"process {number} on host {host}"
    import psutil

    try:
        command = psutil.Process(int(number)).cmdline()
    except (psutil.Error, ValueError):
        return None  # dead: Chromium replaces the lock by itself
    # The pid may long be another program's.
    names_it = any(
        part.startswith("--user-data-dir=")
        and os.path.realpath(part.partition("=")[2]) == os.path.realpath(path)
        for part in command
    )
    return f"process {number}" if names_it else None


def remove_tree(path: Path, inside: Path) -> bool:
    """Remove a directory that peaks made, strictly inside `inside`. True if it is gone.

    Symlinks are not followed: neither `path` itself nor anything in it.
    """
    if not path.is_absolute() or ".." in path.parts or inside not in path.parents or path.is_symlink():
        return False
    # A symlink on the way may lead out of `inside`, and back to it.
    if Path(os.path.realpath(inside)) not in Path(os.path.realpath(path)).parents:
        return False
    for _ in range(REMOVE_ATTEMPTS):
        with contextlib.suppress(FileNotFoundError):
            if sys.version_info >= (3, 12):
                shutil.rmtree(path, onexc=lambda *_: None)
            else:
                shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return True
        time.sleep(REMOVE_PAUSE)
    return False
