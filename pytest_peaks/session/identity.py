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
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_peaks.errors import InvalidNameError

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
def boot_id() -> str:
    """Name of this boot of the machine; empty where the system has none to offer."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@functools.cache
def pid_namespace() -> str:
    """Linux's pid namespace (pids mean nothing outside of it); empty elsewhere."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


@functools.cache
def machine_mark() -> str:
    """Eight hex digits that tell apart hosts, boots and pid namespaces."""
    text = f"{platform.node()}|{boot_id()}|{pid_namespace()}"
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def start_of(pid: int) -> int | None:
    """Start time of a process that is running now, or None (gone, or a zombie).

    Unit: on Linux clock ticks since boot (immune to clock changes), elsewhere milliseconds of
    Unix time.
    """
    if pid < 1:
        return None
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        # The command name may hold spaces and brackets; fields are counted from the last ')'.
        fields = stat[stat.rfind(")") + 2 :].split()
        return None if fields[0] in "ZX" else int(fields[19])
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return int(process.create_time() * 1000)
    except psutil.Error:
        return None


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
        return cls(pid, started, platform.node(), boot_id(), pid_namespace())

    @classmethod
    def of_self(cls) -> ProcessIdentity:
        """Identity of the calling process."""
        identity = cls.of(os.getpid())
        assert identity is not None, "the calling process is running"
        return identity

    def state(self) -> State:
        """``alive``, ``dead``, or ``foreign``: on another host or in another pid namespace."""
        if self.host != platform.node():
            return "foreign"
        if self.boot != boot_id():
            return "dead"
        if self.namespace != pid_namespace():
            return "foreign"
        return "alive" if start_of(self.pid) == self.started else "dead"

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
        if not isinstance(data, dict):
            raise ValueError("an identity is not an object")  # noqa: TRY004 - one error for bad data
        pid, started = data.get("pid"), data.get("started")
        texts = [data.get(key) for key in ("host", "boot", "namespace")]
        # bool is an int in Python; in a record it is a mistake.
        if type(pid) is not int or type(started) is not int or pid < 1:
            raise ValueError("an identity has no usable pid and start time")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("an identity has no usable host, boot and namespace")
        host, boot, namespace = texts
        return cls(pid, started, str(host), str(boot), str(namespace))
