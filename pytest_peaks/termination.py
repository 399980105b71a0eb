"""SIGTERM and SIGHUP: the controller tears down like on Ctrl-C instead of dying on the spot."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

_NAMES = ("SIGTERM", "SIGHUP")
# One event may come as several signals: `timeout` sends SIGTERM to the controller and to its group, and a
# worker in that group hears from its controller as well. What follows this soon is no second request.
SAME_EVENT = 1.0


class Termination:
    """Handlers for the signals that end a run from outside.

    A signal whose handler is not the system's default is left alone: it is ignored (``nohup``), or
    somebody else's. In a worker, Ctrl-C stays what it is, but does not come on top of another signal.

    :param worker: whether this process is a worker.
    :param in_use: whether the run has sessions; without any the signal does what it always did.
    :param interrupt_workers: tells the workers to stop, which would otherwise finish their tests.
    :ivar received: the signal that ended the run, None before.
    """

    def __init__(
        self, in_use: Callable[[], bool], interrupt_workers: Callable[[], None], *, worker: bool
    ) -> None:
        self._worker = worker
        self._in_use = in_use
        self._interrupt_workers = interrupt_workers
        self._installed: list[signal.Signals] = []
        self._taken_at: float | None = None
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
        if self._worker and self._installed and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle_interrupt)

    def uninstall(self) -> None:
        for number in self._installed:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
        self._installed.clear()
        if signal.getsignal(signal.SIGINT) == self._handle_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    @property
    def exit_status(self) -> int | None:
        """What the shell expects of a run that was ended by the signal: 128 + its number."""
        return None if self.received is None else 128 + self.received

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._is_same_event():
            return
        if self.received is not None or not self._in_use():
            self.uninstall()
            signal.raise_signal(number)  # a second signal ends the run at once
            return
        self._taken_at = time.monotonic()
        self.received = signal.Signals(number)
        self._interrupt_workers()
        raise KeyboardInterrupt

    def _handle_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and self._is_same_event():
            return
        self._taken_at = time.monotonic()
        signal.default_int_handler(number, frame)

    def _is_same_event(self) -> bool:
        return self._taken_at is not None and time.monotonic() - self._taken_at < SAME_EVENT
