"""``peaks cli``: listed with the other verbs here; its work is in :mod:`pytest_peaks.named.front`."""

from __future__ import annotations

import click


@click.command(
    "cli",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    short_help="Drive a named browser session: playwright-cli, guarded.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
def cli(words: tuple[str, ...]) -> int:
    """Drive a named browser session: playwright-cli, guarded."""
    from pytest_peaks.named import front

    return front.main(words)
