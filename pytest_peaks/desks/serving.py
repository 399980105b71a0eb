"""A desk as an MCP server over stdio: registered once, whatever becomes of the desk meanwhile."""

from __future__ import annotations

from pytest_peaks.desks import kinds
from pytest_peaks.desks.browsing import Browsing
from pytest_peaks.desks.errors import DeskFailedError
from pytest_peaks.desks.settings import DeskSettings, PoolSettings, read_settings
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session.paths import ProjectDirs


def serve(dirs: ProjectDirs, name: str) -> int:
    """Serve a client on a desk until its stdin ends; gives the exit code.

    :raises InvalidOptionError: there is no such desk, or none that peaks can reach.
    """
    from pytest_peaks.hosting import bridge

    pool = read_settings(root=dirs.root)
    settings = pool.desk(name)
    if settings is None:
        raise InvalidOptionError(
            f"there is no desk {name[:60]!r}",
            hint=f"the pool has {', '.join(desk.name for desk in pool.desks)}",
        )
    if settings.kind == "external" and not settings.mcp_url:
        raise InvalidOptionError(
            f"{name} is an MCP server of yours, of which peaks knows no address",
            hint=f'give its "mcp_url" in {pool.config}, or register it with your client itself',
        )
    if settings.kind == "endpoint" and not settings.mcp_url:
        return _on_endpoint(settings, pool)
    return bridge.serve(lambda: _url(settings, pool))


def _url(settings: DeskSettings, pool: PoolSettings) -> str:
    """Where a desk's MCP server is; one that is hosted here is started if it is down.

    :raises PeaksError: it does not start.
    """
    desk = kinds.make(settings, pool, Browsing())
    desk.start()
    url = desk.health().place.mcp_url or settings.mcp_url
    if not url:
        raise DeskFailedError(f"{settings.name} has ended", hint="`peaks session pool` shows its state")
    return url


def _on_endpoint(settings: DeskSettings, pool: PoolSettings) -> int:
    """Serve a browser that somebody else runs, by a server of this process's own."""
    from pytest_peaks.hosting import stdio
    from pytest_peaks.hosting.endpoint import websocket_of

    return stdio.serve_endpoint(
        pool.dirs, websocket_of(settings.endpoint, f"the endpoint of {settings.name}")
    )
