"""The ``peaks`` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``peaks`` script."""
    import sys

    from pytest_peaks.cli.commands import peaks
    from pytest_peaks.cli.output import run

    sys.exit(run(peaks, sys.argv[1:]))
