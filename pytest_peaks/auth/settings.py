"""What a project sets about its saved logins: ``[tool.peaks.auth.NAME]``, and the hook ``pytest_peaks_auth``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.pyproject import peaks_table

_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*")
WAYS = ("error", "wait")


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """How one saved login is dealt with.

    :ivar max_age: seconds after which it is renewed; None for as long as it lasts.
    :ivar per_slot: each slot logs in for itself, and keeps a file of its own.
    :ivar write_back: save it again after each test that passed, for servers that rotate tokens.
    :ivar accounts: what a worker does when every account is taken: ``error`` or ``wait``.
    :ivar wait: how many seconds it waits.
    :ivar overwrite: replay also into a profile that has a live login of its own.
    :ivar url: where the application is, for checks by hand.
    """

    max_age: float | None = None
    per_slot: bool = False
    write_back: bool = False
    accounts: str = "error"
    wait: float = 300.0
    overwrite: bool = False
    url: str = ""

    def with_(self, values: Mapping[str, Any], where: str) -> AuthSettings:
        """These, but for `values`.

        :raises InvalidOptionError: a key is not known or its value unusable; names it by `where`.
        """
        known = [field.name for field in fields(self)]
        changed: dict[str, Any] = {}
        for key, value in values.items():
            if key not in known:
                raise _wrong(f"{where}.{key}", f"is not known; there are {', '.join(known)}")
            if key in ("max_age", "wait"):
                changed[key] = _duration(value, f"{where}.{key}")
            elif key in ("per_slot", "write_back", "overwrite"):
                if not isinstance(value, bool):
                    raise _wrong(f"{where}.{key}", "is not true or false")
                changed[key] = value
            elif not isinstance(value, str):
                raise _wrong(f"{where}.{key}", "is not text")
            elif key == "accounts" and value not in WAYS:
                raise _wrong(f"{where}.accounts", f"is none of {', '.join(WAYS)}")
            else:
                changed[key] = value
        made = replace(self, **changed)
        if made.write_back and not made.per_slot:
            raise _wrong(
                f"{where}.write_back", "needs per_slot: what one test writes back, another would have lost"
            )
        return made


def read_auth_settings(root: Path, name: str) -> AuthSettings:
    """The settings of the saved login `name` in a project's ``pyproject.toml``.

    :raises InvalidOptionError: the file can't be read, or a value in it is unusable.
    """
    where = f"{root / 'pyproject.toml'}: tool.peaks.auth"
    table = peaks_table(root).get("auth", {})
    if not isinstance(table, dict):
        raise _wrong(where, "is not a table")
    own = table.get(name, {})
    if not isinstance(own, dict):
        raise _wrong(f"{where}.{name}", "is not a table")
    return AuthSettings().with_(own, f"{where}.{name}")


def _duration(value: object, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return float(value)
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or not float(match[1]):
        raise _wrong(where, f"is {value!r}, not a time span such as 8h, 30min or 90 (seconds)")
    return float(match[1]) * _UNITS[match[2]]


def _wrong(where: str, reason: str) -> InvalidOptionError:
    return InvalidOptionError(f"{where} {reason}", hint="mend it, or leave it out for the default")
