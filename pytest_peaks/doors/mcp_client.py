"""A small synchronous MCP client over streamable HTTP, for tests."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pytest_peaks import __version__
from pytest_peaks.doors.bundled import client_config
from pytest_peaks.errors import McpFailedError, McpToolError

# A tool call has limits of its own in the server (5 s an action, 60 s a navigation).
CALL_TIMEOUT = 120.0
CLOSE_TIMEOUT = 3.0
PROTOCOL = "2025-06-18"
# Between two looks at whether an answer has come, while something else is to go on meanwhile.
BEAT = 0.005
_INTERRUPTED = "is interrupted by another navigation"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the server offers; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool answered.

    :ivar text: all text parts, joined by line breaks.
    :ivar images: the image parts, decoded.
    :ivar structured: the structured content, None if there is none.
    """

    text: str
    images: tuple[bytes, ...] = field(default=(), repr=False)
    structured: Mapping[str, Any] | None = None

    def section(self, title: str) -> str:
        """The part of `text` under ``### title``; empty if there is none."""
        match = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^### |\Z)", self.text, re.MULTILINE | re.DOTALL)
        return match[1].strip() if match else ""

    def __str__(self) -> str:
        return self.text


class McpClient:
    """A client over streamable HTTP, synchronous, without an event loop of its own.

    So it works while Playwright's sync API is in use. It posts and never opens the server's stream,
    so that it is not pinged, and can sit in a debugger for as long as it likes.

    :param url: the server's, as it printed it.
    :param timeout: seconds that one answer may take.
    :param after_call: called after every tool call.
    :param meanwhile: called again and again while an answer is waited for.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float = CALL_TIMEOUT,
        after_call: Callable[[], None] | None = None,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.url = url
        self._after_call = after_call
        self._meanwhile = meanwhile
        self._timeout = timeout
        self._session: str | None = None
        self._unanswered = False
        self._ids = itertools.count(1)
        self._tools: tuple[Tool, ...] | None = None

    def __repr__(self) -> str:
        return f"<McpClient {self.url}>"

    def __enter__(self) -> McpClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def config(self) -> dict[str, Any]:
        """What an agent's harness is configured with: ``{"mcpServers": {"playwright": {"url": …}}}``."""
        return client_config(self.url)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What the server offers."""
        if self._tools is None:
            listed = self._request("tools/list", {}).get("tools", [])
            self._tools = tuple(
                Tool(tool["name"], tool.get("description", ""), tool.get("inputSchema", {}))
                for tool in listed
            )
        return self._tools

    def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool.

        :raises McpToolError: the tool says that it failed; with its text.
        :raises McpFailedError: the server is gone, or refuses the request.
        """
        answer = self._request("tools/call", {"name": tool, "arguments": arguments})
        if answer.get("isError") and _INTERRUPTED in str(answer.get("content")):
            # The server learned of a navigation of the test's while it made its own, which did not take place.
            answer = self._request("tools/call", {"name": tool, "arguments": arguments})
        if self._after_call is not None:
            self._after_call()
        parts = answer.get("content") or []
        text = "\n".join(part.get("text", "") for part in parts if part.get("type") == "text")
        if answer.get("isError"):
            raise McpToolError(f"{tool}: {text.removeprefix('### Error').strip()}")
        images = tuple(base64.b64decode(part["data"]) for part in parts if part.get("type") == "image")
        return ToolResult(text, images, answer.get("structuredContent"))

    def snapshot(self) -> str:
        """The page's accessibility tree with refs, as YAML."""
        try:
            return _fenced(self.call("browser_snapshot").text)
        except McpToolError as error:
            # The server has a connection of its own and may learn of a navigation of the test's a moment late.
            if "context was destroyed" not in str(error):
                raise
        return _fenced(self.call("browser_snapshot").text)

    def close(self) -> bool:
        """End the client's session; the browser stays. Idempotent, never raises. False if the server is silent."""
        session, self._session = self._session, None
        if session is None:
            return not self._unanswered
        try:
            self._http("DELETE", None, {"mcp-session-id": session}, CLOSE_TIMEOUT)
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._session is None and method != "initialize":
            self._initialize()
        number = next(self._ids)
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        message = self._message(number, self._post(body))
        if "error" in message:
            error = message["error"]
            raise McpFailedError(f"{self.url} refuses {method}: {error.get('message', error)}")
        result: dict[str, Any] = message.get("result", {})
        return result

    def _initialize(self) -> None:
        self._request(
            "initialize",
            {
                "protocolVersion": PROTOCOL,
                "capabilities": {},
                "clientInfo": {"name": "pytest-peaks", "version": __version__},
            },
        )
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _post(self, body: Mapping[str, Any]) -> str:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        try:
            status, answered, text = self._patiently("POST", json.dumps(body), headers)
        except (OSError, http.client.HTTPException) as error:
            self._unanswered = True
            raise McpFailedError(
                f"the MCP server at {self.url} does not answer: {error}", hint="its session may have ended"
            ) from None
        if status >= 400:
            self._session = None
            raise McpFailedError(f"the MCP server at {self.url} answers {status}: {text.strip()[:200]}")
        self._session = answered.get("mcp-session-id") or self._session
        return text

    def _patiently(
        self, method: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], str]:
        """As :meth:`_http`, which blocks; what is to go on meanwhile goes on."""
        if self._meanwhile is None:
            return self._http(method, body, headers)
        outcome: list[tuple[int, dict[str, str], str] | BaseException] = []

        def ask() -> None:
            try:
                outcome.append(self._http(method, body, headers))
            except BaseException as error:
                outcome.append(error)

        asking = threading.Thread(target=ask, name="peaks-mcp", daemon=True)
        asking.start()
        asking.join(BEAT)
        while asking.is_alive():
            self._meanwhile()
            asking.join(BEAT)
        if isinstance(outcome[0], BaseException):
            raise outcome[0]
        return outcome[0]

    def _http(
        self, method: str, body: str | None, headers: Mapping[str, str], timeout: float | None = None
    ) -> tuple[int, dict[str, str], str]:
        # http.client and not urllib: a proxy in the environment is not for loopback.
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(
            place.hostname or "", place.port, timeout=timeout or self._timeout
        )
        try:
            connection.request(method, place.path, body.encode() if body else None, dict(headers))
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", errors="replace")
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, text
        finally:
            connection.close()

    def _message(self, number: int, text: str) -> dict[str, Any]:
        """The answer to request `number` in a plain JSON body or an event stream."""
        for line in text.splitlines() if text.lstrip().startswith(("event:", "data:", "id:")) else [text]:
            data = line.removeprefix("data:").strip()
            if not data.startswith("{"):
                continue
            with contextlib.suppress(ValueError):
                message: dict[str, Any] = json.loads(data)
                if message.get("id") == number:
                    return message
        raise McpFailedError(
            f"the MCP server at {self.url} gave no answer that can be read: {text.strip()[:200] or 'nothing'}"
        )


def _fenced(text: str) -> str:
    match = re.search(r"```yaml\n(.*?)\n?```", text, re.DOTALL)
    return match[1] if match else text
