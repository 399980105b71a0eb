"""``peaks mcp``: the way in over stdio, to be registered once with an agent's harness."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, Reply
from pytest_peaks.session.spec import BrowserName


@click.command(cls=PeaksCommand)
@click.option("--terminal", metavar="ID", help="Join the hosted session of this terminal instead.")
@click.option(
    "--desk", metavar="NAME", help="Serve this desk of `peaks session`; it is started when it is needed."
)
@click.option("--auth", metavar="NAME", help="A saved login, <project>/.peaks/auth/NAME.json, to begin with.")
@click.option("--browser", metavar="NAME", help=f"One of {', '.join(BrowserName)}; default: chromium.")
@click.option(
    "--executable", type=click.Path(path_type=Path), metavar="PATH", help="The browser's executable."
)
@click.option("--headed", is_flag=True, help="Show the browser's window.")
@click.option(
    "--caps", default="", metavar="NAMES", help="Capabilities, comma-separated: vision, pdf, storage, …"
)
@click.option("--mcp-command", default="", metavar="COMMAND", help="Another MCP server.")
@project_option
def mcp(
    terminal: str | None,
    desk: str | None,
    auth: str | None,
    browser: str | None,
    executable: Path | None,
    headed: bool,
    caps: str,
    mcp_command: str,
    project: Path | None,
) -> Reply:
    """Serve MCP over stdin and stdout on a browser of its own, gone when stdin closes.

    Register it once: `mcp add playwright -- peaks mcp`.
    """
    from pytest_peaks.config import one_of
    from pytest_peaks.errors import InvalidOptionError, PeaksError
    from pytest_peaks.hosting import stdio, terminals
    from pytest_peaks.session.spec import BrowserSpec, McpOptions

    name = one_of(BrowserName, browser, "a browser") if browser else BrowserName.CHROMIUM
    if not name.is_chromium:
        raise InvalidOptionError(
            f"{name} can't be served by `peaks mcp`", hint="choose a Chromium: chromium, chrome or msedge"
        )
    options = McpOptions(caps=tuple(filter(None, caps.split(","))), command=mcp_command)
    if terminal is not None and auth is not None:
        raise InvalidOptionError(
            "--auth and --terminal contradict each other: that session has logins of its own",
            hint="leave one of them out",
        )
    dirs = dirs_of(project)
    if desk is not None:
        given = {
            "--terminal": terminal,
            "--auth": auth,
            "--browser": browser,
            "--executable": executable,
            "--headed": headed,
            "--caps": caps,
            "--mcp-command": mcp_command,
        }
        others = [name for name, value in given.items() if value]
        if others:
            raise InvalidOptionError(
                f"--desk and {', '.join(others)} contradict each other: .peaks/pool.json says what a desk is",
                hint="leave them out",
            )
        from pytest_peaks.desks import serving

        sys.exit(serving.serve(dirs, desk))
    try:
        if terminal is not None:
            code = stdio.serve_hosted(dirs, terminals.current(terminal), options)
        else:
            spec = BrowserSpec(browser=name, executable=executable, headed=headed)
            code = stdio.serve_own(dirs, spec, options, auth)
    except PeaksError as error:
        # pytest's names of the same options.
        raise type(error)(error.message, hint=error.hint.replace("--peaks-", "--")) from None
    sys.exit(code)
