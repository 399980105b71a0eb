"""JSON-RPC messages of MCP, as far as who passes them on has to read them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
FAILED = -32000


def parse(data: bytes) -> Any:
    """A message, or a batch of them.

    :raises ValueError: it is no JSON.
    """
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def error(number: Any, code: int, text: str) -> str:
    """The answer to request `number` that says what went wrong."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": text}})


def requests(message: Any) -> set[Any]:
    """The ids of the requests in a message."""
    return {part["id"] for part in _parts(message) if "method" in part and _has_id(part)}


def answers(message: Any) -> set[Any]:
    """The ids of the requests that a message answers."""
    return {part["id"] for part in _parts(message) if "method" not in part and _has_id(part)}


def cancelled(message: Any) -> Any:
    """The id of the request that a ``notifications/cancelled`` is about; None if it is about none."""
    params = message.get("params")
    number = params.get("requestId") if isinstance(params, dict) else None
    return number if isinstance(number, int | str) else None


def read(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    """The messages of an HTTP answer as they come, each as one line of text and as what it says.

    :raises OSError: the connection broke; so does :class:`http.client.HTTPException`.
    """
    streamed = (answer.getheader("content-type") or "").startswith("text/event-stream")
    for data in _events(answer) if streamed else (answer.read(),):
        try:
            message = parse(data)
        except ValueError:
            continue
        broken = b"\n" in data or b"\r" in data
        yield json.dumps(message) if broken else data.decode(), message


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    data: list[bytes] = []
    while line := answer.readline():
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            yield b"\n".join(data)
            data = []


def _parts(message: Any) -> list[dict[str, Any]]:
    return [part for part in (message if isinstance(message, list) else [message]) if isinstance(part, dict)]


def _has_id(part: dict[str, Any]) -> bool:
    return isinstance(part.get("id"), int | str)
