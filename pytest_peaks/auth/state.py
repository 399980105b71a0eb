"""A saved login as a user names it: by a name of the project's, or by the path of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import told
from pytest_peaks.auth.store import Store, read_file, write_file
from pytest_peaks.errors import CliNotOpenError, InvalidStateError, PeaksError, StateNotFoundError
from pytest_peaks.session.paths import ProjectDirs


@dataclass(frozen=True, slots=True)
class Place:
    """Where a login is, or is to be.

    :ivar name: its name in the project; empty for a file of the user's.
    """

    path: Path
    name: str = ""

    @classmethod
    def of(cls, dirs: ProjectDirs, given: str | os.PathLike[str]) -> Place:
        """What a user means: anything with a separator or a dot in it is a path, which starts at the working
        directory; else it is a name.

        :raises InvalidNameError: it is neither.
        """
        text = os.fspath(given)
        if isinstance(given, str) and not any(mark in text for mark in {"/", ".", os.sep}):
            return cls(Store(dirs).path(text), text)
        try:
            return cls(Path.cwd() / Path(text).expanduser())
        except (RuntimeError, ValueError):
            raise InvalidStateError(
                f"{text!r} is no path of a saved login", hint="write the path out"
            ) from None

    def read(self, dirs: ProjectDirs) -> State:
        """The login that is there.

        :raises StateNotFoundError: there is none.
        :raises InvalidStateError: it is no storageState, or not a file of this user's own.
        :raises StateLockedError: it is encrypted and does not open.
        """
        if self.name:
            return Store(dirs).load(self.name)
        try:
            return read_file(self.path, bound=self.path.stem)
        except FileNotFoundError:
            raise StateNotFoundError(
                f"there is no saved login in {self.path}",
                hint="`state-save` of a session that is logged in makes one",
            ) from None

    def write(self, dirs: ProjectDirs, state: State) -> None:
        """Keep a login there: encrypted under a name where a key is set, plain in a file of the user's.

        :raises InvalidStateError: a link or something else that is no file has that name.
        :raises NotWritableError: it can't be written.
        """
        if self.name:
            Store(dirs).save(self.name, state)
        else:
            write_file(self.path, state, bound="")

    def refused(self, error: PeaksError) -> PeaksError:
        """The failure to tell when a browser did not take the login. Quotes nothing of it."""
        if isinstance(error, CliNotOpenError):
            return error
        reason = told(error.message)
        return InvalidStateError(
            f"the browser does not take {self.path}" + (f": {reason}" if reason else ""),
            hint="save the login anew",
        )
