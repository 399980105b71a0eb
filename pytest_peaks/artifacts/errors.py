"""What can go wrong with artifacts."""

from __future__ import annotations

from pytest_peaks.errors import PeaksError


class VideoNotPossibleError(PeaksError):
    """Videos are asked for, and what Playwright makes them with is not there."""

    code = "VIDEO_NOT_POSSIBLE"
