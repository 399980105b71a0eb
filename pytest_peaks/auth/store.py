"""Where saved logins are kept: ``.peaks/auth``, a folder of mode 0700 with a file of mode 0600 for each.

Files are written whole or not at all, never through a link, and read only if they are regular files of
this user's. With a key set they are encrypted. In CI a login can come from ``PEAKS_AUTH_<NAME>`` instead.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.auth import crypto
from pytest_peaks.auth.model import MEND, State, parse_state
from pytest_peaks.errors import InvalidStateError, NotWritableError, PeaksError, StateNotFoundError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.registry import write_atomically

# A login is some kilobytes; 10 MB of IndexedDB take 4 s to replay, 50 MB forty.
LARGEST_STATE = 32 * 1024 * 1024
ENV_PREFIX = "PEAKS_AUTH_"
FOLDER = "auth"


@dataclass(frozen=True, slots=True)
class Entry:
    """One saved login of a project.

    :ivar account: the key of the account or slot that it is of; empty for the only one.
    :ivar state: None if it can't be read now.
    :ivar problem: why it can't.
    """

    name: str
    account: str
    path: Path
    encrypted: bool
    state: State | None
    problem: str = ""


class Store:
    """The saved logins of one project."""

    def __init__(self, dirs: ProjectDirs) -> None:
        self._dirs = dirs
        self.folder = dirs.base / FOLDER

    def path(self, name: str, account: str = "") -> Path:
        """Where the login `name` is, of one account.

        :raises InvalidNameError: the name can't become a path.
        """
        check_name(name, "auth name")
        return self.folder / (f"{name}@{account}.json" if account else f"{name}.json")

    def load(self, name: str, account: str = "") -> State:
        """The login that is kept under `name`; the variable ``PEAKS_AUTH_<NAME>`` comes before the file.

        :raises StateNotFoundError: there is none.
        :raises InvalidStateError: it is no storageState, or not a file of this user's own.
        :raises StateLockedError: it is encrypted and does not open.
        """
        given = self.given(name, account)
        return given if given is not None else self.kept(name, account)

    def given(self, name: str, account: str = "") -> State | None:
        """The login in ``PEAKS_AUTH_<NAME>``, which is the one of no account or slot; None if it is not set.

        :raises InvalidStateError: it is no storageState.
        """
        self.path(name, account)
        return from_environment(name) if not account else None

    def kept(self, name: str, account: str = "") -> State:
        """The login in the file of `name`; see :meth:`load`."""
        path = self.path(name, account)
        try:
            return read_file(path, bound=path.stem)
        except FileNotFoundError:
            raise not_found(name, path) from None

    def save(self, name: str, state: Mapping[str, Any], account: str = "") -> Path:
        """Keep a login; gives its file.

        :raises InvalidStateError: a link or something else that is no file has its place.
        :raises NotWritableError: it can't be written.
        :raises StateKeyError: the key that is set can't be used.
        """
        path = self.path(name, account)
        self._make_folder()
        write_file(path, state, bound=path.stem)
        return path

    def remove(self, name: str, account: str = "") -> Path:
        """Remove a login; gives the file that it was.

        :raises StateNotFoundError: there is none.
        """
        path = self.path(name, account)
        try:
            if path.is_dir() and not path.is_symlink():
                raise InvalidStateError(f"{path} is a directory", hint="remove it by hand if it is yours")
            path.unlink()
        except FileNotFoundError:
            raise not_found(name, path) from None
        except OSError as error:
            raise NotWritableError(
                f"{path} cannot be removed: {error.strerror or error}", hint="`ls -l` says whose it is"
            ) from None
        return path

    def entries(self) -> list[Entry]:
        """All logins that are kept, by name and account; one that can't be read says why."""
        try:
            files = sorted(path for path in self.folder.iterdir() if path.suffix == ".json")
        except OSError:
            return []
        return [self._entry(path) for path in files if not path.name.startswith(".")]

    def _entry(self, path: Path) -> Entry:
        name, _, account = path.stem.partition("@")
        encrypted = False
        try:
            encrypted = crypto.is_encrypted(_text_of(path)[0])
            return Entry(name, account, path, encrypted, read_file(path, bound=path.stem))
        except PeaksError as error:
            return Entry(name, account, path, encrypted, None, error.message)
        except OSError as error:
            return Entry(name, account, path, encrypted, None, error.strerror or str(error))

    def _make_folder(self) -> None:
        self._dirs.create()
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            info = self.folder.lstat()
            if not stat.S_ISDIR(info.st_mode) or (hasattr(os, "getuid") and info.st_uid != os.getuid()):
                raise NotWritableError(
                    f"{self.folder} is not a directory of yours",
                    hint="saved logins are not written through a link",
                )
            if os.name == "posix" and stat.S_IMODE(info.st_mode) & 0o077:
                self.folder.chmod(0o700)
        except OSError as error:
            raise NotWritableError(
                f"{self.folder} cannot be made: {error.strerror or error}",
                hint="make the project's .peaks folder writable",
            ) from None


