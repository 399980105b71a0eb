"""Who a process is, and which names may become paths.

A pid alone says nothing: the kernel hands it out again. A process is the same one only if its
start time, the boot of the machine and the host agree as well.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
from dataclasses import dataclass
from typing import Any, Literal

from pytest_peaks.errors import InvalidNameError
from pytest_peaks.session import light
from pytest_peaks.session.light import boot_id, pid_namespace, start_of

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
# Device names that Windows reserves whatever their ending.
_WINDOWS_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))]
)

State = Literal["alive", "dead", "foreign"]


def check_name(name: str, what: str = "session name") -> str:
    """Return `name` if it may become part of a path.

    :raises InvalidNameError: it is not ``[a-z0-9][a-z0-9_-]{0,39}``, or is a Windows device name.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidNameError(
            f"{what} {name!r} is not usable",
            hint="1 to 40 of a-z, 0-9, '-' and '_', beginning with a letter or a digit",
        )
    if name in _WINDOWS_DEVICES:
        raise InvalidNameError(f"{what} {name!r} is a device name on Windows", hint="choose another name")
    return name


@functools.cache
def machine_mark() -> str:
    """Eight hex digits that tell apart hosts, boots and pid namespaces."""
    text = f"{platform.node()}|{boot_id()}|{pid_namespace()}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process as it can be recognised later, also by another process.

    :ivar started: see :func:`start_of`.
    """

    pid: int
    started: int
    host: str
    boot: str
    namespace: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Identity of a running process; None if there is none of this pid."""
        started = start_of(pid)
        if started is None:
            return None
        return cls(pid, started, light.host(), boot_id(), pid_namespace())

    @classmethod
    def of_self(cls) -> ProcessIdentity:
        """Identity of the calling process."""
        identity = cls.of(os.getpid())
        assert identity is not None, "the calling process is running"
        return identity

    def state(self) -> State:
        """``alive``, ``dead``, or ``foreign``: on another host or in another pid namespace."""
        return light.state_of(self.to_json())

    def is_alive(self) -> bool:
        return self.state() == "alive"

    def to_json(self) -> dict[str, Any]:
        return {
            "pid": self.pid,
            "started": self.started,
            "host": self.host,
            "boot": self.boot,
            "namespace": self.namespace,
        }

    @classmethod
    def from_json(cls, data: object) -> ProcessIdentity:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: a field is missing or has the wrong type.
        """
        return cls(**light.checked_identity(data))


__all__ = [
    "NAME",
    "ProcessIdentity",
    "State",
    "boot_id",
    "check_name",
    "machine_mark",
    "pid_namespace",
    "start_of",
]
