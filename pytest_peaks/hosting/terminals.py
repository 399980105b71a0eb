"""Which terminal this is: the id under which a hosted session is found again.

The rule is that of the first ``peaks playwright`` (its document, "Terminal ID derivation"), with two
mends: the pid is that of the terminal's session leader, since a parent's changes with every wrapper
(``npx``, ``sh -c``); and ids that only cleaning made equal are told apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_peaks.errors import InvalidNameError

LONGEST = 64


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal's id.

    :ivar id: as in records and file names.
    :ivar raw: what it was made from; equal ids of different terminals differ here.
    :ivar certain: False where there is no terminal at all, so that the next call has another id.
    :ivar typed: a user gave it, and means whatever session has that name.
    """

    id: str
    raw: str
    certain: bool = True
    typed: bool = False

    @property
    def mark(self) -> str:
        """Sixteen hex digits for `raw`, which may hold what is nobody's business."""
        return hashlib.sha256(self.raw.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    @property
    def distinct_id(self) -> str:
        """An id that no other terminal's cleaning can give."""
        return f"{self.id[: LONGEST - 9]}-{self.mark[:8]}"


def clean(text: str) -> str:
    """The seed's rule: all but ``[A-Za-z0-9_.-]`` becomes ``_``, at most 64 UTF-16 units.

    Beyond it, a leading dot becomes ``_``: ``.`` and ``..`` are directories, ``.x`` is hidden.
    """
    units = re.sub(r"[^a-zA-Z0-9_.-]", lambda found: "_" * (2 if found[0] > "\uffff" else 1), text)[:LONGEST]
    return re.sub(r"^\.", "_", units)


def hashed(pid: int, ssh_tty: str | None) -> str:
    """``tty-`` and 16 hex digits of the seed's hash. An empty SSH_TTY is not the same as none."""
    text = f"{pid}-{'no-tty' if ssh_tty is None else ssh_tty}"
    return "tty-" + hashlib.sha256(text.encode()).hexdigest()[:16]


def check_terminal_id(text: str) -> str:
    """Return an id that a user gave, if it can be one. ``<id>@<port>`` names one of several sessions.

    :raises InvalidNameError: it is empty, too long, or holds what no id holds.
    """
    if not re.fullmatch(rf"(?!\.)[A-Za-z0-9_.-]{{1,{LONGEST}}}(@[0-9]{{4,5}})?", text):
        raise InvalidNameError(
            f"terminal id {text!r} is not usable",
            hint="1 to 64 of A-Z, a-z, 0-9, '_', '.' and '-', no dot first; `peaks playwright ls` shows them",
        )
    return text


def current(
    given: str | None = None,
    environ: Mapping[str, str] | None = None,
    leader: Callable[[], int | None] | None = None,
) -> Terminal:
    """The terminal of this process.

    Order: `given`, ``PEAKS_TERMINAL_ID``, ``TERM_SESSION_ID``, ``WT_SESSION`` (with ``wt-``), the hash.

    :raises InvalidNameError: an id that was given is not usable.
    """
    environ = os.environ if environ is None else environ
    chosen = environ.get("PEAKS_TERMINAL_ID") or None if given is None else given
    if chosen is not None:
        return Terminal(check_terminal_id(chosen), chosen, typed=True)
    for name, prefix in (("TERM_SESSION_ID", ""), ("WT_SESSION", "wt-")):
        if environ.get(name):
            raw = prefix + environ[name]
            return Terminal(clean(raw), raw)
    pid = (leader or session_leader)()
    certain = pid is not None
    own = hashed(os.getppid() if pid is None else pid, environ.get("SSH_TTY"))
    return Terminal(own, own, certain)


def session_leader() -> int | None:
    """The pid of the controlling terminal's session leader, usually its shell; None without a terminal."""
    if not hasattr(os, "getsid"):
        return None
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
        return os.getsid(0)
    return None
