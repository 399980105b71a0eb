"""SIGTERM and SIGHUP: the controller tears down like on Ctrl-C instead of dying on the spot."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")
# One request may come twice: `timeout` signals the controller and then its group, and a worker in that group
# hears from its controller as well. What follows this soon is no second request.
SAME_REQUEST = 1.0


class Termination:
    """Handlers for the signals that end a run from outside.

    A signal whose handler is not the system's default is left alone: it is ignored (``nohup``), or
    somebody else's.

    :param in_use: whether the run has sessions; without any the signal does what it always did.
    :param pass_on: sends a signal to the workers, which would otherwise finish their tests.
    :ivar received: the signal that ended the run, None before.
    """

    def __init__(self, in_use: Callable[[], bool], pass_on: Callable[[signal.Signals], None]) -> None:
        self._in_use = in_use
        self._pass_on = pass_on
        self._installed: list[signal.Signals] = []
        self._received_at = 0.0
        self.received: signal.Signals | None = None

    def install(self) -> None:
        """Take the signals; only in the main thread, and once."""
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._handle)
                self._installed.append(number)

    def uninstall(self) -> None:
        for number in self._installed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        self._installed.clear()

    @property
    def exit_status(self) -> int | None:
        """What the shell expects of a run that was ended by the signal: 128 + its number."""
        return None if self.received is None else 128 + self.received

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.received is not None and now - self._received_at < SAME_REQUEST:
            return
        if self.received is not None or not self._in_use():
            self.uninstall()
            signal.raise_signal(number)  # a second request ends the run at once
            return
        self._received_at = now
        self.received = signal.Signals(number)
        # The same signal, and no other: two different ones at once may both be taken by another thread of
        # the worker, and then its main thread sleeps on.
        self._pass_on(self.received)
        raise KeyboardInterrupt
