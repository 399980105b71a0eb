"""The ledger on disk: changed under one lock only, whole or not at all, and never over something unknown."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.desks.errors import BadJsonError, SchemaTooNewError, WriteFailedError
from pytest_peaks.desks.ledger import SEED_VERSION, Ledger, NewerLedgerError, from_seed, version_of
from pytest_peaks.desks.lock import NotFreeError, locked
from pytest_peaks.errors import LockTimeoutError

# A change takes a millisecond. After the first a waiter says so; after the second somebody is stopped.
LOCK_NOTICE = 2.0
LOCK_TIMEOUT = 60.0
# A thousand sessions are half a megabyte.
LARGEST_LEDGER = 16 * 1024 * 1024
MEND = "`peaks doctor --fix` sets it aside and makes one anew from what runs and what is saved"


def _no_step(_: str) -> None:
    """Called between the steps of a write; tests end the process there."""


step: Callable[[str], None] = _no_step


def _say_nothing(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LedgerFile:
    """The ledger of one pool.

    :ivar say: tells the user that the lock is waited for, and who has it.
    :ivar missing: makes a ledger where there is no file, from what is known otherwise.
    """

    path: Path
    say: Callable[[str], None] = _say_nothing
    missing: Callable[[], Ledger] = Ledger

    @property
    def lock_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    def read(self) -> Ledger:
        """The ledger as it is now. Creates nothing.

        :raises BadJsonError: the file is none.
        :raises SchemaTooNewError: a later pytest-peaks wrote it.
        """
        return self._load()[0]

    @contextlib.contextmanager
    def changing(self) -> Iterator[Ledger]:
        """Change the ledger: what it is when the block ends is written. An error in the block changes nothing.

        :raises BadJsonError: the file is no ledger.
        :raises SchemaTooNewError: a later pytest-peaks wrote it.
        :raises WriteFailedError: it could not be written; the old one stays.
        :raises LockTimeoutError: another process held the lock for a minute.
        """
        self._make_folder()
        with self._locked():
            ledger, text, data = self._load()
            if text and data["version"] == SEED_VERSION:
                self._back_up(text, SEED_VERSION)
            yield ledger
            found = ledger.to_json(int(time.time()))
            if text and found | {"updated_at": 0} == data | {"updated_at": 0}:
                return
            self._write(_as_text(found))

    def set_aside(self) -> Path | None:
        """Move a file that is no ledger out of the way; None if there is none that is to be moved.

        :raises SchemaTooNewError: a later pytest-peaks wrote it; it stays.
        :raises WriteFailedError: it can't be moved.
        :raises LockTimeoutError: another process held the lock for a minute.
        """
        with self._locked():
            try:
                self._load()
            except BadJsonError:
                pass
            else:
                return None  # somebody else has mended it meanwhile
            target = self.path.with_name(f"{self.path.stem}.corrupt-{time.time_ns()}{self.path.suffix}")
            try:
                self.path.rename(target)
            except OSError as error:
                raise self._not_written(error) from None
            return target

    def _load(self) -> tuple[Ledger, str, dict[str, Any]]:
        """The ledger, its text (empty where there is no file) and what that says."""
        try:
            text = self._text()
        except FileNotFoundError:
            return self.missing(), "", {}
        except OSError as error:
            raise BadJsonError(
                f"{self.path} cannot be read: {error.strerror or error}", hint="a file of your own"
            ) from None
        try:
            data = json.loads(text)
            version = version_of(data)
            ledger = from_seed(data) if version == SEED_VERSION else Ledger.from_json(data)
        except NewerLedgerError as error:
            raise SchemaTooNewError(
                f"{self.path} was written by a later pytest-peaks: {error}", hint="upgrade pytest-peaks"
            ) from None
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise BadJsonError(f"{self.path} is no usable ledger: {reason}", hint=MEND) from None
        return ledger, text, data

    def _text(self) -> str:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(self.path, flags)
        try:
            file = os.fdopen(descriptor, "rb")
        except OSError:  # a directory
            os.close(descriptor)
            raise
        with file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode) or info.st_size > LARGEST_LEDGER:
                raise BadJsonError(
                    f"{self.path} is no ledger: not a regular file of a usable size", hint=MEND
                )
            return file.read().decode("utf-8", errors="replace")

    def _make_folder(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._not_written(error) from None

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        def notice() -> None:
            self.say(f"waiting for {self.lock_path}{_held_by(self.lock_path)}")

        with contextlib.ExitStack() as held:
            try:
                held.enter_context(
                    locked(self.lock_path, notice=LOCK_NOTICE, limit=LOCK_TIMEOUT, on_notice=notice)
                )
            except NotFreeError:
                raise LockTimeoutError(
                    f"{self.lock_path} was not free for {LOCK_TIMEOUT:.0f} s{_held_by(self.lock_path)}",
                    hint="a stopped process may hold it; let it go on, or end it",
                ) from None
            except OSError as error:
                raise self._not_written(error) from None
            yield

    def _back_up(self, text: str, version: int) -> None:
        """Keep a file of an older schema before it is replaced."""
        target = self.path.with_name(f"{self.path.stem}.v{version}-{time.time_ns()}{self.path.suffix}")
        try:
            _write_whole(target, text, target.with_name(f".tmp-{target.name}.part"))
        except OSError as error:
            raise self._not_written(error) from None

    def _write(self, text: str) -> None:
        # Of this name, since only who has the lock writes: what a killed writer left goes with the next write.
        part = self.path.with_name(f".tmp-{self.path.name}.part")
        try:
            part.unlink(missing_ok=True)
            _write_whole(self.path, text, part)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise self._not_written(error) from None

    def _not_written(self, error: BaseException) -> WriteFailedError:
        return WriteFailedError(
            f"{self.path} cannot be written: {getattr(error, 'strerror', None) or error}",
            hint="what was there before is unchanged; make its folder writable, or name another with --ledger",
        )


def _as_text(data: dict[str, Any]) -> str:
    """JSON with a line for each desk and each session: fast to make, and readable."""
    parts = []
    for key, value in data.items():
        if isinstance(value, dict):
            lines = ",".join(f"\n    {json.dumps(name)}: {json.dumps(one)}" for name, one in value.items())
            parts.append(f"{json.dumps(key)}: {{{lines}\n  }}")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{\n  " + ",\n  ".join(parts) + "\n}\n"


def _write_whole(path: Path, text: str, part: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    with os.fdopen(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
        step("opened")
        file.write(text[: len(text) // 2])
        file.flush()
        step("half written")
        file.write(text[len(text) // 2 :])
        file.flush()
        step("written")
        os.fsync(file.fileno())
    step("synced")
    part.replace(path)
    step("replaced")
    if os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    step("folder synced")


def _held_by(path: Path) -> str:
    """`` (process 123 has it)``, where the system tells; else empty. Source: proc(5), ``/proc/locks``."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        inode = path.stat().st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
                return f" (process {fields[4]} has it)"
    return ""
