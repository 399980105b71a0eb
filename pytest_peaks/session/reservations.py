"""Who holds a port or a profile, per user and machine-wide.

One small file per thing names its holder's identity and is good while that process lives. Files
are changed only under one short lock. (A lock held for the session's life would not do: one
whose descriptor a child inherits is lost when the parent exits.)
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_peaks.errors import LockTimeoutError
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import runtime_dir
from pytest_peaks.session.registry import write_atomically

# Changing a reservation takes under a millisecond; thirty-two processes at once take well under
# a second. A minute means that somebody is stopped while holding the lock.
LOCK_TIMEOUT = 60.0
LOCK_POLL = 0.005


@contextlib.contextmanager
def allocating(folder: Path | None = None) -> Iterator[Path]:
    """Hold the allocator's lock; gives the runtime dir.

    :raises LockTimeoutError: it was not free within a minute.
    """
    folder = folder or runtime_dir()
    lock = folder / "allocator.lock"
    with _locked(lock) as held:
        if not held:
            raise LockTimeoutError(
                f"{lock} was held by another process for {LOCK_TIMEOUT:.0f} s",
                hint="a stopped process may hold it: `fuser -v` on that file names it",
            )
        yield folder


if sys.platform == "win32":

    @contextlib.contextmanager
    def _locked(lock: Path) -> Iterator[bool]:
        import filelock

        try:
            held = filelock.FileLock(lock, mode=0o600).acquire(LOCK_TIMEOUT, poll_interval=LOCK_POLL)
        except filelock.Timeout:
            yield False
        else:
            with held:
                yield True

else:
    # What filelock does, whose import (asyncio's with it) is a tenth of the start of a session.
    import fcntl

    @contextlib.contextmanager
    def _locked(lock: Path) -> Iterator[bool]:
        """Hold a lock on a file, which stays; gives whether it was free in time."""
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + LOCK_TIMEOUT
            while not (held := _taken(descriptor)) and time.monotonic() < deadline:
                time.sleep(LOCK_POLL)
            yield held
        finally:
            # Said and not only closed: a child that was forked meanwhile has the file open too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _taken(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Reservations:
    """The reservations of one kind (``ports``, ``profiles``). Call under :func:`allocating`."""

    def __init__(self, runtime: Path, kind: str) -> None:
        self.folder = runtime / kind
        self.folder.mkdir(exist_ok=True, mode=0o700)

    def path_of(self, key: str) -> Path:
        """The file that is there while `key` is held."""
        return self._path(key)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def holder(self, key: str) -> tuple[ProcessIdentity, str] | None:
        """The holder and its session if `key` is held now. A file that can't be read holds nothing."""
        noted = self._read(key)
        return None if noted is None or noted[0].state() == "dead" else noted

    def take(self, key: str, owner: ProcessIdentity, session: str, *, where: str = "") -> None:
        """Note that `owner` holds `key` for `session`, whose project's folder is `where`."""
        content = {"schema": 1, "owner": owner.to_json(), "session": session, "where": where}
        write_atomically(self._path(key), json.dumps(content) + "\n")

    def places(self) -> list[str]:
        """The folders of all live holders, each once."""
        found = set()
        for path in self.folder.glob("*.json"):
            if self.holder(path.stem) is not None:
                with contextlib.suppress(OSError, ValueError):
                    found.add(str(json.loads(path.read_text(encoding="utf-8")).get("where", "")))
        return sorted(found - {""})

    def drop(self, key: str, session: str) -> None:
        """Give `key` back if `session` holds it."""
        noted = self._read(key)
        if noted is not None and noted[1] == session:
            self._path(key).unlink(missing_ok=True)

    def drop_dead(self) -> list[str]:
        """Remove the files of dead holders; returns their keys."""
        dropped = []
        for path in self.folder.glob("*.json"):
            if self.holder(path.stem) is None:
                with contextlib.suppress(OSError):  # a directory stays: it is none of ours
                    path.unlink(missing_ok=True)
                    dropped.append(path.stem)
        return sorted(dropped)

    def drop_of(self, owner: ProcessIdentity) -> None:
        """Give back all that `owner` holds."""
        for path in self.folder.glob("*.json"):
            noted = self._read(path.stem)
            if noted is not None and noted[0] == owner:
                path.unlink(missing_ok=True)

    def drop_session(self, session: str) -> None:
        """Give back all that is held for `session`."""
        for path in self.folder.glob("*.json"):
            noted = self._read(path.stem)
            if noted is not None and noted[1] == session:
                path.unlink(missing_ok=True)

    def _read(self, key: str) -> tuple[ProcessIdentity, str] | None:
        path = self._path(key)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return None  # to open a FIFO would hang, with the lock held
            data = json.loads(path.read_text(encoding="utf-8"))
            return ProcessIdentity.from_json(data["owner"]), str(data["session"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
