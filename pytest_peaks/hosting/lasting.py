"""A hosted session that ends with those who use it: who they are is noted in its temp dir."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.registry import write_atomically

FOLDER = "users"
# Somebody uses the session for whom it is to stay.
FOR_GOOD = "for-good"


def use(temp_dir: Path, user: ProcessIdentity | None) -> None:
    """Note that a session is used until `user` is dead; None for good.

    :raises OSError: the session is gone.
    """
    folder = temp_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    if user is None:
        (folder / FOR_GOOD).touch(mode=0o600)
    else:
        write_atomically(folder / f"{user.pid}-{user.started:x}.json", json.dumps(user.to_json()))


def is_over(temp_dir: Path, first: ProcessIdentity | None) -> bool:
    """Whether all who used a session are dead.

    :param first: for whom it was started; None for good.
    """
    if first is None or first.state() != "dead":
        return False
    folder = temp_dir / FOLDER
    if (folder / FOR_GOOD).exists():
        return False
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            if ProcessIdentity.from_json(json.loads(path.read_text(encoding="utf-8"))).state() != "dead":
                return False
    return True
