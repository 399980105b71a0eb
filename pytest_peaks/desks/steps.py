"""What an agent is to do where peaks can't: exact calls of the tools of today's ``@playwright/mcp``.

Its storage tools come with ``--caps=storage`` only, take file names within the client's roots (or the server's
working directory), and write plain files; ``browser_close`` is what blanks an ``--isolated`` server.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CAPS = "the server needs --caps=storage, and the file has to lie within the client's roots"


def _call(prefix: str, tool: str, why: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": f"{prefix}{tool}", "arguments": arguments, "why": why}


def after_create(prefix: str, url: str | None) -> list[dict[str, Any]]:
    steps = [
        _call(prefix, "browser_close", "blanks the desk: whoever sat here before may still be logged in")
    ]
    return steps + _visit(prefix, url)


def after_resume(prefix: str, state: Path | None, url: str | None) -> list[dict[str, Any]]:
    steps = [
        _call(prefix, "browser_close", "blanks the desk: whoever sat here before may still be logged in")
    ]
    if state is not None:
        steps.append(
            _call(prefix, "browser_set_storage_state", f"restores the login; {CAPS}", filename=str(state))
        )
    return steps + _visit(prefix, url)


def to_save(prefix: str, name: str, target: Path, places: Sequence[str] = ()) -> list[dict[str, Any]]:
    """
    :param places: options that name the pool, for a caller elsewhere.
    """
    return [
        _call(prefix, "browser_storage_state", f"writes the login to a file; {CAPS}", filename=str(target)),
        {
            "command": shlex.join(["peaks", "session", "save", name, "--from", str(target), *places]),
            "why": "keeps it with mode 0600, encrypted where a key is set, and removes that file",
        },
    ]


def after_close(prefix: str) -> list[dict[str, Any]]:
    return [
        _call(prefix, "browser_close", "blanks the desk for whoever comes next; going elsewhere does not")
    ]


def _visit(prefix: str, url: str | None) -> list[dict[str, Any]]:
    return [_call(prefix, "browser_navigate", "opens the page", url=url)] if url is not None else []


def as_text(steps: list[dict[str, Any]]) -> list[str]:
    """The steps as lines for a person."""
    lines = []
    for number, step in enumerate(steps, 1):
        what = step.get("command") or f"{step['tool']} {_shown(step['arguments'])}".rstrip()
        lines.append(f"  {number}. {what}  ({step['why']})")
    return lines


def _shown(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
