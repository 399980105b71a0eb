"""SIGTERM and SIGHUP: the controller tears down like on Ctrl-C instead of dying on the spot."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")


class Termination:
    """Handlers for the signals that end a run from outside.

    A signal whose handler is not the system's default is left alone: it is ignored (``nohup``), or
    somebody else's.

    :param in_use: whether the run has sessions; without any the signal does what it always did.
    :param interrupt_workers: tells the workers to stop, which would otherwise finish their tests.
    :ivar received: the signal that ended the run, None before.
    """

    def __init__(self, in_use: Callable[[], bool], interrupt_workers: Callable[[], None]) -> None:
        self._in_use = in_use
        self._interrupt_workers = interrupt_workers
        self._installed: list[signal.Signals] = []
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
        self.uninstall()  # a second signal ends the run at once
        if not self._in_use():
            signal.raise_signal(number)
            return
        self.received = signal.Signals(number)
        self._interrupt_workers()
        raise KeyboardInterrupt
