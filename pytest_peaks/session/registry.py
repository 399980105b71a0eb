"""The folder of records: write, read, list, set aside.

One bad file never hides the others: it is named and moved to ``set-aside/``. A record of a later
schema is named and left where it is, since its session may be alive.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.session import light
from pytest_peaks.session.record import Record


@dataclass(frozen=True, slots=True)
class Problem:
    """A file among the records that could not be used, and why."""

    path: Path
    reason: str
    left_in_place: bool = False


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` (mode 0600) so that a reader sees the old content or the new, never a part."""
    # Named before it is made, so that an interrupt at any moment finds it.
    part = path.parent / f".tmp-{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with os.fdopen(os.open(part, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


class Registry:
    """The records of one project."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, session_id: str) -> Path:
        return self.folder / f"{session_id}.json"

    def write(self, record: Record) -> None:
        text = json.dumps(record.to_json(), indent=2) + "\n"
        write_atomically(self.path_of(record.session_id), text)

    def remove(self, session_id: str) -> None:
        self.path_of(session_id).unlink(missing_ok=True)

    def read(self, session_id: str) -> Record | None:
        """The record, or None if there is none or it can't be used."""
        record = self._load(self.path_of(session_id))
        return record if isinstance(record, Record) else None

    def list(self) -> tuple[list[Record], list[Problem]]:
        """All usable records, by id, and every file that is none. Changes nothing."""
        records: list[Record] = []
        problems: list[Problem] = []
        for path in map(Path, light.record_files(str(self.folder))):
            loaded = self._load(path)
            if isinstance(loaded, Record):
                records.append(loaded)
            elif loaded is not None:
                problems.append(loaded)
        return records, problems

    def set_aside(self, problem: Problem) -> Path | None:
        """Move a bad file out of the way, keeping it; None if it is to stay or went meanwhile."""
        if problem.left_in_place:
            return None
        target = self.folder / "set-aside" / f"{problem.path.name}.{time.time_ns()}"
        try:
            target.parent.mkdir(exist_ok=True, mode=0o700)
            problem.path.rename(target)
        except OSError:
            return None
        return target

    def _load(self, path: Path) -> Record | Problem | None:
        loaded = light.load(str(path))
        if isinstance(loaded, tuple):
            reason, stays = loaded
            return Problem(path, reason, left_in_place=stays)
        return None if loaded is None else Record.of_fields(loaded)
