"""Whether a client can have a desk's tools: is something listening, and has anybody registered it."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

PROBE_TIMEOUT = 1.0
LARGEST = 32 * 1024 * 1024
DEPTH = 4
# Where common clients keep their MCP servers, in the project and in the home folder.
IN_PROJECT = (".mcp.json", ".vscode/mcp.json", ".cursor/mcp.json", ".gemini/settings.json")
IN_HOME = (".claude.json", ".cursor/mcp.json", ".gemini/settings.json")


def listens(url: str) -> bool:
    """Whether something takes connections at a URL's host and port."""
    place = urlsplit(url)
    with contextlib.suppress(OSError, ValueError):
        port = place.port or (443 if place.scheme == "https" else 80)
        with socket.create_connection((place.hostname or "", port), PROBE_TIMEOUT):
            return True
    return False


def registered(root: Path, name: str, home: Path | None = None) -> list[Path]:
    """The clients' configurations in which a server of this name stands. Nothing else of them is used."""
    found = []
    with contextlib.suppress(RuntimeError):  # no home folder
        home = home or Path.home()
    places = [root / part for part in IN_PROJECT]
    places += [home / part for part in IN_HOME] if home is not None else []
    for path in places:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            if path.stat().st_size <= LARGEST:
                data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
                if any(name in servers for servers in _servers(data, DEPTH)):
                    found.append(path)
    return found


def _servers(data: object, depth: int) -> Iterator[Mapping[str, Any]]:
    if not isinstance(data, dict) or depth == 0:
        return
    for key, value in data.items():
        if key in ("mcpServers", "servers") and isinstance(value, dict):
            yield value
        yield from _servers(value, depth - 1)
