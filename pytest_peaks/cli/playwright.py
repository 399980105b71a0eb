"""``peaks playwright start | ls | stop``: hosted sessions of a terminal, an IDE, an agent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, PeaksGroup, Reply
from pytest_peaks.session.spec import BrowserName

if TYPE_CHECKING:
    from pytest_peaks.auth.model import State
    from pytest_peaks.hosting.starting import Started
    from pytest_peaks.session.paths import ProjectDirs


def _seconds(_ctx: click.Context, _parameter: click.Parameter, value: float) -> float:
    if not 0 <= value < math.inf:  # which "nan" is not, either
        raise click.BadParameter(f"{value} is not a number of seconds")
    return value


@click.group(cls=PeaksGroup)
def playwright() -> None:
    """A browser with an MCP server for this terminal, until it is stopped."""


@playwright.command(cls=PeaksCommand)
@click.option(
    "--port",
    metavar="N",
    help="Where the MCP server listens; default: 8931, walking to 8949.",
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
    type=float,
    default=0.0,
    callback=_seconds,
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
@click.option("--auth", metavar="NAME", help="Begin logged in, from a saved login.")
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
    auth: str | None,
    terminal: str | None,
    project: Path | None,
) -> Reply:
    """Start a session; returns when a tool call has worked."""
    from pytest_peaks.auth.store import Store
    from pytest_peaks.cli.hosted import started
    from pytest_peaks.config import one_of
    from pytest_peaks.errors import InvalidNameError, PeaksError
    from pytest_peaks.hosting import terminals
    from pytest_peaks.hosting.starting import Start
    from pytest_peaks.session.spec import BrowserSpec, McpOptions

    here = terminals.current(terminal)
    if "@" in here.id:
        raise InvalidNameError(
            f"{here.id} names one of a terminal's sessions",
            hint="give the terminal's id, and --port for another session of it",
        )
    dirs = dirs_of(project)
    wish = Start(
        dirs,
        here,
        BrowserSpec(
            browser=one_of(BrowserName, browser, "a browser") if browser else BrowserName.CHROMIUM,
            executable=_absolute(executable),
            headed=headed,
            user_data_dir=_profile(user_data_dir, dirs),
            persistent=True,
        ),
        McpOptions(caps=tuple(filter(None, caps.split(","))), command=mcp_command),
        port=_port(port) if port is not None else None,
        any_browser=not browser,
        idle_timeout=idle_timeout,
    )
    state = Store(dirs).load(auth) if auth is not None else None  # before anything is started
    try:
        done = wish.run(reuse=reuse)
        if state is not None:
            _log_in(dirs, done, state)
        return started(dirs, done, wish.port)
    except PeaksError as error:
        # pytest's names of the same options.
        raise type(error)(error.message, hint=error.hint.replace("--peaks-", "--")) from None


def _log_in(dirs: ProjectDirs, done: Started, state: State) -> None:
    """Log a session in. One that was just started and can't be logged in ends."""
    from pytest_peaks.auth import hosted
    from pytest_peaks.errors import PeaksError
    from pytest_peaks.hosting import sessions

    try:
        hosted.log_in(done.record, state)
    except PeaksError:
        if not done.reused:
            found, _ = sessions.look(dirs)
            for session in found:
                if session.name == done.record.session_id:
                    sessions.stop(session)
        raise


@playwright.command(cls=PeaksCommand)
@click.option("--all", "everywhere", is_flag=True, help="Sessions of your other projects as well.")
@project_option
def ls(everywhere: bool, project: Path | None) -> Reply:
    """List sessions, live and dead."""
    from pytest_peaks.cli.listed import told
    from pytest_peaks.hosting import sessions

    dirs = dirs_of(project)
    places = sessions.everywhere(dirs) if everywhere else [dirs]
    return Reply(*told([(str(place.root), str(place.base)) for place in places], everywhere=everywhere))


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
    from pytest_peaks.errors import ReapIncompleteError
    from pytest_peaks.hosting import sessions, terminals

    here = terminals.current(terminal)
    number = _port(port) if port is not None else None
    found, _ = sessions.look(dirs_of(project))
    if everything:
        # A desk may have somebody at it: `peaks session pool --down` ends those.
        chosen = [hosted for hosted in found if not hosted.elsewhere and not hosted.is_desk]
    else:
        chosen = [sessions.choose(found, here, number, of_any=terminal is None)]
    freed = [sessions.stop(hosted, keep_profile=keep_profile) for hosted in chosen]
    rows = [{**hosted.record.to_json(), "portFree": free} for hosted, free in zip(chosen, freed, strict=True)]
    lines = [
        f"stopped playwright session on port {hosted.record.port} (terminal={hosted.name})"
        for hosted in chosen
    ]
    failure = None
    if not all(freed):
        busy = [str(hosted.record.port) for hosted, free in zip(chosen, freed, strict=True) if not free]
        failure = ReapIncompleteError(
            f"something else listens on port {', '.join(busy)} now", hint="`ss -ltnp` shows what"
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


def _absolute(path: Path | None) -> Path | None:
    """A path from the command line as the supervisor, which works elsewhere, finds it too."""
    from pytest_peaks.config import path_from

    return None if path is None else path_from(Path.cwd(), path, "path")


def _profile(text: str | None, dirs: ProjectDirs) -> Path | None:
    """A user's own profile, within the project; relative paths start at its root.

    :raises InvalidUserDataDirError: it is none that may be used.
    """
    if text is None:
        return None
    import os

    from pytest_peaks.errors import InvalidUserDataDirError
    from pytest_peaks.session import profiles

    root = Path(os.path.realpath(dirs.root))
    try:
        path = Path(os.path.realpath(root / Path(text).expanduser()))
    except (RuntimeError, ValueError):
        return profiles.check_user_data_dir(text, root)  # which says what is wrong with it
    if not text or root not in path.parents:
        raise InvalidUserDataDirError(
            f"{path} is not inside the project {root}", hint="name a folder of its own within it"
        )
    # There a profile that no record names is a leftover, and swept.
    ours = Path(os.path.realpath(dirs.runtime))
    if path == ours or ours in path.parents or path in ours.parents:
        raise InvalidUserDataDirError(
            f"{path} is kept by peaks for itself", hint="name a folder of its own, such as profiles/alice"
        )
    return profiles.check_user_data_dir(path, root)
