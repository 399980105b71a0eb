"""A JSON object of the pool's configuration, read and checked key by key; what is wrong is named with its place."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_peaks.desks.errors import BadConfigError, BadJsonError, SchemaTooNewError

VERSION = 1
LONGEST = 10.0**9  # seconds
LARGEST_CONFIG = 1024 * 1024
TOP_KEYS = ("version", "desks", "idle_timeout_seconds", "state_dir", "max_uses", "max_errors")


@dataclass(frozen=True, slots=True)
class Table:
    """A JSON object of the configuration, with its place for messages."""

    path: Path
    values: Mapping[str, Any]
    exists: bool
    where: str = ""

    def wrong(
        self, key: str, reason: str, hint: str = "mend it, or leave it out for the default"
    ) -> BadConfigError:
        return BadConfigError(f"{self.path}: {self.where}{key} {reason}", hint=hint)

    def check_keys(self, known: tuple[str, ...]) -> None:
        for key in self.values:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
                raise self.wrong(key, "is unknown", hint)

    def text(self, key: str, default: str = "") -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str) or "\0" in value or (key in self.values and not value.strip()):
            raise self.wrong(key, f"is {shown(value)}, not a text")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"is {shown(value)}, not true or false")
        return value

    def seconds(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST
        if not usable:
            raise self.wrong(key, f"is {shown(value)}, not a number of seconds above 0")
        return float(value)

    def count(self, key: str, default: int) -> int:
        value = self.values.get(key, default)
        if type(value) is not int or value < 1:
            raise self.wrong(key, f"is {shown(value)}, not a whole number above 0")
        return value


def load(path: Path, *, needed: bool) -> tuple[Mapping[str, Any], bool]:
    try:
        if path.stat().st_size > LARGEST_CONFIG or not path.is_file():
            raise BadJsonError(f"{path} is no configuration: not a regular file of a usable size")
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        if needed:
            raise BadConfigError(
                f"there is no pool configuration {path}", hint="correct --pool-config"
            ) from None
        return {}, False
    except OSError as error:
        raise BadJsonError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise BadJsonError(f"{path} is no JSON: {error}", hint="mend it; peaks leaves it as it is") from None
    if not isinstance(data, dict):
        raise BadJsonError(
            f"{path} is no JSON object", hint='such as {"version": 1, "desks": ["desk-1", "desk-2"]}'
        )
    table = Table(path, data, exists=True)
    version = data.get("version", VERSION)
    if type(version) is not int or version < 1:
        raise table.wrong("version", f"is {shown(version)}, not {VERSION}")
    if version > VERSION:
        raise SchemaTooNewError(
            f"{path}: version {version} is newer than {VERSION}", hint="upgrade pytest-peaks"
        )
    table.check_keys(TOP_KEYS)
    return data, True


def shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
