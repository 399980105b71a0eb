"""The top of the ``peaks`` command. A verb is imported when it is called; all are for the list of them."""

from __future__ import annotations

import importlib
from typing import Any

import click

from pytest_peaks import __version__
from pytest_peaks.cli.output import PeaksGroup, version_option

# The command in the module of its name.
VERBS = {
    "auth": "auth",
    "brief": "brief",
    "cli": "passing",
    "doctor": "doctor",
    "guard": "guard",
    "install": "install",
    "mcp": "mcp",
    "name": "name",
    "playwright": "playwright",
    "reap": "reap",
    "session": "session",
}


class _Verbs(PeaksGroup):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in VERBS:
            return _load(cmd_name)
        # Where click looks for a word that is like the wrong one.
        self.commands = {verb: _load(verb) for verb in VERBS}
        return None


def _load(verb: str) -> click.Command:
    module: Any = importlib.import_module(f"pytest_peaks.cli.{VERBS[verb]}")
    command: click.Command = getattr(module, verb)
    return command


@click.group(cls=_Verbs)
@version_option(__version__)
def peaks() -> None:
    """One isolated browser for every worker, with nothing left behind."""
