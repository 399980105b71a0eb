"""Closing a browser's tabs past Playwright, which can't connect while one hangs or shows a dialog."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any
from urllib.parse import urlsplit

# On loopback an answer takes a millisecond; a browser that does not answer is not waited for.
TIMEOUT = 3.0


def close_all(endpoint: str) -> list[str] | None:
    """Close all tabs of a browser on this machine, and open a blank one; gives the sites that were open.

    None if the browser does not answer. Never raises.

    :param endpoint: its CDP WebSocket URL.
    """
    found: dict[str, None] = {}
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError, TypeError):
        tabs = [target for target in _ask(endpoint, "/json/list") if target.get("type") == "page"]
        _ask(endpoint, "/json/new?about:blank", "PUT")  # a browser without a tab may end
        for tab in tabs:
            url = urlsplit(str(tab.get("url", "")))
            if url.scheme in ("http", "https") and url.netloc:
                found[f"{url.scheme}://{url.netloc}"] = None
            _ask(endpoint, f"/json/close/{tab['id']}")
        return list(found)
    return None


def _ask(endpoint: str, path: str, method: str = "GET") -> Any:
    place = urlsplit(endpoint)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=TIMEOUT)
    with contextlib.closing(connection):
        connection.request(method, path)
        text = connection.getresponse().read()
    return json.loads(text) if text.startswith((b"[", b"{")) else None
