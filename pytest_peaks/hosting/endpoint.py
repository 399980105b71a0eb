"""Browsers that somebody else runs: where their debugging port is."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any
from urllib.parse import urlsplit

from pytest_peaks.errors import BrowserLostError, InvalidOptionError

# For a browser that somebody else looks after: it may be busy.
ATTACH_TIMEOUT = 10.0


def websocket_of(url: str, given: str) -> str:
    """The WebSocket URL of a browser that is here; another machine's is left to Playwright, and its proxy.

    :param given: where a user gave the URL.
    :raises InvalidOptionError: `url` names no host.
    :raises BrowserLostError: nothing answers there.
    """
    place = urlsplit(url)
    if not place.hostname:
        raise InvalidOptionError(f"{given}: {url!r} names no host", hint="such as http://127.0.0.1:9222")
    if place.hostname not in ("localhost", "127.0.0.1", "::1"):
        return url
    # Looked up here, since Playwright asks HTTP_PROXY even for what is on this machine.
    try:
        with socket.create_connection((place.hostname, place.port or 80), ATTACH_TIMEOUT):
            pass
        return url if place.scheme != "http" else str(_asked(url)["webSocketDebuggerUrl"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
        raise BrowserLostError(
            f"no browser answers at {url}: {error}",
            hint="`peaks playwright ls` shows the sessions of this project; another browser's URL is on its "
            "--remote-debugging-port",
        ) from None


def _asked(url: str) -> Any:
    """What a browser says of itself on its debugging port."""
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=ATTACH_TIMEOUT)
    try:
        connection.request("GET", "/json/version")
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
