"""The top of the ``peaks`` command. Verbs import what is heavy when they run."""

from __future__ import annotations

import click

from pytest_peaks import __version__
from pytest_peaks.cli.auth import auth
from pytest_peaks.cli.brief import brief
from pytest_peaks.cli.doctor import doctor
from pytest_peaks.cli.guard import guard
from pytest_peaks.cli.install import install
from pytest_peaks.cli.mcp import mcp
from pytest_peaks.cli.name import name
from pytest_peaks.cli.output import PeaksGroup, version_option
from pytest_peaks.cli.passing import cli
from pytest_peaks.cli.playwright import playwright
from pytest_peaks.cli.reap import reap
from pytest_peaks.cli.session import session


@click.group(cls=PeaksGroup)
@version_option(__version__)
def peaks() -> None:
    """One isolated browser for every worker, with nothing left behind."""


for command in (auth, brief, cli, doctor, guard, install, mcp, name, playwright, reap, session):
    peaks.add_command(command)
