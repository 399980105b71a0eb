"""The table ``[tool.peaks]`` of a project's ``pyproject.toml``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_peaks.errors import InvalidOptionError

FILE = "pyproject.toml"
# `peaks` where it can be a key. Any call of the CLI comes here, and tomllib takes longer than all the rest.
_KEY = re.compile(rb"""(?<![-\w])["']?peaks["']?\s*[\].=]""")


def peaks_table(root: Path) -> Mapping[str, Any]:
    """The table in `root`'s file; empty if there is none.

    :raises InvalidOptionError: the file can't be read, or is not TOML.
    """
    file = root / FILE
    try:
        content = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise _wrong(str(file), f"cannot be read: {error.strerror or error}") from error
    if not _KEY.search(content):
        return {}
    import tomllib

    try:
        parsed = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _wrong(str(file), f"is not TOML: {error}") from error
    tool = parsed.get("tool", {})
    table = tool.get("peaks", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise _wrong(f"{file}: tool.peaks", "is not a table")
    return table


def _wrong(where: str, reason: str) -> InvalidOptionError:
    return InvalidOptionError(f"{where} {reason}", hint="mend it, or leave it out for the default")
