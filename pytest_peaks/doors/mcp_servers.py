"""The MCP servers of one owner's sessions: one for each session and each set of options, started on first use."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.session import processes
from pytest_peaks.session.live import LiveSession, child_environment
from pytest_peaks.session.spec import McpOptions

if TYPE_CHECKING:
    from pytest_peaks.doors.mcp import McpServer

# What a hosted session's own server is started with.
HOSTED = McpOptions(settle=0)


class McpServers:
    """Starts servers, and replaces those that died or fell silent."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, McpOptions], McpServer] = {}
        self._silent: set[str] = set()
        self._numbers = itertools.count(1)

    def url(self, live: LiveSession, options: McpOptions) -> str:
        """Where the server of a session listens: a hosted one's own, else one that is started here.

        :raises StartFailedError: it did not start.
        """
        hosted = live.record.endpoints.get("mcp")
        if hosted is not None and options == HOSTED and live.session_id not in self._silent:
            return hosted
        server = self._servers.get((live.session_id, options))
        if server is None or not server.is_alive():
            server = self._servers[live.session_id, options] = self._start(live, options)
        return server.url

    def replace(self, live: LiveSession, options: McpOptions) -> None:
        """Give up a server that does not answer: the next test has another one."""
        server = self._servers.pop((live.session_id, options), None)
        if server is None:
            self._silent.add(live.session_id)  # the hosted session's own: the next run replaces it
        else:
            server.spawned.pipe.close()
            processes.end_tree(server.spawned.identity, grace=0.0)

    def forget(self, live: LiveSession) -> None:
        """End all servers of a session that ends."""
        for key in [key for key in self._servers if key[0] == live.session_id]:
            server = self._servers.pop(key)
            server.spawned.pipe.close()
            processes.end_tree(server.spawned.identity, grace=0.0)

    def _start(self, live: LiveSession, options: McpOptions) -> McpServer:
        from pytest_peaks.doors import mcp

        assert live.endpoint is not None, "a session with this door has a debugging port"
        temp = Path(live.record.temp_dir)
        part = f"mcp{next(self._numbers)}"
        server = mcp.start(
            options,
            mcp.on_endpoint(live.endpoint),
            port=0,
            env=child_environment(live.session_id, temp),
            # Not beside the session's own logs: of a kept one, its own server's is there.
            log=temp / f"{part}.log",
            output_dir=temp / "output",
        )
        live.adopt(part, server.spawned)
        return server
