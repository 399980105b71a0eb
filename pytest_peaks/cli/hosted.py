"""What ``peaks playwright`` says of sessions: as fields of an object, as lines in a pipe, as a table on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_peaks.cli.output import Reply

if TYPE_CHECKING:
    from pytest_peaks.hosting.sessions import Hosted
    from pytest_peaks.hosting.starting import Started
    from pytest_peaks.session.paths import ProjectDirs
    from pytest_peaks.session.registry import Problem

# Wider than any row, so that none is cut or folded: a URL in it is to be copied.
ENDLESS = 100_000


def started(dirs: ProjectDirs, done: Started, asked_port: int | None) -> Reply:
    """The answer of a start.

    :param asked_port: the port that a user gave.
    """
    from pytest_peaks.doors.mcp import client_config
    from pytest_peaks.session.registry import Registry

    record = done.record
    url = record.endpoints["mcp"]
    walked = asked_port not in (None, record.port)
    what = "is running" if done.reused else "started"
    line = f"playwright MCP {what} on port {record.port} (browser={record.browser}, terminal={record.session_id})"
    config = client_config(url)
    lines = [line]
    if walked:
        lines.append(f"port {asked_port} is taken; {record.port} is the next free one")
    lines += [f"cleared away a dead session on port {hosted.record.port}" for hosted in done.cleared]
    lines += bad_files(done.problems)
    lines += [f"MCP URL: {url}", "for a client's configuration:", json.dumps(config, indent=2)]
    fields = {
        "session": record.to_json(),
        "sessionFile": str(Registry(dirs.records).path_of(record.session_id)),
        "mcpUrl": url,
        "mcpServers": config["mcpServers"],
        "reused": done.reused,
        "walked": walked,
        "cleared": [hosted.name for hosted in done.cleared],
        "problems": [f"{problem.path}: {problem.reason}" for problem in done.problems],
    }
    return Reply(line, fields, "\n".join(lines))


def bad_files(problems: Sequence[Problem]) -> list[str]:
    return [f"not a record: {problem.path}: {problem.reason}" for problem in problems]


def row(hosted: Hosted) -> dict[str, Any]:
    """One session as `ls` tells of it."""
    return {
        **hosted.record.to_json(),
        "alive": hosted.alive,
        "state": hosted.state,
        "mcpUrl": hosted.mcp_url,
        "ageSeconds": hosted.age_seconds,
        "tabs": hosted.open_tabs() if hosted.alive else None,
        "project": str(hosted.dirs.root),
    }


def listing(rows: Sequence[dict[str, Any]], *, everywhere: bool) -> str:
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


def _table(rows: Sequence[dict[str, Any]], *, everywhere: bool) -> str:
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
