"""Reading and writing a saved login: Playwright's storageState, checked before it is used.

We parse the file ourselves: Playwright takes ``null`` for a login, and the traceback of a malformed
file would show its whole content. No message here quotes any of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_peaks.errors import (
    CliNotOpenError,
    InvalidStateError,
    NotWritableError,
    PeaksError,
    StateNotFoundError,
)
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.registry import write_atomically

# A login is some kilobytes; 50 MB of IndexedDB already take Playwright 40 s to replay.
LARGEST_STATE = 64 * 1024 * 1024


def state_path(dirs: ProjectDirs, name: str) -> Path:
    """Where the saved login `name` of a project is.

    :raises InvalidNameError: the name can't become a path.
    """
    return dirs.base / "auth" / f"{check_name(name, 'auth name')}.json"


def place(dirs: ProjectDirs, name: str | os.PathLike[str]) -> Path:
    """The file that a user means: a name is a saved login of the project, anything with a separator or a dot
    in it is a path, which starts at the working directory.

    :raises InvalidNameError: it is neither.
    """
    text = os.fspath(name)
    if isinstance(name, str) and not any(mark in text for mark in {"/", ".", os.sep}):
        return state_path(dirs, text)
    try:
        return Path.cwd() / Path(text).expanduser()
    except (RuntimeError, ValueError):
        raise InvalidStateError(f"{text!r} is no path of a saved login", hint="write the path out") from None


def read_state(dirs: ProjectDirs, name: str) -> dict[str, Any]:
    """A saved login as ``{"cookies": [...], "origins": [...]}``.

    :raises InvalidNameError: the name can't become a path.
    :raises StateNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or not a file of this user's own.
    """
    path = state_path(dirs, name)
    try:
        state = read_state_file(path)
    except FileNotFoundError:
        raise _not_found(path, name) from None
    return {key: state[key] for key in ("cookies", "origins")}


def read_state_file(path: Path) -> dict[str, Any]:
    """The storageState in a file, all of it.

    :raises FileNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or not a file of this user's own.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InvalidStateError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="a regular file, not a link, of your own",
        ) from None
    with os.fdopen(descriptor, encoding="utf-8-sig") as file:
        info = os.fstat(file.fileno())
        foreign = hasattr(os, "getuid") and info.st_uid != os.getuid()
        if not stat.S_ISREG(info.st_mode) or foreign or info.st_size > LARGEST_STATE:
            raise InvalidStateError(
                f"{path} is not a regular file of yours of at most {LARGEST_STATE // 2**20} MB",
                hint="save the login anew",
            )
        try:
            state = json.load(file)
        except (ValueError, RecursionError):
            state = None
    if (
        not isinstance(state, dict)
        or not isinstance(state.get("cookies"), list)
        or not isinstance(state.get("origins"), list)
    ):
        raise InvalidStateError(
            f"{path} is not a storage state: an object with lists 'cookies' and 'origins'",
            hint="save the login anew with context.storage_state()",
        )
    return state


def write_state_file(path: Path, state: Mapping[str, Any]) -> None:
    """Write a storageState, whole or not at all, with mode 0600; folders on the way are made.

    :raises InvalidStateError: a link or something else that is no file has that name.
    :raises NotWritableError: it can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise InvalidStateError(
                f"{path} is there already and is no regular file",
                hint="a saved login is not written through a link; name another file",
            )
        write_atomically(path, json.dumps(state, indent=2) + "\n")
    except (OSError, ValueError) as error:
        raise NotWritableError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}",
            hint="name a file in a folder that you may write to",
        ) from None


@contextlib.contextmanager
def handed_over(path: Path, scratch: Path) -> Iterator[Path]:
    """A checked copy of a saved login in the private folder `scratch`, for a program that takes a file.

    :raises StateNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or not a file of this user's own.
    """
    try:
        state = read_state_file(path)
    except FileNotFoundError:
        raise _not_found(path, path.stem) from None
    part = scratch / f"{uuid.uuid4().hex}.json"
    try:
        write_state_file(part, {key: state[key] for key in ("cookies", "origins")})
        yield part
    finally:
        part.unlink(missing_ok=True)


def refused(path: Path, error: PeaksError) -> PeaksError:
    """The failure to tell when a browser did not take a saved login. Quotes nothing of it."""
    if isinstance(error, CliNotOpenError):
        return error
    what = re.search(r"(cookies|origins)\[[0-9]+\][\w.\[\]]*: expected [\w |(),]{1,80}", error.message)
    return InvalidStateError(
        f"the browser does not take {path}" + (f": {what[0]}" if what else ""), hint="save the login anew"
    )


def _not_found(path: Path, name: str) -> StateNotFoundError:
    return StateNotFoundError(
        f"there is no saved login {name!r}; looked for {path}",
        hint="save one as Playwright's storage state: context.storage_state() of a page that is logged in",
    )
