"""What a supervisor is asked to host, as it goes to its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.ports import PortRange
from pytest_peaks.session.spec import BrowserName, BrowserSpec, Hosting, McpOptions


@dataclass(frozen=True, slots=True)
class Order:
    """What a supervisor is asked to host.

    :ivar idle_timeout: seconds without a client after which the session ends; 0 for never.
    :ivar until: a process with which the session ends, and with all others for
        whom it is used meanwhile (:mod:`~pytest_peaks.hosting.lasting`); None for one that stays.
    """

    dirs: ProjectDirs
    spec: BrowserSpec
    hosting: Hosting
    mcp: McpOptions
    idle_timeout: float = 0.0
    until: ProcessIdentity | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "root": str(self.dirs.root),
            "base": str(self.dirs.base),
            "browser": str(self.spec.browser),
            "executable": str(self.spec.executable or ""),
            "headed": self.spec.headed,
            "userDataDir": str(self.spec.user_data_dir or ""),
            "name": self.hosting.base,
            "withPort": self.hosting.with_port,
            "ports": [self.hosting.ports.first, self.hosting.ports.last, self.hosting.ports.strict],
            "terminal": self.hosting.terminal,
            "launch": self.hosting.launch,
            "caps": list(self.mcp.caps),
            "args": list(self.mcp.args),
            "settle": self.mcp.settle,
            "command": self.mcp.command,
            "idleTimeout": self.idle_timeout,
            "until": self.until.to_json() if self.until else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Order:
        first, last, strict = data["ports"]
        return cls(
            ProjectDirs(Path(data["root"]), Path(data["base"])),
            BrowserSpec(
                browser=BrowserName(data["browser"]),
                executable=Path(data["executable"]) if data["executable"] else None,
                headed=data["headed"],
                user_data_dir=Path(data["userDataDir"]) if data["userDataDir"] else None,
                persistent=True,
            ),
            Hosting(
                data["name"],
                data["withPort"],
                PortRange(first, last, strict),
                data["terminal"],
                data["launch"],
            ),
            McpOptions(tuple(data["caps"]), tuple(data["args"]), data["settle"], data["command"]),
            data["idleTimeout"],
            ProcessIdentity.from_json(data["until"]) if data["until"] else None,
        )
