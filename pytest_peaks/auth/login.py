"""One login a run and name, for any number of processes: single flight under a lock that dies with its holder.

Whoever has the lock looks again whether somebody else has logged in meanwhile, and logs in only if not. A
login that failed is noted for the run: nobody tries it again, which would lock accounts. A holder that
died leaves a note that it had begun; the next one takes over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.auth.model import State
from pytest_peaks.errors import LoginFailedError, PeaksError, all_kinds
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.registry import write_atomically

KIND = "logins"
# How often holders may die in the middle of a login before that is said instead.
HOLDERS = 3
# A login that takes longer than this is given up by those who wait for it.
PATIENCE = 600.0
# Between two looks at the lock, and between two words about it to the user, in seconds.
BEAT = 0.05
FIRST_WORD = 1.0
NEXT_WORD = 15.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a login is for, and who wants it.

    :ivar what: how it is called in messages, such as ``'admin'`` or ``'admin' (bob)``.
    :ivar file: the file of the state; two runs at once with one file have one login.
    :ivar run: uid of the run.
    :ivar controller: the process whose death ends the run, and with it what was noted.
    :ivar worker: xdist's id.
    """

    what: str
    file: Path
    run: str
    controller: ProcessIdentity
    worker: str

    @property
    def key(self) -> str:
        return key_of(self.file)


def key_of(file: Path) -> str:
    """What stands for the file of a state in the user's runtime dir, in which the files of all projects meet."""
    return hashlib.sha256(os.fsencode(os.path.realpath(file))).hexdigest()[:24]


def once(
    runtime: Path,
    ticket: Ticket,
    current: Callable[[], State | None],
    log_in: Callable[[], State],
    say: Callable[[str], None],
) -> State:
    """The state that is good: the one that is there, or that of one login.

    :param current: reads the state; None if there is none that is good.
    :param log_in: logs in and saves; called by one process at a time.
    :param say: tells the user what is being waited for.
    :raises LoginFailedError: the login failed, here or in another worker of the run.
    """
    found = current()
    if found is not None:
        return found
    folder = runtime / KIND
    folder.mkdir(exist_ok=True, mode=0o700)
    note = _Note(folder / f"{ticket.key}-{ticket.run}.json", ticket)
    with _locked(folder / f"{ticket.key}.lock", note, ticket, say):
        found = current()
        if found is not None:
            return found
        attempts = note.begun()
        try:
            state = log_in()
        except PeaksError as error:
            note.failed(error)
            raise
        except BaseException:  # an interrupt, or a test that is skipped: no verdict on the login
            note.withdraw(attempts)
            raise
        note.done()
        return state


@contextlib.contextmanager
def _locked(path: Path, note: _Note, ticket: Ticket, say: Callable[[str], None]) -> Any:
    import filelock

    lock = filelock.FileLock(path, mode=0o600)
    start = time.monotonic()
    next_word = start + FIRST_WORD
    while True:
        note.raise_if_failed()
        try:
            lock.acquire(timeout=FIRST_WORD, poll_interval=BEAT)
            break
        except filelock.Timeout:
            now = time.monotonic()
            if now - start > PATIENCE:
                raise LoginFailedError(
                    f"auth {ticket.what}: the login of {note.holder} takes more than {PATIENCE:.0f} s",
                    hint="look at what it is waiting for",
                ) from None
            if now >= next_word:
                next_word = now + NEXT_WORD
                say(
                    f"{ticket.worker} waits for the login {ticket.what} of {note.holder}: {now - start:.0f} s"
                )
    try:
        note.raise_if_failed()
        yield
    finally:
        lock.release()


class _Note:
    """What is known in a run about one login. Written only under the lock."""

    def __init__(self, path: Path, ticket: Ticket) -> None:
        self._path = path
        self._ticket = ticket

    @property
    def holder(self) -> str:
        return str(self._read().get("worker", "another run"))

    def raise_if_failed(self) -> None:
        """Raise what the login failed with, if it did."""
        known = self._read()
        error = known.get("error")
        if not isinstance(error, Mapping):
            return
        kinds = {kind.code: kind for kind in all_kinds()}
        raise kinds.get(str(error.get("code")), LoginFailedError)(
            f"{error.get('message')} (in {known.get('worker')}; not tried again in this run)",
            hint=str(error.get("hint") or ""),
        )

    def begun(self) -> int:
        """Note that this process logs in; how many did before it and died.

        :raises LoginFailedError: too many.
        """
        died = int(self._read().get("attempts", 0))
        if died >= HOLDERS:
            raise LoginFailedError(
                f"auth {self._ticket.what}: {died} workers died while they were logging in",
                hint="run the login alone: `pytest -n 0` on one of its tests",
            )
        self._write(attempts=died + 1)
        return died

    def failed(self, error: PeaksError) -> None:
        self._write(error={"code": error.code, "message": error.message, "hint": error.hint})

    def withdraw(self, attempts: int) -> None:
        self._write(attempts=attempts)

    def done(self) -> None:
        self._path.unlink(missing_ok=True)

    def _read(self) -> Mapping[str, Any]:
        try:
            data = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return data if isinstance(data, dict) else {}

    def _write(self, **content: Any) -> None:
        # `owner` and `session` as a reservation has them: it is dropped with the run.
        head = {"schema": 1, "owner": self._ticket.controller.to_json(), "session": self._ticket.run}
        write_atomically(self._path, json.dumps({**head, "worker": self._ticket.worker, **content}) + "\n")
