"""The ``peaks`` command."""

from __future__ import annotations


def main() -> None:
    """Entry point of the ``peaks`` script."""
    import sys

    try:
        from pytest_peaks.cli.commands import peaks
        from pytest_peaks.cli.output import run
    except KeyboardInterrupt:  # before there is anything that could answer
        sys.exit(130)
    sys.exit(run(peaks, sys.argv[1:]))
