"""What ``[tool.peaks]`` of a project's ``pyproject.toml`` says about named sessions."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.pyproject import FILE, peaks_table

DEFAULT_MAX_SESSIONS = 4
DEFAULT_PREFIXES = (
    "phase1", "phase2", "phase4", "stage2", "composer", "reviewer", "probe", "cleanup", "companion", "fd",
)  # fmt: skip
DEFAULT_RESERVED = frozenset(
    ["default", "test", "session", "temp", "tmp", "x", "y", "main", "stage1", "stage3", "stage4"]
    + [f"pass{number}" for number in range(1, 6)]
)
# The name becomes part of `cli-<name>`, the name of a record, which has at most 40 characters.
LONGEST_NAME = 36
MAX_SESSIONS_ENV = "PEAKS_CLI_MAX_SESSIONS"

_PREFIX = re.compile(r"[a-z][a-z0-9]*")


@dataclass(frozen=True, slots=True)
class NameRules:
    """What a session's name must be.

    :ivar prefixes: what may stand before the first dash.
    :ivar reserved: names that nobody may use.
    :ivar min_length: fewest characters of a name.
    :ivar max_length: most characters of a name.
    """

    prefixes: tuple[str, ...]
    reserved: frozenset[str]
    min_length: int = 6
    max_length: int = 28


@dataclass(frozen=True, slots=True)
class CliSettings:
    """What a project sets about named sessions.

    :ivar max_sessions: how many of them may be open at once.
    :ivar names: the rules for their names.
    """

    max_sessions: int
    names: NameRules


def read_settings(root: Path) -> CliSettings:
    """The settings of the project `root`; ``PEAKS_CLI_MAX_SESSIONS`` wins over the file.

    :raises InvalidOptionError: the file can't be read, or a value in it is unusable.
    """
    table = peaks_table(root)
    max_sessions = DEFAULT_MAX_SESSIONS
    if "cli_max_sessions" in table:
        max_sessions = _count(table["cli_max_sessions"], f"{root / FILE}: tool.peaks.cli_max_sessions")
    given = os.environ.get(MAX_SESSIONS_ENV)
    if given:
        max_sessions = _count(
            int(given) if given.isdecimal() and len(given) < 10 else given, MAX_SESSIONS_ENV
        )
    return CliSettings(max_sessions, _rules(table.get("names", {}), f"{root / FILE}: tool.peaks.names"))


def _rules(table: object, where: str) -> NameRules:
    if not isinstance(table, dict):
        raise _wrong(where, "is not a table")
    known = ("prefixes", "reserved", "min_length", "max_length")
    for key in table:
        if key not in known:
            raise _wrong(f"{where}.{key}", f"is not known; there are {', '.join(known)}")
    prefixes: tuple[str, ...] = DEFAULT_PREFIXES
    if "prefixes" in table:
        prefixes = tuple(_texts(table["prefixes"], f"{where}.prefixes"))
        if not prefixes:
            raise _wrong(f"{where}.prefixes", "is empty, so that no name would be allowed")
        for prefix in prefixes:
            if not _PREFIX.fullmatch(prefix):
                raise _wrong(f"{where}.prefixes", f"{prefix!r} is not a-z followed by a-z and 0-9")
    reserved = DEFAULT_RESERVED
    if "reserved" in table:
        reserved = frozenset(_texts(table["reserved"], f"{where}.reserved"))
    min_length = _count(table.get("min_length", 6), f"{where}.min_length")
    max_length = _count(table.get("max_length", 28), f"{where}.max_length")
    if max_length > LONGEST_NAME:
        raise _wrong(f"{where}.max_length", f"is {max_length}; at most {LONGEST_NAME} fit into a file's name")
    if max_length < min_length:
        raise _wrong(f"{where}.max_length", f"is {max_length}, which is less than min_length = {min_length}")
    return NameRules(prefixes, reserved, min_length, max_length)


def _count(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(where, f"is {value!r}, not a whole number from 1")
    return value


def _texts(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _wrong(where, "is not a list of strings")
    return value


def _wrong(where: str, reason: str) -> InvalidOptionError:
    return InvalidOptionError(f"{where} {reason}", hint="mend it, or leave it out for the default")
