"""Ports: ranges, the walk, and what counts as busy."""

from __future__ import annotations

import errno
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.errors import InvalidPortError, PortExhaustedError, PortUnavailableError
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.reservations import Reservations, allocating

LOWEST, HIGHEST = 1024, 65535


@dataclass(frozen=True, slots=True)
class PortRange:
    """Ports `first` to `last`, both included.

    :ivar strict: an exhausted range is an error; otherwise the system chooses a port.
    """

    first: int
    last: int
    strict: bool = True

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @classmethod
    def parse(cls, text: str) -> PortRange:
        """Read ``8950-9149``, ``8950``, or ``0`` (the system chooses each).

        :raises InvalidPortError: anything else.
        """
        match = re.fullmatch(r"\s*([0-9]{1,6})\s*(?:-\s*([0-9]{1,6})\s*)?", text, re.ASCII)
        hint = f"a port, or a range FIRST-LAST, within {LOWEST}-{HIGHEST}; 0 lets the system choose"
        if not match:
            raise InvalidPortError(f"{text!r} is not a port range", hint=hint)
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if first == last == 0:
            return cls(0, 0, strict=False)
        if not (LOWEST <= first <= HIGHEST and LOWEST <= last <= HIGHEST):
            raise InvalidPortError(f"{text!r} is outside {LOWEST}-{HIGHEST}", hint=hint)
        if first > last:
            raise InvalidPortError(f"{text!r} ends before it begins", hint=hint)
        return cls(first, last)


WORKER_PORTS = PortRange(8950, 9149, strict=False)


def is_busy(port: int) -> bool:
    """Whether something listens on `port` of 127.0.0.1 or ::1. Only "address in use" means busy.

    :raises PortUnavailableError: the port can't be tried for another reason, such as permission.
    """
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # no such address family on this machine
        with probe:
            if os.name == "posix":
                # A port whose last connection is still in TIME_WAIT is free for Chromium, too.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                probe.listen(1)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return True
                if family == socket.AF_INET6:
                    continue  # IPv6 is switched off: EADDRNOTAVAIL and friends
                raise PortUnavailableError(
                    f"port {port} cannot be tried: {error.strerror}", hint="choose another range"
                ) from error
    return False


def reserve(
    ports: PortRange, owner: ProcessIdentity, session: str, *, skip: frozenset[int] = frozenset()
) -> int:
    """Reserve the first free port of the walk for `session`; 0 where the system is to choose.

    :raises PortExhaustedError: the range is strict and all taken.
    """
    if ports.first == 0:
        return 0
    with allocating() as runtime:
        held = Reservations(runtime, "ports")
        for port in range(ports.first, ports.last + 1):
            if port in skip or held.holder(str(port)) is not None or is_busy(port):
                continue
            held.take(str(port), owner, session)
            return port
    if not ports.strict:
        return 0
    raise PortExhaustedError(
        f"no free port in {ports}",
        hint="`peaks reap` frees what dead runs hold; --peaks-ports gives another range, 0 lets the system choose",
    )


def reserve_exactly(port: int, owner: ProcessIdentity, session: str) -> None:
    """Note that `session` has `port`, which the system chose."""
    with allocating() as runtime:
        Reservations(runtime, "ports").take(str(port), owner, session)


def release(port: int, session: str, runtime: Path | None = None) -> None:
    """Give a port back; nothing happens if another session holds it."""
    with allocating(runtime) as folder:
        Reservations(folder, "ports").drop(str(port), session)
