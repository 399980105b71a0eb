"""``peaks session watch``: the desks as they are, again and again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pytest_peaks.desks.overview import Row
    from pytest_peaks.desks.turns import Turns

COLUMNS = ("desk", "state", "session", "since", "idle", "memory", "page", "held by")


def watch(turns: Turns, interval: float, looks: int | None) -> None:
    """Show the desks until the user stops it: as a live table on a terminal, else in plain lines when they change.

    :param interval: seconds from look to look.
    :param looks: how often to look; None for ever.
    """
    from pytest_peaks.desks.overview import rows

    def look() -> list[Row]:
        return rows(turns)

    if sys.stdout.isatty():
        try:
            _live(look, interval, looks)
            return
        except ImportError:
            pass
    _plain(look, interval, looks)


def cells(row: Row) -> list[str]:
    """One desk, in the order of :data:`COLUMNS`."""
    return [
        row.desk,
        row.state,
        row.session or "-",
        _span(row.since),
        _span(row.idle),
        "-" if row.memory is None else f"{row.memory / 2**20:.0f} MB",
        row.url or "-",
        row.holder or "-",
    ]


def lines(found: Sequence[Row]) -> list[str]:
    """The desks in columns."""
    table, widths = [list(COLUMNS), *map(cells, found)], _widths(found)
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]


def _widths(found: Sequence[Row]) -> list[int]:
    table = [list(COLUMNS), *map(cells, found)]
    return [max(len(line[number]) for line in table) for number in range(len(COLUMNS))]


def _plain(look: Callable[[], list[Row]], interval: float, looks: int | None) -> None:
    before: object = None
    for found in _again(look, interval, looks):
        # What only time changes is no news.
        now = [(row.desk, row.state, row.session, row.holder, row.url) for row in found]
        if now != before:
            click.echo(("" if before is None else "\n") + "\n".join(lines(found)))
            sys.stdout.flush()
        before = now


def _live(look: Callable[[], list[Row]], interval: float, looks: int | None) -> None:
    from rich.live import Live

    with Live(_table(look()), auto_refresh=False, screen=False) as live:
        for found in _again(look, interval, looks):
            live.update(_table(found), refresh=True)


def _table(found: Sequence[Row]) -> Any:
    from rich.table import Column, Table
    from rich.text import Text

    colours = {"free": "green", "leased": "cyan", "draining": "yellow", "quarantined": "red", "dead": "red"}
    # In a narrow terminal the page and the holder give way; who sits where stays whole.
    columns = [Column(name, no_wrap=True, overflow="ellipsis") for name in COLUMNS]
    for column, width in zip(columns[:-2], _widths(found), strict=False):
        column.min_width = width
    table = Table(*columns)
    for row in found:
        desk, state, *rest = cells(row)
        table.add_row(Text(desk), Text(state, style=colours.get(state, "")), *map(Text, rest))
    return table


def _again(look: Callable[[], list[Row]], interval: float, looks: int | None) -> Any:
    number = 0
    while True:
        yield look()
        number += 1
        if looks is not None and number >= looks:
            return
        time.sleep(interval)


def _span(seconds: int | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}min" if seconds < 7200 else f"{seconds // 3600}h"
