"""The saved states of named identities: a folder apart from saved logins, with a file for each."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.auth.crypto import is_encrypted
from pytest_peaks.auth.freshness import that_matter
from pytest_peaks.auth.model import State, cookie_key
from pytest_peaks.auth.store import read_file, write_file
from pytest_peaks.desks.errors import UnlinkFailedError, WriteFailedError
from pytest_peaks.errors import NotWritableError, StateNotFoundError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs


@dataclass(frozen=True, slots=True)
class States:
    """The states in one folder of mode 0700; each a storageState of mode 0600, encrypted where a key is set."""

    folder: Path
    dirs: ProjectDirs

    def path(self, name: str) -> Path:
        """
        :raises InvalidNameError: the name can't become a path.
        """
        return self.folder / f"{check_name(name)}.json"

    def exists(self, name: str) -> bool:
        return os.path.lexists(self.path(name))

    def is_encrypted(self, name: str) -> bool:
        """Whether a state is there and only peaks can read it."""
        path = self.path(name)
        with contextlib.suppress(OSError):
            return path.is_file() and is_encrypted(path.read_text(encoding="utf-8", errors="replace"))
        return False

    def names(self) -> list[str]:
        """Names that have a state, sorted."""
        with contextlib.suppress(OSError):
            return sorted(path.stem for path in self.folder.glob("*.json") if not path.name.startswith("."))
        return []

    def load(self, name: str) -> State:
        """The state of a session.

        :raises StateNotFoundError: there is none.
        :raises InvalidStateError: it is no storageState, or not a file of this user's own.
        :raises StateLockedError: it is encrypted and does not open.
        """
        path = self.path(name)
        try:
            return read_file(path, bound=_bound(name))
        except FileNotFoundError:
            raise StateNotFoundError(
                f"session {name!r} has no saved state; looked for {path}",
                hint=f"`peaks session save {name}` saves one",
            ) from None

    def save(self, name: str, state: Mapping[str, Any]) -> Path:
        """Keep a state, whole or not at all.

        :raises WriteFailedError: it can't be written; what was there stays.
        :raises InvalidStateError: a link or something else that is no file has its place.
        :raises StateKeyError: the key that is set can't be used.
        """
        path = self.path(name)
        try:
            self._make_folder()
            write_file(path, state, bound=_bound(name))
        except (OSError, NotWritableError) as error:
            reason = error.message if isinstance(error, NotWritableError) else error.strerror or str(error)
            raise WriteFailedError(
                f"the state of {name!r} cannot be saved: {reason}", hint="what was saved before is unchanged"
            ) from None
        return path

    def remove(self, name: str) -> bool:
        """Remove the state of a session; False if there was none. Never follows a link.

        :raises UnlinkFailedError: it can't be removed.
        """
        path = self.path(name)
        try:
            if path.is_dir() and not path.is_symlink():
                raise UnlinkFailedError(f"{path} is a directory", hint="remove it by hand if it is yours")
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise UnlinkFailedError(
                f"{path} cannot be removed: {error.strerror or error}", hint="`ls -l` says whose it is"
            ) from None
        return True

    def prepare(self) -> None:
        """Have the folder there, for a tool to write into it.

        :raises WriteFailedError: it can't be made.
        """
        try:
            self._make_folder()
        except (OSError, NotWritableError) as error:
            reason = error.message if isinstance(error, NotWritableError) else error.strerror or str(error)
            raise WriteFailedError(
                f"{self.folder} cannot be used: {reason}", hint="name another with --state-dir"
            ) from None

    def _make_folder(self) -> None:
        if self.dirs.base in self.folder.parents:
            self.dirs.create()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        info = self.folder.lstat()
        if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
            raise NotWritableError(f"{self.folder} is not a directory of yours")
        if os.name == "posix" and stat.S_IMODE(info.st_mode) & 0o077:
            self.folder.chmod(0o700)


def _bound(name: str) -> str:
    """What an encrypted state is bound to: it is no saved login, though one may have its name."""
    return f"desk/{name}"


def differs(found: State, saved: State | None) -> bool:
    """Whether what a browser holds is something that is not saved."""
    if saved is None:
        return bool(found.cookies or found.plain["origins"] or any(found.session_storage.values()))
    return _essence(found) != _essence(saved)


def loses_login(found: State, saved: State) -> bool:
    """Whether the saved state has a login, and what a browser holds does not have it any more."""
    there = {cookie_key(cookie) for cookie in found.cookies}
    wanted = {cookie_key(cookie) for cookie in that_matter(saved)}
    blank = not differs(found, None)
    return not wanted <= there or (blank and differs(saved, None))


def _essence(state: State) -> tuple[Any, ...]:
    """What two states have to have in common, whatever the order of their parts."""
    plain = state.plain
    cookies = sorted(
        (*cookie_key(cookie), str(cookie.get("value")), str(cookie.get("expires")))
        for cookie in plain.cookies
    )
    rest = {key: value for key, value in plain.items() if key not in ("cookies", "origins")}
    origins = sorted((dict(origin) for origin in plain.origins), key=lambda origin: str(origin.get("origin")))
    session = {origin: dict(items) for origin, items in state.session_storage.items() if items}
    return cookies, origins, session, {key: value for key, value in rest.items() if value}
