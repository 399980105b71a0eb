"""What a list of sessions needs of this package, without imports that take as long as Python's own start.

No dataclasses, no typing, no pathlib, no platform here: `peaks playwright ls` is called again and again by
other programs, and costs as much as what it imports. :mod:`~pytest_peaks.session.identity`,
:mod:`~pytest_peaks.session.paths`, :mod:`~pytest_peaks.session.record` and
:mod:`~pytest_peaks.session.registry` stand on this.
"""

from __future__ import annotations

import functools
import json
import os
import re
import stat
import sys

TYPE_CHECKING = False  # typing's own, which a type checker knows by its name
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any, Literal, TypeVar

    T = TypeVar("T")
    State = Literal["alive", "dead", "foreign"]
    Fields = dict[str, Any]

SCHEMA = 1
STATUSES = ("starting", "ready", "ending")
KINDS = ("worker", "hosted", "cli")
# Linux's limits of a path and of one name in it, in bytes; other systems allow no more.
LONGEST_PATH = 4096
LONGEST_NAME = 255
# A record is about 1 kB; whatever is larger than this was not written by us and is not read.
LARGEST_RECORD = 1024 * 1024
# Where the records are, below the project's `.peaks`.
RECORDS = ("_runtime", "playwright-sessions")


class NewerSchemaError(ValueError):
    """The record was written by a later pytest-peaks and is left as it is."""


# -- processes --------------------------------------------------------------------------------------


def host() -> str:
    """What ``platform.node()`` says."""
    if hasattr(os, "uname"):
        name = os.uname().nodename
        if name not in ("", "unknown"):
            return name
    import platform

    return platform.node()


@functools.cache
def boot_id() -> str:
    """Name of this boot of the machine; empty where the system has none to offer."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
            return file.read().strip()
    except OSError:
        return ""


@functools.cache
def pid_namespace() -> str:
    """Linux's pid namespace (pids mean nothing outside of it); empty elsewhere."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return ""


def start_of(pid: int) -> int | None:
    """Start time of a process that is running now, or None (gone, or a zombie).

    Unit: on Linux clock ticks since boot (immune to clock changes), elsewhere milliseconds of
    Unix time.
    """
    if pid < 1:
        return None
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
                content = file.read()
        except OSError:
            return None
        # The command name may hold spaces and brackets; fields are counted from the last ')'.
        fields = content[content.rfind(b")") + 2 :].split()
        return None if fields[0] in (b"Z", b"X") else int(fields[19])
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return int(process.create_time() * 1000)
    except psutil.Error:
        return None


def state_of(process: Fields) -> State:
    """As :meth:`ProcessIdentity.state`, of an identity as it is in a file."""
    if process["host"] != host():
        return "foreign"
    if process["boot"] != boot_id():
        return "dead"
    if process["namespace"] != pid_namespace():
        return "foreign"
    return "alive" if start_of(process["pid"]) == process["started"] else "dead"


# -- places -----------------------------------------------------------------------------------------


def project_root(start: str) -> str:
    """The git top level that holds `start`, else `start` itself; always absolute."""
    start = folder = os.path.realpath(start)
    while not os.path.exists(os.path.join(folder, ".git")):  # noqa: PTH110, PTH118
        above = os.path.dirname(folder)  # noqa: PTH120
        if above == folder:
            return start
        folder = above
    return folder


def can_hold_files(folder: str) -> bool:
    """Whether `folder` is, or could be made, a directory to write in."""
    probe = folder
    while not os.path.exists(probe):  # noqa: PTH110
        if os.path.islink(probe):  # noqa: PTH114
            return False
        probe = os.path.dirname(probe)  # noqa: PTH120
    return os.path.isdir(probe) and os.access(probe, os.W_OK | os.X_OK)  # noqa: PTH112


# -- records ----------------------------------------------------------------------------------------


def record_files(folder: str) -> Iterator[str]:
    """The files among the records that should be some, by name."""
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return
    for name in names:
        if name.endswith(".json") and not name.startswith("."):
            yield os.path.join(folder, name)  # noqa: PTH118


