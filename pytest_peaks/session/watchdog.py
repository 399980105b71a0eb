"""A thread in each worker that notices the controller's death, also under a hung test."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pytest_peaks.session.identity import ProcessIdentity

# One small read of /proc a beat. A quarter of a second leaves most of the five that an orphan
# may take to the clean-up itself.
BEAT = 0.25


class Watchdog:
    """Calls `on_death` once, from its own thread, as soon as `watched` is dead."""

    def __init__(self, watched: ProcessIdentity, on_death: Callable[[], None]) -> None:
        self._watched = watched
        self._on_death = on_death
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peaks-watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(BEAT):
            if self._watched.state() == "dead":
                self._on_death()
                return
