"""``peaks name``: a session's name that the project's rules allow."""

from __future__ import annotations

from pathlib import Path

import click

from pytest_peaks.cli.options import project_option
from pytest_peaks.cli.output import PeaksCommand, Reply


@click.command(cls=PeaksCommand)
@click.argument("prefix")
@click.argument("slug")
@click.argument("pass_", metavar="[PASS", type=click.IntRange(min=0), required=False)
@click.argument("cycle", metavar="[CYCLE]]", type=click.IntRange(min=0), required=False)
@project_option
def name(prefix: str, slug: str, pass_: int | None, cycle: int | None, project: Path | None) -> Reply:
    """Make a session's name of PREFIX and SLUG, within the project's rules.

    `peaks name composer checkout 3 1` prints composer-checkout-3-c1. SLUG may be any text.
    """
    from pytest_peaks.named.names import build_name
    from pytest_peaks.named.settings import read_settings
    from pytest_peaks.session.paths import project_root

    rules = read_settings(project_root(project or Path.cwd())).names
    made = build_name(rules, prefix, slug, pass_, cycle)
    return Reply(made, {"name": made})
