"""How long nobody has used a hosted session, and who comes to its browser without asking its server."""

from __future__ import annotations

import os
import time
from typing import Any

from pytest_peaks.hosting import use
from pytest_peaks.session import processes
from pytest_peaks.session.live import LiveSession

# A connection that ended is listed for a minute, so that none is missed.
LOOK_EVERY = 5.0


class IdleClock:
    """How long nobody has used a hosted session: no client connected to its ports, none that came and went.

    Neither the server nor Chromium tells of its last use, but the system lists connections, those
    that ended within the last minute included.
    """

    def __init__(self, session: LiveSession, limit: float) -> None:
        self._limit = limit
        # The server's own connection to the browser is no use, and lasts until its clients say goodbye.
        self._own = _own_processes(session)
        self._known: dict[int, bool] = {}
        self._ports = {session.record.port, _debugging_port(session) or session.record.port}
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


class DirectUse:
    """Notes as use of a hosted session what is connected to its browser without being a part of the session.

    The session's MCP servers are told by their mark. What can't be seen to be one counts, a connection
    that came and went between two looks for instance.
    """

    def __init__(self, session: LiveSession) -> None:
        self._record = session.record
        self._port = _debugging_port(session)
        self._parts = _own_processes(session)
        # Of connections there are: those of the session itself, and others that have ended.
        self._own: set[Any] = set()
        self._ended: set[Any] = set()
        self._next = 0.0
        self._look()  # the start's own calls are no use

    def look(self) -> None:
        """Look, if it is time to. Never raises."""
        if time.monotonic() >= self._next and self._look():
            use.note(self._record)

    def _look(self) -> bool:
        """Whether somebody is connected, or was since the last look."""
        import psutil

        self._next = time.monotonic() + LOOK_EVERY
        if self._port is None:
            return False
        try:
            connections = psutil.net_connections(kind="tcp")
        except (psutil.Error, OSError):
            return False
        # By their client's address: whether one is established, and whose it is. Each is listed from both
        # ends, as long as they are there.
        established: dict[Any, bool] = {}
        owners: dict[Any, int | None] = {}
        for connection in connections:
            if not connection.laddr or not connection.raddr:
                continue
            if connection.raddr.port == self._port:
                client = connection.laddr
                owners[client] = connection.pid
            elif connection.laddr.port == self._port:
                client = connection.raddr
            else:
                continue
            open_here = connection.status == psutil.CONN_ESTABLISHED
            established[client] = established.get(client, False) or open_here
        self._own = {
            client for client in established if client in self._own or self._is_own(owners.get(client))
        }
        others = established.keys() - self._own
        used = any(established[client] or client not in self._ended for client in others)
        self._ended = {client for client in others if not established[client]}
        return used

    def _is_own(self, pid: int | None) -> bool:
        import psutil

        if pid is None or pid in self._parts:
            return pid is not None
        try:
            return psutil.Process(pid).environ().get(processes.MARK) == self._record.mark
        except (psutil.Error, OSError):
            return False


def _own_processes(session: LiveSession) -> set[int]:
    return {os.getpid(), *(part.pid for part in session.record.processes.values())}


def _debugging_port(session: LiveSession) -> int | None:
    """The browser's debugging port on this machine; None if it has none."""
    port = (session.endpoint or "").rpartition("127.0.0.1:")[2].partition("/")[0]
    return int(port) if port.isdecimal() else None
