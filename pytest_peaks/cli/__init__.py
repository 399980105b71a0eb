"""The ``peaks`` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``peaks`` script."""
    from pytest_peaks.cli.commands import peaks

    peaks()
