"""``peaks playwright start | ls | stop``: hosted sessions of a terminal, an IDE, an agent."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, PeaksGroup, Reply, counted
from pytest_peaks.session.spec import BrowserName

if TYPE_CHECKING:
    from pytest_peaks.hosting.sessions import Hosted
    from pytest_peaks.hosting.terminals import Terminal
    from pytest_peaks.session.paths import ProjectDirs
    from pytest_peaks.session.record import Record

FIRST_PORT, LAST_PORT = 8931, 8949


@click.group(cls=PeaksGroup)
def playwright() -> None:
    """A browser with an MCP server for this terminal, until it is stopped."""


@playwright.command(cls=PeaksCommand)
@click.option(
    "--port",
    metavar="N",
    help=f"Where the MCP server listens; default: {FIRST_PORT}, walking to {LAST_PORT}.",
)
@click.option("--browser", metavar="NAME", help=f"One of {', '.join(BrowserName)}; default: chromium.")
@click.option(
    "--executable", type=click.Path(path_type=Path), metavar="PATH", help="The browser's executable."
)
@click.option("--user-data-dir", metavar="PATH", help="A profile of yours within the project; kept.")
@click.option("--reuse", is_flag=True, help="Return this terminal's live session, if there is one.")
@click.option("--headed", is_flag=True, help="Show the browser's window.")
@click.option(
    "--idle-timeout",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="End the session after so long without a client; 0 for never.",
)
@click.option(
    "--caps",
    default="",
    metavar="NAMES",
    help="Capabilities of the MCP server, comma-separated: vision, pdf, devtools, storage, …",
)
@click.option(
    "--mcp-command", default="", metavar="COMMAND", help="Another MCP server, such as 'npx @playwright/mcp'."
)
@click.option("--terminal", metavar="ID", help="Another terminal's id.")
@project_option
def start(
    port: str | None,
    browser: str | None,
    executable: Path | None,
    user_data_dir: str | None,
    reuse: bool,
    headed: bool,
    idle_timeout: float,
    caps: str,
    mcp_command: str,
    terminal: str | None,
    project: Path | None,
) -> Reply:
    """Start a session; returns when a tool call has worked."""
    from pytest_peaks.config import one_of
    from pytest_peaks.doors.mcp import McpOptions
    from pytest_peaks.hosting import sessions, supervisor, terminals
    from pytest_peaks.session.manager import Hosting
    from pytest_peaks.session.spec import BrowserSpec

    dirs = dirs_of(project)
    here = terminals.current(terminal)
    wanted = _ports(port)
    name = one_of(BrowserName, browser, "a browser") if browser else BrowserName.CHROMIUM
    profile = _profile(user_data_dir, dirs)
    found, _ = sessions.look(dirs)
    cleared = sessions.clear_dead(sessions.of_terminal(found, here))
    found, _ = sessions.look(dirs)
    own = _own(found, here, reuse=reuse)
    if reuse and own:
        return _reuse(own, here, port, browser, profile, cleared)
    if own and port is None:
        _conflict(own[0])
    order = supervisor.Order(
        dirs,
        BrowserSpec(
            browser=name, executable=executable, headed=headed, user_data_dir=profile, persistent=True
        ),
        Hosting(min(sessions.session_names(found, here)), bool(own), wanted, here.mark),
        McpOptions(caps=tuple(filter(None, caps.split(","))), command=mcp_command),
        idle_timeout,
    )
    record = supervisor.start(order)
    walked = port is not None and record.port != int(port)
    return _started(dirs, record, reused=False, cleared=cleared, walked=walked)


@playwright.command(cls=PeaksCommand)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of your other projects as well.")
@project_option
def ls(everywhere: bool, project: Path | None) -> Reply:
    """List sessions, live and dead."""
    from pytest_peaks.hosting import sessions

    dirs = dirs_of(project)
    found, problems = sessions.look(dirs)
    if everywhere:
        found = sessions.look_everywhere(dirs)
    rows = [_row(hosted) for hosted in found]
    bad = [f"{problem.path}: {problem.reason}" for problem in problems]
    message = counted(len(rows), "playwright session") if rows else "no playwright sessions running"
    text = _listing(rows, everywhere=everywhere) if rows else message
    return Reply(
        message,
        {"sessions": rows, "problems": bad},
        "\n".join([text, *(f"not a record: {line}" for line in bad)]),
    )


@playwright.command(cls=PeaksCommand)
@click.option("--terminal", metavar="ID", help="Another terminal's session.")
@click.option("--port", metavar="N", help="The session on this port.")
@click.option("--all", "everything", is_flag=True, help="All sessions of the project.")
@click.option("--keep-profile", is_flag=True, help="Keep the profile for the terminal's next session.")
@project_option
def stop(
    terminal: str | None, port: str | None, everything: bool, keep_profile: bool, project: Path | None
) -> Reply:
    """End this terminal's session: browser, server, record, temp files, and its profile."""
    from pytest_peaks.errors import StartFailedError
    from pytest_peaks.hosting import sessions, terminals

    dirs = dirs_of(project)
    here = terminals.current(terminal)
    number = _port(port) if port is not None else None
    found, _ = sessions.look(dirs)
    chosen = found if everything else [sessions.choose(found, here, number)]
    freed = [sessions.stop(hosted, keep_profile=keep_profile) for hosted in chosen]
    rows = [{**hosted.record.to_json(), "portFree": free} for hosted, free in zip(chosen, freed, strict=True)]
    lines = [
        f"stopped playwright session on port {hosted.record.port} (terminal={hosted.record.session_id})"
        for hosted in chosen
    ]
    busy = [str(hosted.record.port) for hosted, free in zip(chosen, freed, strict=True) if not free]
    failure = (
        StartFailedError(
            f"something else listens on port {', '.join(busy)} now", hint="`ss -ltnp` shows what"
        )
        if busy
        else None
    )
    message = "; ".join(lines) or "no playwright sessions running"
    fields: dict[str, Any] = {"stopped": rows if everything else rows[0]}
    return Reply(message, fields, "\n".join(lines) or message, failure)


