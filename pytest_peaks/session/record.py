"""What is on disk of a session: schema 1.

The six fields of the first design (``terminalId, port, browser, userDataDir, startedAt, pid``)
keep their names and formats; the rest says whose the session is and how to end it safely.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pytest_peaks.session import light
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.light import SCHEMA, NewerSchemaError

# The same words as in `light`.
Status = Literal["starting", "ready", "ending"]
Kind = Literal["worker", "hosted", "cli"]


def now_iso() -> str:
    """UTC, ISO 8601 with milliseconds and ``Z``: 2026-06-17T15:00:00.000Z."""
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"


@dataclass(frozen=True, slots=True)
class Record:
    """One session as written to ``<terminalId>.json``.

    :ivar session_id: file name without its ending; ``terminalId`` in the file.
    :ivar port: what clients connect to on 127.0.0.1: a worker's session its debugging port, a hosted
        one its MCP server's; 0 while not known, or where there is none.
    :ivar pid: the browser's process, None before it is spawned.
    :ivar owner: the process that holds the browser's pipe; while a named session starts, who starts it.
    :ivar processes: what runs in the session, by part: ``browser`` (with the pid `pid`), ``mcp``.
    :ivar kind: whose it is: a pytest worker's, a supervisor's, or playwright-cli's own daemon's.
    :ivar ephemeral: the profile was made for this session and goes with it.
    :ivar run_uid: the pytest run that it belongs to; empty outside of one.
    :ivar terminal: mark of the terminal that a hosted session belongs to; see ``Terminal.mark``.
    :ivar launch: what a hosted session was started with, so that another wish can be told from it.
    """

    session_id: str
    port: int
    browser: str
    user_data_dir: str
    started_at: str
    owner: ProcessIdentity
    pid: int | None = None
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    status: Status = "starting"
    ephemeral: bool = True
    temp_dir: str = ""
    run_uid: str = ""
    slot: int | None = None
    worker: str = ""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "worker"
    terminal: str = ""
    launch: str = ""

    @property
    def mark(self) -> str:
        """What its processes carry in their environment. A terminal's id is the same in every project."""
        if self.kind == "cli":  # its owner changes during the start; the name of its temp dir is drawn by lot
            return f"{self.session_id}/{Path(self.temp_dir).name}"
        owner = "" if self.kind == "worker" else f"/{self.owner.pid}-{self.owner.started:x}"
        return self.session_id + owner

    def with_(self, **changes: Any) -> Record:
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return {
            "terminalId": self.session_id,
            "port": self.port,
            "browser": self.browser,
            "userDataDir": self.user_data_dir,
            "startedAt": self.started_at,
            "pid": self.pid,
            "schema": SCHEMA,
            "status": self.status,
            "owner": self.owner.to_json(),
            "identities": {part: identity.to_json() for part, identity in self.processes.items()},
            "endpoints": dict(self.endpoints),
            "ephemeral": self.ephemeral,
            "tempDir": self.temp_dir,
            "runUid": self.run_uid,
            "slot": self.slot,
            "worker": self.worker,
            "kind": self.kind,
            "terminal": self.terminal,
            "launch": self.launch,
        }

    @classmethod
    def from_json(cls, data: object) -> Record:
        """Read what :meth:`to_json` wrote, checking every field.

        :raises NewerSchemaError: ``schema`` is above 1.
        :raises ValueError: anything is missing or of the wrong type; says what.
        """
        return cls.of_fields(light.checked(data))

    @classmethod
    def of_fields(cls, data: Mapping[str, Any]) -> Record:
        """From fields that are checked."""
        identities: Mapping[str, Mapping[str, Any]] = data["identities"]
        return cls(
            session_id=data["terminalId"],
            port=data["port"],
            browser=data["browser"],
            user_data_dir=data["userDataDir"],
            started_at=data["startedAt"],
            pid=data["pid"],
            owner=ProcessIdentity(**data["owner"]),
            processes={part: ProcessIdentity(**identity) for part, identity in identities.items()},
            status=data["status"],
            ephemeral=data["ephemeral"],
            temp_dir=data["tempDir"],
            run_uid=data["runUid"],
            slot=data["slot"],
            worker=data["worker"],
            endpoints=data["endpoints"],
            kind=data["kind"],
            terminal=data["terminal"],
            launch=data["launch"],
        )


__all__ = ["Kind", "NewerSchemaError", "Record", "Status", "now_iso"]
