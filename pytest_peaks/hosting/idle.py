"""How long nobody has used a hosted session."""

from __future__ import annotations

import time
from typing import Any

from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.manager import LiveSession


class IdleClock:
    """How long nobody has used a hosted session: no client connected to its ports, none that came and went.

    Neither the server nor Chromium tells of its last use, but the system lists connections, those
    that ended within the last minute included.
    """

    def __init__(self, own: list[ProcessIdentity], session: LiveSession, limit: float) -> None:
        self._limit = limit
        self._own = {identity.pid for identity in own}
        cdp = (session.endpoint or "").rpartition("127.0.0.1:")[2].partition("/")[0]
        self._ports = {session.record.port, int(cdp) if cdp.isdecimal() else session.record.port}
        self._seen: set[tuple[Any, Any]] = set()
        self._since = time.monotonic()
        self._look()  # the start's own calls are no use

    def is_over(self) -> bool:
        if self._limit <= 0:
            return False
        if self._look():
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._limit

    def _look(self) -> bool:
        """Whether somebody is connected, or was since the last look."""
        import psutil

        try:
            connections = psutil.net_connections(kind="tcp")
        except (psutil.Error, OSError):
            return False
        present: set[tuple[Any, Any]] = set()
        used = False
        for connection in connections:
            ends = (connection.laddr, connection.raddr)
            ours = {end.port for end in ends if end} & self._ports
            if not ours or not connection.raddr or connection.pid in self._own:
                continue
            used = used or connection.status == psutil.CONN_ESTABLISHED
            present.add(ends)
        used = used or bool(present - self._seen)
        self._seen = present
        return used
