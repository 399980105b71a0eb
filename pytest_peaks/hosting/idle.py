"""How long nobody has used a hosted session."""

from __future__ import annotations

import os
import time
from typing import Any

from pytest_peaks.session.live import LiveSession


class IdleClock:
    """How long nobody has used a hosted session: no client connected to its ports, none that came and went.

    Neither the server nor Chromium tells of its last use, but the system lists connections, those
    that ended within the last minute included.
    """

    def __init__(self, session: LiveSession, limit: float) -> None:
        self._limit = limit
        # The server's own connection to the browser is no use, and lasts until its clients say goodbye.
        self._own = {os.getpid(), *(part.pid for part in session.record.processes.values())}
        self._known: dict[int, bool] = {}
        cdp = (session.endpoint or "").rpartition("127.0.0.1:")[2].partition("/")[0]
        self._ports = {session.record.port, int(cdp) if cdp.isdecimal() else session.record.port}
        self._seen: set[tuple[Any, Any]] = set()
        self._since = time.monotonic()
        if limit > 0:
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
            return True  # unknown; better a session too long than one lost under its user
        present: set[tuple[Any, Any]] = set()
        used = False
        for connection in connections:
            ports = {end.port for end in (connection.laddr, connection.raddr) if end}
            if not connection.raddr or not ports & self._ports or self._is_own(connection.pid):
                continue
            used = used or connection.status == psutil.CONN_ESTABLISHED
            present.add((connection.laddr, connection.raddr))
        used = used or bool(present - self._seen)
        self._seen = present
        return used

    def _is_own(self, pid: int | None) -> bool:
        """Whether an end of a connection is the session's. Another command's server may be a child of it."""
        import psutil

        if pid is None:
            return False
        if pid not in self._known:
            try:
                above = [parent.pid for parent in psutil.Process(pid).parents()]
            except psutil.Error:
                above = []
            self._known[pid] = not self._own.isdisjoint([pid, *above])
        return self._known[pid]
