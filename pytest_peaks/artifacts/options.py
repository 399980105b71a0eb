"""What is kept of a test, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Keep(StrEnum):
    """When what was recorded of a test is kept. The words are Playwright's.

    ``off`` records nothing, ``on`` keeps all, ``retain-on-failure`` that of tests that failed,
    ``on-first-retry`` that of the first repetition of a test that failed (pytest-rerunfailures).
    """

    OFF = "off"
    ON = "on"
    ON_FAILURE = "retain-on-failure"
    ON_FIRST_RETRY = "on-first-retry"

    def records(self, retry: int) -> bool:
        """Whether anything is recorded in a test's first run (0), or in a repetition."""
        return retry == 1 if self is Keep.ON_FIRST_RETRY else self is not Keep.OFF

    def keeps(self, *, failed: bool) -> bool:
        """Whether what was recorded of a test is kept."""
        return failed or self is not Keep.ON_FAILURE


@dataclass(frozen=True, slots=True)
class ArtifactOptions:
    """What a run keeps of its tests.

    :ivar full_page: pictures show the page's whole height.
    :ivar output: the folder that has one folder a test.
    """

    tracing: Keep = Keep.OFF
    screenshot: Keep = Keep.OFF
    video: Keep = Keep.OFF
    full_page: bool = False
    output: Path = Path("test-results")

    @property
    def wanted(self) -> bool:
        """Whether anything may be kept."""
        return any(keep is not Keep.OFF for keep in (self.tracing, self.screenshot, self.video))