def _port(text: str) -> int:
    """A port as a user gave it.

    :raises InvalidPortError: not a number within 1024-65535.
    """
    from pytest_peaks.errors import InvalidPortError
    from pytest_peaks.session.ports import PortRange

    parsed = PortRange.parse(text)
    if parsed.first != parsed.last or not parsed.first:
        raise InvalidPortError(f"{text!r} is not a port", hint="one number within 1024-65535")
    return parsed.first


def _ports(text: str | None) -> Any:
    """The walk: from the port that was asked for to the end of the range; outside of it that port alone."""
    from pytest_peaks.session.ports import PortRange

    if text is None:
        return PortRange(FIRST_PORT, LAST_PORT)
    port = _port(text)
    return PortRange(port, LAST_PORT if FIRST_PORT <= port <= LAST_PORT else port)


def _profile(text: str | None, dirs: ProjectDirs) -> Path | None:
    """A user's own profile, within the project."""
    if text is None:
        return None
    import os

    from pytest_peaks.errors import InvalidUserDataDirError
    from pytest_peaks.session import profiles

    root = Path(os.path.realpath(dirs.root))
    path = Path(os.path.realpath(root / text))
    if root not in path.parents:
        raise InvalidUserDataDirError(
            f"{path} is not inside the project {root}", hint="name a folder of its own within it"
        )
    return profiles.check_user_data_dir(path, root)


def _own(found: list[Hosted], here: Terminal, *, reuse: bool) -> list[Hosted]:
    """The terminal's live sessions, its first one first."""
    from pytest_peaks.errors import NoSessionError
    from pytest_peaks.hosting import sessions

    own = [hosted for hosted in sessions.of_terminal(found, here) if hosted.alive or hosted.starting]
    if own or not reuse or here.certain:
        return sorted(own, key=lambda hosted: "@" in hosted.record.session_id)
    live = [hosted for hosted in found if hosted.alive]
    if len(live) > 1:
        listed = ", ".join(f"{hosted.record.session_id} on port {hosted.record.port}" for hosted in live)
        raise NoSessionError(
            f"no terminal here, and more than one session: {listed}", hint="name one with --terminal"
        )
    return live


def _conflict(hosted: Hosted) -> None:
    from pytest_peaks.errors import ConflictError

    raise ConflictError(
        f"another playwright MCP is already running on port {hosted.record.port} "
        f"(terminal {hosted.record.session_id}). Reuse it (--reuse) or pick a new port (--port <n>).",
        hint="--reuse returns it, --port N starts another one, `peaks playwright stop` ends it",
    )


