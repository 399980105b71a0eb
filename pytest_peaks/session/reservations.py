"""Who holds a port or a profile, per user and machine-wide.

One small file per thing names its holder's identity and is good while that process lives. Files
are changed only under one short lock. (A lock held for the session's life would not do: one
whose descriptor a child inherits is lost when the parent exits.)
"""

from __future__ import annotations

import contextlib
import json
import stat
from collections.abc import Iterator
from pathlib import Path

from pytest_peaks.errors import LockTimeoutError
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import runtime_dir
from pytest_peaks.session.registry import write_atomically

# Changing a reservation takes under a millisecond; thirty-two processes at once take well under
# a second. A minute means that somebody is stopped while holding the lock.
LOCK_TIMEOUT = 60.0


@contextlib.contextmanager
def allocating(folder: Path | None = None) -> Iterator[Path]:
    """Hold the allocator's lock; gives the runtime dir.

    :raises LockTimeoutError: it was not free within a minute.
    """
    import filelock

    folder = folder or runtime_dir()
    lock = folder / "allocator.lock"
    try:
        with filelock.FileLock(lock, mode=0o600).acquire(LOCK_TIMEOUT, poll_interval=0.005):
            yield folder
    except filelock.Timeout as error:
        raise LockTimeoutError(
            f"{lock} was held by another process for {LOCK_TIMEOUT:.0f} s",
            hint="a stopped process may hold it: `fuser -v` on that file names it",
        ) from error


class Reservations:
    """The reservations of one kind (``ports``, ``profiles``). Call under :func:`allocating`."""

    def __init__(self, runtime: Path, kind: str) -> None:
        self.folder = runtime / kind
        self.folder.mkdir(exist_ok=True, mode=0o700)

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
