"""``peaks playwright ls``: as fields of an object, as lines in a pipe, as a table on a terminal.

Without click where that is the same: see :mod:`pytest_peaks.session.light`.
"""

from __future__ import annotations

import os
import sys

from pytest_peaks.cli.plain import counted, object_text
from pytest_peaks.hosting import looking
from pytest_peaks.session import light

TYPE_CHECKING = False  # typing's own, which a type checker knows by its name
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pytest_peaks.session.light import Fields

# Wider than any row, so that none is cut or folded: a URL in it is to be copied.
ENDLESS = 100_000


def without_click(*, as_json: bool) -> int | None:
    """Print the list; returns the exit code. None if the other way is to do it, and then nothing is printed.

    That is so for whatever is out of the ordinary: a table on a terminal, a project that can't be written
    to, completion by a shell, any failure. What is printed is the same.
    """
    try:
        root = light.project_root(os.getcwd())  # noqa: PTH109
        base = os.path.join(root, ".peaks")  # noqa: PTH118
        if sys.stdout.isatty() or "_PEAKS_COMPLETE" in os.environ or not light.can_hold_files(base):
            return None
        message, fields, text = told([(root, base)], everywhere=False)
        answer = object_text(ok=True, action="ls", message=message, **fields) if as_json else text
        if "\x1b" in answer:  # which click leaves out
            return None
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()
    except KeyboardInterrupt:
        from pytest_peaks.cli import output

        return output.interrupted_without_click("ls", as_json=as_json)
    except Exception:
        return None  # it will fail there as well, which tells of it
    return 0


def told(places: Sequence[tuple[str, str]], *, everywhere: bool) -> tuple[str, dict[str, Any], str]:
    """A sentence, the fields of the object, and what a person reads.

    :param places: the root of each project, and its ``.peaks``.
    """
    rows, bad = looking.rows(places)
    message = counted(len(rows), "playwright session") if rows else "no playwright sessions running"
    text = listing(rows, everywhere=everywhere) if rows else message
    return message, {"sessions": rows, "problems": bad}, "\n".join([text, *bad_files(bad)])


def bad_files(problems: Sequence[str]) -> list[str]:
    return [f"not a record: {problem}" for problem in problems]


def listing(rows: Sequence[Fields], *, everywhere: bool) -> str:
    """A table on a terminal, where rich is installed; else a line a session.

    :param everywhere: with the project of each.
    """
    if sys.stdout.isatty():
        try:
            return _table(rows, everywhere=everywhere)
        except ImportError:
            pass
    lines = []
    for session in rows:
        fields = {
            "port": session["port"],
            "browser": session["browser"],
            "terminal": session["terminalId"],
            "pid": _known(session["pid"]),
            "started": session["startedAt"],
            "state": session["state"],
            "age": _age(session["ageSeconds"]),
            "tabs": _known(session["tabs"]),
            "mcp": _known(session["mcpUrl"]),
        }
        if everywhere:
            fields["project"] = session["project"]
        lines.append("  ".join(f"{key}={value}" for key, value in fields.items()))
    return "\n".join(lines)


def _table(rows: Sequence[Fields], *, everywhere: bool) -> str:
    from rich.console import Console
    from rich.table import Table

    columns = ["port", "browser", "terminal", "pid", "state", "age", "tabs", "MCP URL"]
    table = Table(*columns, *(["project"] if everywhere else []))
    for session in rows:
        cells = [session["port"], session["browser"], session["terminalId"], _known(session["pid"])]
        cells += [session["state"], _age(session["ageSeconds"])]
        cells += [_known(session["tabs"]), _known(session["mcpUrl"])]
        table.add_row(*map(str, [*cells, *([session["project"]] if everywhere else [])]))
    console = Console(width=ENDLESS, markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in str(captured.get()).splitlines())


def _known(value: object) -> object:
    return "?" if value is None else value


def _age(seconds: int | None) -> str:
    return "?" if seconds is None else f"{seconds}s"
