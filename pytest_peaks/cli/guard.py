"""``peaks guard``: a hook that looks at shell commands before a harness runs them.

The command's entry point may call :func:`pytest_peaks.guard.hook.main` without coming here: a hook
runs before every command, and click alone takes longer than all that the guard does.
"""

from __future__ import annotations

import sys

import click

from pytest_peaks.cli.output import PeaksCommand


@click.command(cls=PeaksCommand)
@click.option("--explain", is_flag=True, help="Answer for every command, with all that was found.")
@click.option("--config", is_flag=True, help="Print the settings that make a harness ask.")
@click.pass_context
def guard(ctx: click.Context, explain: bool, config: bool) -> None:
    """Read a harness's event from stdin and say whether its command may run.

    A session of the Playwright CLI needs a name that the project allows. The answer is JSON in the
    harness's form, with the corrected command; silence means that nothing is objected to.
    """
    from pytest_peaks.cli.output import Printer
    from pytest_peaks.guard.hook import main

    explain = explain or ctx.ensure_object(Printer).as_json
    sys.exit(main(["--explain"] * explain + ["--config"] * config))
