"""One isolated browser for every pytest-xdist worker, with nothing left behind.

The public names are imported on first use, so that ``import pytest_peaks`` (which pytest does
in every run) stays free of Playwright and psutil.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's own, whose import is half of Python's start
if TYPE_CHECKING:
    from typing import Any

    from pytest_peaks.errors import PeaksError
    from pytest_peaks.handle import PeaksSession
    from pytest_peaks.openers import SessionFactory, SessionOpener
    from pytest_peaks.parking import parked

__all__ = ["PeaksError", "PeaksSession", "SessionFactory", "SessionOpener", "__version__", "parked"]

__version__ = "0.1.0"

_HOMES = {
    "PeaksError": "pytest_peaks.errors",
    "PeaksSession": "pytest_peaks.handle",
    "SessionFactory": "pytest_peaks.openers",
    "SessionOpener": "pytest_peaks.openers",
    "parked": "pytest_peaks.parking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