def keyed_accounts(accounts: Sequence[object]) -> list[tuple[object, str]]:
    """Accounts, each once, with the parts of files' names that stand for them: readable, and distinct."""
    found: list[tuple[object, str]] = []
    for number, account in enumerate(accounts):
        if any(account == other for other, _ in found):
            continue
        key = account_key(account, number)
        namesakes = sum(other.partition(".")[0] == key for _, other in found)
        found.append((account, f"{key}.{namesakes + 1}" if namesakes else key))
    return found


def account_key(account: object, number: int) -> str:
    """The part of a file's name that stands for an account's label."""
    label = account_label(account, number)
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:24]
    return f"{readable or 'account'}-{hashlib.sha256(label.encode(errors='surrogatepass')).hexdigest()[:10]}"


def account_label(account: object, number: int) -> str:
    """What an account is called in messages: its name, never its password."""
    if isinstance(account, str):
        return account
    if isinstance(account, Mapping):
        for key in ("name", "username", "user", "email", "login", "id"):
            if isinstance(account.get(key), str | int) and account[key] != "":
                return str(account[key])
    name = getattr(account, "name", None) or getattr(account, "username", None)
    return name if isinstance(name, str) else f"account {number + 1}"


def variable_of(name: str) -> str:
    """The environment variable that a login can come from."""
    return ENV_PREFIX + name.upper().replace("-", "_")


def from_environment(name: str) -> State | None:
    """The login in ``PEAKS_AUTH_<NAME>``: a storageState as JSON, or that in base64; None if it is not set.

    :raises InvalidStateError: it is neither.
    """
    variable = variable_of(name)
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not text.startswith(("{", "[", '"')):
        with contextlib.suppress(ValueError, binascii.Error):
            # `base64` breaks lines.
            text = base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
    return parse_state(text, variable)


def read_file(path: Path, *, bound: str) -> State:
    """The storageState in a file.

    :param bound: the name under which it was encrypted, if it was.
    :raises FileNotFoundError: there is no such file.
    :raises InvalidStateError: it is no storageState, or not a file of this user's own.
    :raises StateLockedError: it is encrypted and does not open.
    """
    text, modified = _text_of(path)
    if crypto.is_encrypted(text):
        text = crypto.decrypt(text, bound, str(path))
    state = parse_state(text, str(path))
    state.modified = modified
    return state


def check_size(size: int, where: str) -> None:
    """
    :raises InvalidStateError: a state of `size` bytes is too large to be one.
    """
    if size > LARGEST_STATE:
        raise InvalidStateError(
            f"{where} has {size / 2**20:.0f} MB; a login has at most {LARGEST_STATE // 2**20} MB",
            hint="save only what the login needs: a state of that size takes minutes to replay",
        )


def _text_of(path: Path) -> tuple[str, float]:
    """What is in a file, and when it was written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise InvalidStateError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="a regular file, not a link, of your own",
        ) from None
    try:
        info = os.fstat(descriptor)
        foreign = hasattr(os, "getuid") and info.st_uid != os.getuid()
        if not stat.S_ISREG(info.st_mode) or foreign:
            raise InvalidStateError(f"{path} is not a regular file of yours", hint=MEND)
        check_size(info.st_size, str(path))
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(LARGEST_STATE + 1).decode("utf-8-sig", errors="replace"), info.st_mtime
    finally:
        os.close(descriptor)


def write_file(path: Path, state: Mapping[str, Any], *, bound: str) -> None:
    """Write a storageState, whole or not at all, with mode 0600; folders on the way are made.

    :param bound: the name that it is encrypted for, where a key is set; empty to write it plain.
    :raises InvalidStateError: a link or something else that is no file has that name.
    :raises NotWritableError: it can't be written.
    :raises StateKeyError: the key that is set can't be used.
    """
    text = json.dumps(state, indent=2) + "\n"
    if bound and crypto.has_key():
        text = crypto.encrypt(text, bound)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise InvalidStateError(
                f"{path} is there already and is no regular file",
                hint="a saved login is not written through a link; name another file",
            )
        write_atomically(path, text)
    except (OSError, ValueError) as error:
        raise NotWritableError(
            f"{path} cannot be written: {getattr(error, 'strerror', None) or error}",
            hint="name a file in a folder that you may write to",
        ) from None


def not_found(name: str, path: Path) -> StateNotFoundError:
    return StateNotFoundError(
        f"there is no saved login {name!r}; looked for {path}",
        hint=f"`peaks auth save {name} --url URL` saves one, `peaks auth import FILE --name {name}` takes one",
    )
