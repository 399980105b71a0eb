"""What is on disk of a session: schema 1.

The six fields of the first design (``terminalId, port, browser, userDataDir, startedAt, pid``)
keep their names and formats; the rest says whose the session is and how to end it safely.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args

from pytest_peaks.session.identity import ProcessIdentity

SCHEMA = 1
# Linux's limits of a path and of one name in it, in bytes; other systems allow no more.
LONGEST_PATH = 4096
LONGEST_NAME = 255
T = TypeVar("T")
Status = Literal["starting", "ready", "ending"]
Kind = Literal["worker", "hosted", "cli"]


class NewerSchemaError(ValueError):
    """The record was written by a later pytest-peaks and is left as it is."""


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
        if not isinstance(data, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004 - one error for bad data
        schema = data.get("schema")
        if type(schema) is int and schema > SCHEMA:
            raise NewerSchemaError(f"schema {schema} is newer than {SCHEMA}")
        if schema != SCHEMA or type(schema) is not int:
            raise ValueError(f"schema is {schema!r}, not {SCHEMA}")
        identities = _typed(data, "identities", dict)
        slot, pid = data.get("slot"), data.get("pid")
        for name, number in (("slot", slot), ("pid", pid)):
            if number is not None and (type(number) is not int or number < 0):
                raise ValueError(f"{name} is {number!r}")
        status = _typed(data, "status", str)
        if status not in get_args(Status):
            raise ValueError(f"status is {status!r}")
        kind = _typed(data, "kind", str)
        if kind not in get_args(Kind):
            raise ValueError(f"kind is {kind!r}")
        port = _typed(data, "port", int)
        if not 0 <= port <= 65535:
            raise ValueError(f"port is {port}")
        endpoints = _typed(data, "endpoints", dict)
        if not all(isinstance(text, str) for pair in endpoints.items() for text in pair):
            raise ValueError("endpoints are not text")
        return cls(
            session_id=_typed(data, "terminalId", str),
            port=port,
            browser=_typed(data, "browser", str),
            user_data_dir=_path(data, "userDataDir"),
            started_at=_typed(data, "startedAt", str),
            pid=pid,
            owner=ProcessIdentity.from_json(data.get("owner")),
            processes={part: ProcessIdentity.from_json(identity) for part, identity in identities.items()},
            status=cast(Status, status),
            ephemeral=_typed(data, "ephemeral", bool),
            temp_dir=_path(data, "tempDir"),
            run_uid=_typed(data, "runUid", str),
            slot=slot,
            worker=_typed(data, "worker", str),
            endpoints=endpoints,
            kind=cast(Kind, kind),
            terminal=_typed(data, "terminal", str),
            launch=_typed(data, "launch", str),
        )


def _typed(data: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = data.get(key)
    if type(value) is not kind:
        raise ValueError(f"{key} is {type(value).__name__}, not {kind.__name__}")
    return value


def _path(data: Mapping[str, Any], key: str) -> str:
    """An absolute path or nothing. One that no system call takes would fail every sweep that meets it."""
    text = _typed(data, key, str)
    path = Path(text)
    if text and (not path.is_absolute() or ".." in path.parts or "\0" in text):
        raise ValueError(f"{key} is not a plain absolute path")
    # A lone surrogate is a UnicodeEncodeError here, which is a ValueError.
    if len(os.fsencode(text)) > LONGEST_PATH or any(
        len(os.fsencode(part)) > LONGEST_NAME for part in path.parts
    ):
        raise ValueError(f"{key} is too long for a path")
    return text
