"""``peaks brief``: what to tell a worker who is to drive a browser."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_peaks.cli.options import dirs_of, project_option
from pytest_peaks.cli.output import PeaksCommand, Reply


@click.command(cls=PeaksCommand)
@click.argument("name")
@click.option("--url", required=True, metavar="URL", help="Where the worker's session begins.")
@click.option("--auth", metavar="NAME", help="The saved login that it is opened with.")
@project_option
def brief(name: str, url: str, auth: str | None, project: Path | None) -> Reply:
    """Print the brief for a worker with the session NAME: how to open, drive and close it."""
    from pytest_peaks.named.brief import write_brief
    from pytest_peaks.named.settings import read_settings
    from pytest_peaks.session.identity import check_name

    if auth is not None:
        check_name(auth, "auth name")
    written = write_brief(name, url, read_settings(dirs_of(project).root).names, auth)
    fields = {
        "name": name,
        "url": url,
        "open": written.open_line,
        "close": written.close_line,
        "brief": written.text,
    }
    return Reply(f"brief for {name}", fields, written.text)
