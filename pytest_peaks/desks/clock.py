"""Moments that survive a change of the clock: elapsed time is measured on the machine's own clock."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from pytest_peaks.session.identity import boot_id


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment.

    :ivar wall: Unix time in seconds.
    :ivar machine: seconds on ``time.monotonic()``'s clock, which no setting of the clock moves.
    :ivar boot: the boot of the machine that `machine` counts in; empty where that has no name.
    """

    wall: float
    machine: float
    boot: str

    @classmethod
    def now(cls) -> Moment:
        return cls(time.time(), time.monotonic(), boot_id())

    def until(self, later: Moment) -> float:
        """Seconds from this moment to `later`, never negative."""
        if self.boot == later.boot and self.machine <= later.machine:
            return later.machine - self.machine
        return max(0.0, later.wall - self.wall)

    def to_json(self) -> dict[str, Any]:
        return {"wall": round(self.wall, 3), "machine": round(self.machine, 3), "boot": self.boot}

    @classmethod
    def from_json(cls, data: object) -> Moment:
        """Read what :meth:`to_json` wrote.

        :raises ValueError: it is something else.
        """
        if not isinstance(data, dict):
            raise ValueError("a moment is not an object")  # noqa: TRY004 - one error for bad data
        wall, machine, boot = data.get("wall"), data.get("machine"), data.get("boot")
        if not isinstance(boot, str) or any(
            isinstance(number, bool) or not isinstance(number, int | float) for number in (wall, machine)
        ):
            raise ValueError("a moment has no wall, machine and boot")
        assert isinstance(wall, int | float), "checked"
        assert isinstance(machine, int | float), "checked"
        try:
            made = cls(float(wall), float(machine), boot)
        except OverflowError:
            raise ValueError("a moment is out of all bounds") from None
        if not (math.isfinite(made.wall) and math.isfinite(made.machine)):
            raise ValueError("a moment is no finite number of seconds")
        return made
