"""Asking sessions whether they are there, and browsers for their tabs: many at once, and without a trace.

Bare sockets and no ``http.client``, whose import takes as long as Python's own start.
"""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import sys
import time

# On loopback an answer takes a millisecond; a browser that does not answer is not waited for.
TIMEOUT = 1.0
# Nor one that goes on answering for so long; a session is asked twice.
LONGEST = 2 * TIMEOUT

# A ``struct linger``: on, and no seconds.
_LINGER = b"".join(number.to_bytes(2 if os.name == "nt" else 4, sys.byteorder) for number in (1, 0))


def leave_no_trace(connection: socket.socket) -> None:
    """End a connection without TIME_WAIT, which an idle clock would take for a client's visit."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)


def answers(port: int) -> bool:
    """Whether something takes connections there."""
    questions = Questions()
    questions.ask(port, "")
    return questions.answers()[0][0]


def tab_urls(endpoint: str) -> list[str] | None:
    """The addresses of a browser's open tabs, the one used last first; None if it does not answer.

    :param endpoint: its CDP URL on this machine.
    """
    questions = Questions()
    questions.ask(None, endpoint)
    return questions.answers()[0][1]


class Questions:
    """Asks of each port whether something takes connections there; if so, which tabs the browser has."""

    def __init__(self) -> None:
        self._asked: list[_Asked] = []
        self._selector = selectors.DefaultSelector()

    def ask(self, port: int | None, endpoint: str) -> None:
        """Begin to ask; the answer is not waited for.

        :param port: None for one that is known to take connections.
        :param endpoint: the browser's CDP URL.
        """
        asked = _Asked(port, endpoint, self._selector)
        self._asked.append(asked)
        asked.begin()

    def answers(self) -> list[tuple[bool, list[str] | None]]:
        """Wait for the answers; in the order in which was asked."""
        with self._selector as selector:
            end = time.monotonic() + LONGEST
            while selector.get_map() and time.monotonic() < end:
                answered = selector.select(TIMEOUT)
                for key, _ in answered:
                    key.data.go_on()
                if not answered:  # for as long as that nobody has said anything
                    break
            for one in self._asked:
                one.end()
        return [(one.there, one.urls) for one in self._asked]


class _Asked:
    """One session that is being asked: first whether its port answers, then its browser for the tabs."""

    def __init__(self, port: int | None, endpoint: str, selector: selectors.BaseSelector) -> None:
        self.there = port is None
        self.urls: list[str] | None = None
        self._selector = selector
        self._port = port
        self._browser = _port_in(endpoint)
        self._request = b""
        self._answer = b""
        self._socket: socket.socket | None = None

    def begin(self) -> None:
        self._connect(self._port if self._port is not None else self._browser)

    def go_on(self) -> None:
        """The connection is made, or there is something to read."""
        connection = self._socket
        assert connection is not None, "it is being waited for"
        try:
            if not self.there:
                self.there = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
                self.end()
                if self.there:
                    self._connect(self._browser)
            elif self._request:
                connection.send(self._request)  # as short as it is it goes at once
                self._request = b""
                self._wait(connection, selectors.EVENT_READ)
            else:
                self._read(connection.recv(1 << 16))
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def end(self) -> None:
        if self._socket is not None:
            if self._socket in self._selector.get_map():
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _connect(self, port: int) -> None:
        if not 0 < port <= 65535:
            return
        # Kept alive, since a browser that closes the connection itself leaves a trace of it.
        head = f"GET /json/list HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: keep-alive\r\n\r\n"
        self._request = head.encode()
        try:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # too many files are open
            return
        connection.setblocking(False)
        leave_no_trace(connection)
        if connection.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            connection.close()
            return
        self._socket = connection
        try:
            connection.getpeername()
        except OSError:
            self._wait(connection, selectors.EVENT_WRITE)
        else:  # on loopback it is mostly made by now
            self.go_on()

    def _wait(self, connection: socket.socket, event: int) -> None:
        if connection in self._selector.get_map():
            self._selector.modify(connection, event, self)
        else:
            self._selector.register(connection, event, self)

    def _read(self, data: bytes) -> None:
        self._answer += data
        head, blank, body = self._answer.partition(b"\r\n\r\n")
        length = _length_in(head)
        if data and not (blank and length is not None and len(body) >= length):
            return
        self.end()
        if length is None or len(body) >= length:
            self.urls = _urls(body[:length])


def _port_in(url: str) -> int:
    """The port that a URL names; 0 if it names none."""
    port = url.partition("://")[2].partition("/")[0].rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() else 0


def _length_in(head: bytes) -> int | None:
    """How long an answer is by its head."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value) if value.strip().isdigit() else None
    return None


def _urls(body: bytes) -> list[str] | None:
    """What a browser says of its tabs."""
    try:
        targets = json.loads(body)
        return [str(target.get("url", "")) for target in targets if target.get("type") == "page"]
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
