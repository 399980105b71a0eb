"""Reading a saved login: Playwright's storageState, checked before it is used.

We parse the file ourselves: Playwright takes ``null`` for a login, and the traceback of a malformed
file would show its whole content. No message here quotes any of it.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from pytest_peaks.errors import InvalidStateError, StateNotFoundError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs

# A login is some kilobytes; 50 MB of IndexedDB already take Playwright 40 s to replay.
LARGEST_STATE = 64 * 1024 * 1024


def state_path(dirs: ProjectDirs, name: str) -> Path:
    """Where the saved login `name` of a project is.

    :raises InvalidNameError: the name can't become a path.
    """
    return dirs.base / "auth" / f"{check_name(name, 'auth name')}.json"


def read_state(dirs: ProjectDirs, name: str) -> dict[str, Any]:
    """A saved login as ``{"cookies": [...], "origins": [...]}``.

    :raises InvalidNameError: the name can't become a path.
    :raises StateNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or not a file of this user's own.
    """
    path = state_path(dirs, name)
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise StateNotFoundError(
            f"there is no saved login {name!r}; looked for {path}",
            hint="save one as Playwright's storage state: context.storage_state() of a page that is logged in",
        ) from None
    except OSError as error:
        raise InvalidStateError(
            f"{path} cannot be read: {error.strerror or error}",
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
    cookies, origins = (
        (state.get("cookies"), state.get("origins")) if isinstance(state, dict) else (None, None)
    )
    if not isinstance(cookies, list) or not isinstance(origins, list):
        raise InvalidStateError(
            f"{path} is not a storage state: an object with lists 'cookies' and 'origins'",
            hint="save the login anew with context.storage_state()",
        )
    return {"cookies": cookies, "origins": origins}
