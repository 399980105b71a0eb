"""An MCP server over stdio that passes everything on to one over HTTP, and outlives it.

Agents register their MCP servers once, when they start. Behind this one a hosted session may end and
another may begin: the bridge then introduces the client anew, with the client's own words, and sends
again what certainly was not carried out.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_peaks.errors import McpFailedError, PeaksError
from pytest_peaks.hosting import messages
from pytest_peaks.hosting.link import HELLO_TIMEOUT, Link, check, greet
from pytest_peaks.hosting.stdio import end_on_signals

# How often a message is sent to a server that turns out to be gone, before its sender is told.
ATTEMPTS = 3

_STDOUT = 1


def serve(url_of: Callable[[], str]) -> int:
    """Serve the client on this process's stdin and stdout until its stdin ends. The exit code.

    :param url_of: says where the server is, and starts it if it is not there. Called at the client's first
        message, and whenever the server turns out to be gone. What it raises as :class:`PeaksError`
        is the answer to the client's requests; the next one asks it again.
    """
    bridge = _Bridge(url_of)
    end_on_signals()
    try:
        for line in sys.stdin.buffer:
            if line.strip():
                bridge.take(line.strip())
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        with contextlib.suppress(KeyboardInterrupt):
            bridge.end()


@dataclass(slots=True, eq=False)
class _Errand:
    """Something of the client's that is on its way.

    :ivar waiting: the ids of its requests that have no answer yet.
    :ivar given_up: the client does not want the answer any more.
    """

    body: bytes
    waiting: set[Any]
    socket: socket.socket | None = None
    given_up: bool = False

    def give_up(self, number: object) -> None:
        """Wait no longer for the answer to a request."""
        self.waiting.discard(number)
        if not self.waiting and self.socket is not None:
            self.given_up = True
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)


class _Bridge:
    def __init__(self, url_of: Callable[[], str]) -> None:
        self._url_of = url_of
        self._hello: bytes | None = None  # the client's own initialize
        self._link: Link | None = None
        self._linking = threading.Lock()
        self._writing = threading.Lock()
        self._errands: list[_Errand] = []

    def take(self, line: bytes) -> None:
        """Pass on a message of the client's; its answer comes when it comes.

        Messages are sent in the order in which they are taken. Only the answer to an `initialize`, for
        which the client has to wait itself, is waited for here.
        """
        try:
            message = messages.parse(line)
        except ValueError as error:
            self._write(messages.error(None, messages.PARSE_ERROR, f"Parse error: {error}"))
            return
        if not isinstance(message, dict | list):
            self._write(messages.error(None, messages.INVALID_REQUEST, "Invalid Request"))
            return
        errand = _Errand(line, messages.requests(message))
        method = message.get("method") if isinstance(message, dict) else None
        try:
            if method == "initialize":
                self._introduce(errand)
                return
            link, connection = self._send(errand, None)
        except PeaksError as error:
            self._refuse(errand, error)
            return
        self._errands.append(errand)
        bringing = threading.Thread(target=self._bring, args=(errand, link, connection), daemon=True)
        bringing.start()
        if method == "notifications/initialized":
            bringing.join(HELLO_TIMEOUT)
        elif method == "notifications/cancelled":
            # There will be no answer, and a server may leave the stream open for it.
            number = messages.cancelled(message)
            for other in [other for other in self._errands if number in other.waiting]:
                other.give_up(number)

    def end(self) -> None:
        """Tell the server that its client goes. Takes a few seconds at most and never raises."""
        link, self._link = self._link, None
        if link is not None:
            link.end()

    def _introduce(self, errand: _Errand) -> None:
        """Pass on the client's `initialize`, and the answer.

        :raises PeaksError: there is no server, or it refuses.
        """
        self.end()
        self._hello = errand.body
        with self._linking:
            _, texts = self._relink()
        for text in texts:
            self._write(text)

    def _send(self, errand: _Errand, broken: Link | None) -> tuple[Link, http.client.HTTPConnection]:
        """Send an errand; over a new link if there is none but a broken one.

        :raises PeaksError: there is no server.
        """
        said: OSError | None = None
        for _ in range(ATTEMPTS):
            link = self._linked(broken)
            try:
                connection = link.send("POST", errand.body)
            except OSError as error:
                broken, said = link, error
                continue
            errand.socket = connection.sock
            return link, connection
        raise McpFailedError(f"the MCP server can't be reached: {said}", hint="call again")

    def _bring(self, errand: _Errand, link: Link, connection: http.client.HTTPConnection) -> None:
        """Bring the client the answer to an errand; send it again if it was not carried out."""
        try:
            for _ in range(ATTEMPTS):
                if self._brought(errand, link, connection):
                    return
                link, connection = self._send(errand, link)
            connection.close()
            raise McpFailedError("the MCP server knows no session for long", hint="call again")
        except PeaksError as error:
            self._refuse(errand, error)
        finally:
            self._errands.remove(errand)

    def _brought(self, errand: _Errand, link: Link, connection: http.client.HTTPConnection) -> bool:
        """Pass on what a server answers. False if it did not know the client, so that nothing was carried out.

        :raises McpFailedError: it refuses, or the answer broke off.
        """
        said = "no answer came"
        with contextlib.closing(connection):
            try:
                answer = connection.getresponse()
                if answer.status == http.client.NOT_FOUND and link.session is not None:
                    return errand.given_up
                check(answer)
                for text, message in messages.read(answer):
                    errand.waiting -= messages.answers(message)
                    self._write(text)
            except (OSError, http.client.HTTPException) as error:
                said = str(error) or said
        if errand.waiting:
            raise McpFailedError(
                f"the connection to the MCP server broke: {said}",
                hint="what was asked for may have been done, or not: look before you call again",
            )
        return True

    def _linked(self, broken: Link | None) -> Link:
        """The link that there is, if it is not the broken one; or a new one, of which the client hears nothing.

        :raises PeaksError: there is no server.
        """
        with self._linking:
            link = self._link
            if link is None or link is broken:
                link, _ = self._relink()
                link.is_introduced()
            return link

    def _relink(self) -> tuple[Link, list[str]]:
        """Make a new link with the client's `initialize`; and what the server says to it.

        :raises PeaksError: there is no server.
        """
        self._link = None
        said: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                url = self._url_of()
            except OSError as error:
                raise McpFailedError(f"there is no MCP server: {error}") from None
            if self._hello is None:
                return Link(url), []  # and the server says what it thinks of that
            try:
                self._link, texts = greet(url, self._hello)
            except (OSError, http.client.HTTPException) as error:
                said = error
                continue
            threading.Thread(target=self._listen, args=(self._link,), daemon=True).start()
            return self._link, texts
        raise McpFailedError(f"the MCP server at {url} does not answer: {said}", hint="call again")

    def _listen(self, link: Link) -> None:
        """Pass on what the server says on its own account.

        Before a client's first call it asks for its roots there, and waits a minute for them.
        """
        with (
            contextlib.suppress(OSError, http.client.HTTPException),
            contextlib.closing(link.send("GET")) as connection,
        ):
            answer = connection.getresponse()
            if answer.status == http.client.OK:
                for text, _ in messages.read(answer):
                    self._write(text)

    def _refuse(self, errand: _Errand, error: PeaksError) -> None:
        text = f"{error.code}: {error.message}" + (f" — {error.hint}" if error.hint else "")
        for number in errand.waiting:
            self._write(messages.error(number, messages.FAILED, text))

    def _write(self, text: str) -> None:
        """Say one message to the client. Not through sys.stdout, whose lock a thread may hold when we end."""
        data = text.encode() + b"\n"
        with self._writing, contextlib.suppress(OSError):
            while data:
                data = data[os.write(_STDOUT, data) :]
