"""One client's session with an MCP server over HTTP."""

from __future__ import annotations

import contextlib
import http.client
from dataclasses import dataclass
from urllib.parse import urlsplit

from pytest_peaks.errors import McpFailedError
from pytest_peaks.hosting import messages

CONNECT_TIMEOUT = 10.0
# A server says hello within milliseconds; this much is for a machine that is out of breath.
HELLO_TIMEOUT = 30.0
END_TIMEOUT = 3.0

_INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'


@dataclass(frozen=True, slots=True)
class Link:
    """A client's session with a server, as the server numbered it."""

    url: str
    session: str | None = None
    protocol: str | None = None

    def send(
        self, method: str, body: bytes | None = None, timeout: float | None = None
    ) -> http.client.HTTPConnection:
        """Send a request whose answer is still to be read.

        :param timeout: seconds that the answer may take; None for as long as it takes.
        :raises OSError: it did not get to the server as a whole, so that nothing was carried out.
        """
        headers = {"accept": "application/json, text/event-stream" if body else "text/event-stream"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.protocol is not None:
            headers["mcp-protocol-version"] = self.protocol
        try:
            # http.client and not urllib: a proxy in the environment is not for loopback.
            place = urlsplit(self.url)
            connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=CONNECT_TIMEOUT)
            connection.request(method, place.path, body, headers)
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"{self.url} can't be asked: {error}") from None
        connection.sock.settimeout(timeout)
        return connection

    def is_introduced(self) -> None:
        """Say that the client is ready. Never raises: whether the server took it, the next message tells."""
        self._say("POST", _INITIALIZED, HELLO_TIMEOUT)

    def end(self) -> None:
        """Tell the server that the client goes. Takes a few seconds at most and never raises."""
        self._say("DELETE", None, END_TIMEOUT)

    def _say(self, method: str, body: bytes | None, timeout: float) -> None:
        if self.session is None:
            return
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(self.send(method, body, timeout)) as connection,
        ):
            connection.getresponse().read()


def greet(url: str, hello: bytes) -> tuple[Link, list[str]]:
    """Say a client's `initialize` to a server: the link, and all that it says.

    :raises OSError: it does not answer; so does :class:`http.client.HTTPException`.
    :raises McpFailedError: it refuses.
    """
    texts = []
    with contextlib.closing(Link(url).send("POST", hello, HELLO_TIMEOUT)) as connection:
        answer = connection.getresponse()
        check(answer)
        for text, message in messages.read(answer):
            texts.append(text)
            result = message.get("result") if isinstance(message, dict) else None
            if isinstance(result, dict):
                return Link(url, answer.getheader("mcp-session-id"), result.get("protocolVersion")), texts
    raise McpFailedError(
        f"the MCP server at {url} refuses the client: {' '.join(texts)[:200] or 'no answer'}"
    )


def check(answer: http.client.HTTPResponse) -> None:
    """
    :raises McpFailedError: the server refuses.
    """
    if answer.status >= http.client.BAD_REQUEST:
        text = answer.read().decode("utf-8", errors="replace").strip()[:200]
        raise McpFailedError(f"the MCP server answers {answer.status}: {text or answer.reason}")