def load(path: str) -> Fields | tuple[str, bool] | None:  # noqa: PLR0911 - one return a kind of file
    """A record's checked fields; or why the file can't be used, and whether it is to stay; None if it is gone."""
    try:
        info = os.lstat(path)
        if not stat.S_ISREG(info.st_mode):
            return "not a regular file", True
        if info.st_size > LARGEST_RECORD:
            return f"{info.st_size} bytes are too many for a record", False
        with open(path, "rb") as file:  # noqa: PTH123
            record = checked(json.loads(file.read().decode("utf-8")))
    except FileNotFoundError:
        return None
    except NewerSchemaError as error:
        return str(error), True
    except (ValueError, RecursionError) as error:
        # json's own message quotes none of the content beyond positions.
        return str(error) or type(error).__name__, False
    except OSError as error:
        return error.strerror or str(error), True
    name: str = record["terminalId"]
    if name != os.path.splitext(os.path.basename(path))[0]:  # noqa: PTH119, PTH122
        return f"it names another session, {name[:64]!r}", False
    return record


def checked(data: object) -> Fields:
    """The fields of a record as :meth:`Record.to_json` writes them, in its order.

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
    if status not in STATUSES:
        raise ValueError(f"status is {status!r}")
    kind = _typed(data, "kind", str)
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}")
    port = _typed(data, "port", int)
    if not 0 <= port <= 65535:
        raise ValueError(f"port is {port}")
    endpoints = _typed(data, "endpoints", dict)
    if not all(isinstance(text, str) for pair in endpoints.items() for text in pair):
        raise ValueError("endpoints are not text")
    return {
        "terminalId": _typed(data, "terminalId", str),
        "port": port,
        "browser": _typed(data, "browser", str),
        "userDataDir": _path(data, "userDataDir"),
        "startedAt": _typed(data, "startedAt", str),
        "pid": pid,
        "schema": SCHEMA,
        "status": status,
        "owner": checked_identity(data.get("owner")),
        "identities": {part: checked_identity(identity) for part, identity in identities.items()},
        "endpoints": endpoints,
        "ephemeral": _typed(data, "ephemeral", bool),
        "tempDir": _path(data, "tempDir"),
        "runUid": _typed(data, "runUid", str),
        "slot": slot,
        "worker": _typed(data, "worker", str),
        "kind": kind,
        "terminal": _typed(data, "terminal", str),
        "launch": _typed(data, "launch", str),
    }


def checked_identity(data: object) -> Fields:
    """The fields of a process's identity.

    :raises ValueError: a field is missing or has the wrong type.
    """
    if not isinstance(data, dict):
        raise ValueError("an identity is not an object")  # noqa: TRY004 - one error for bad data
    pid, started = data.get("pid"), data.get("started")
    texts = {key: data.get(key) for key in ("host", "boot", "namespace")}
    # bool is an int in Python; in a record it is a mistake.
    if type(pid) is not int or type(started) is not int or pid < 1:
        raise ValueError("an identity has no usable pid and start time")
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("an identity has no usable host, boot and namespace")
    return {"pid": pid, "started": started, **texts}


def _typed(data: Mapping[str, Any], key: str, kind: type[T]) -> T:
    value = data.get(key)
    if type(value) is not kind:
        raise ValueError(f"{key} is {type(value).__name__}, not {kind.__name__}")
    return value


def _path(data: Mapping[str, Any], key: str) -> str:
    """An absolute path or nothing. One that no system call takes would fail every sweep that meets it."""
    text = _typed(data, key, str)
    parts = re.split(r"[\\/]" if os.name == "nt" else "/", text)
    absolute = os.path.isabs(text) and (os.name != "nt" or bool(os.path.splitdrive(text)[0]))  # noqa: PTH117
    if text and (not absolute or ".." in parts or "\0" in text):
        raise ValueError(f"{key} is not a plain absolute path")
    # A lone surrogate is a UnicodeEncodeError here, which is a ValueError.
    if len(os.fsencode(text)) > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts):
        raise ValueError(f"{key} is too long for a path")
    return text