def _reuse(
    own: list[Hosted],
    here: Terminal,
    port: str | None,
    browser: str | None,
    profile: Path | None,
    cleared: list[Hosted],
) -> Reply:
    from pytest_peaks.errors import ConflictError
    from pytest_peaks.hosting import sessions

    number = _port(port) if port is not None else None
    hosted = own[0] if number is None else sessions.choose(own, here, number)
    record = hosted.record
    differs = []
    if browser and browser != record.browser:
        differs.append(f"its browser is {record.browser}, not {browser}")
    if profile is not None and str(profile) != record.user_data_dir:
        differs.append(f"its profile is {record.user_data_dir}, not {profile}")
    if hosted.starting:
        differs.append("it is still starting")
    if differs:
        raise ConflictError(
            f"the session on port {record.port} can't be reused: {'; '.join(differs)}",
            hint="`peaks playwright stop` ends it, --port N starts another one",
        )
    return _started(hosted.dirs, record, reused=True, cleared=cleared, walked=False)


def _started(
    dirs: ProjectDirs, record: Record, *, reused: bool, cleared: list[Hosted], walked: bool
) -> Reply:
    from pytest_peaks.doors.mcp import client_config
    from pytest_peaks.session.registry import Registry

    url = record.endpoints["mcp"]
    done = "is running" if reused else "started"
    line = f"playwright MCP {done} on port {record.port} (browser={record.browser}, terminal={record.session_id})"
    config = client_config(url)
    lines = [line]
    if walked:
        lines.append(f"the port that was asked for is taken; {record.port} is the next free one")
    lines += [f"cleared away a dead session on port {hosted.record.port}" for hosted in cleared]
    lines += [f"MCP URL: {url}", "for a client's configuration:", json.dumps(config, indent=2)]
    fields = {
        "session": record.to_json(),
        "sessionFile": str(Registry(dirs.records).path_of(record.session_id)),
        "mcpUrl": url,
        "mcpServers": config["mcpServers"],
        "reused": reused,
        "walked": walked,
        "cleared": [hosted.record.session_id for hosted in cleared],
    }
    return Reply(line, fields, "\n".join(lines))


def _row(hosted: Hosted) -> dict[str, Any]:
    return {
        **hosted.record.to_json(),
        "alive": hosted.alive,
        "mcpUrl": hosted.mcp_url,
        "ageSeconds": hosted.age_seconds,
        "tabs": hosted.open_tabs() if hosted.alive else None,
        "project": str(hosted.dirs.root),
    }


def _state(row: dict[str, Any]) -> str:
    return "alive" if row["alive"] else "starting" if row["status"] == "starting" else "dead"


def _listing(rows: list[dict[str, Any]], *, everywhere: bool) -> str:
    """A table on a terminal, where rich is installed; else a line a session."""
    if sys.stdout.isatty():
        try:
            return _table(rows, everywhere=everywhere)
        except ImportError:
            pass
    lines = []
    for row in rows:
        fields = {
            "port": row["port"],
            "browser": row["browser"],
            "terminal": row["terminalId"],
            "pid": row["pid"] or "?",
            "started": row["startedAt"],
            "state": _state(row),
            "age": f"{row['ageSeconds']}s",
            "tabs": "?" if row["tabs"] is None else row["tabs"],
            "mcp": row["mcpUrl"] or "?",
        }
        if everywhere:
            fields["project"] = row["project"]
        lines.append("  ".join(f"{key}={value}" for key, value in fields.items()))
    return "\n".join(lines)


def _table(rows: list[dict[str, Any]], *, everywhere: bool) -> str:
    from rich.console import Console
    from rich.table import Table

    columns = ["port", "browser", "terminal", "pid", "state", "age", "tabs", "MCP URL"]
    table = Table(*columns, *(["project"] if everywhere else []))
    for row in rows:
        cells = [
            row["port"],
            row["browser"],
            row["terminalId"],
            row["pid"],
            _state(row),
            f"{row['ageSeconds']} s",
        ]
        cells += [row["tabs"], row["mcpUrl"], *([row["project"]] if everywhere else [])]
        table.add_row(*("?" if cell is None else str(cell) for cell in cells))
    console = Console()
    with console.capture() as captured:
        console.print(table)
    return str(captured.get()).rstrip()
