"""Async and sync in one worker: Playwright's running-loop mark is on while a browser is used, and else off.

Playwright's sync API suspends its event loop in the middle and leaves the thread marked as one in which a loop
runs. asyncio, pytest-asyncio, anyio, Django and asgiref look at nothing but that mark and refuse. So it is taken
off between the fixtures and tests which use a browser, and put back for them: without it a sync call would leave
the connection to the driver broken for good. The loop's task factory is the net below that, since every sync call
makes a task first: where the mark is off, the call puts it on, or is refused before it breaks anything.

asyncio is imported by Playwright or by the suite, never by this module: without either there is no mark.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_peaks.errors import PeaksError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task


class EventLoopError(PeaksError):
    """Playwright's sync API was called where another event loop runs, or may run."""

    code = "EVENT_LOOP"


def _suspended() -> AbstractEventLoop | None:
    """The loop whose mark this thread bears though it does not run: Playwright's. None if there is none."""
    asyncio: Any = sys.modules.get("asyncio")
    loop: AbstractEventLoop | None = asyncio._get_running_loop() if asyncio is not None else None
    # In a coroutine of somebody else's loop there is a current task.
    return None if loop is None or asyncio.current_task(loop) is not None else loop


def _set_mark(loop: AbstractEventLoop | None) -> None:
    sys.modules["asyncio"]._set_running_loop(loop)


def _is_marked() -> bool:
    return sys.modules["asyncio"]._get_running_loop() is not None


def _can_park() -> bool:
    """Whether this Python lets the mark be read and written."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is None or (
        hasattr(asyncio, "_get_running_loop") and hasattr(asyncio, "_set_running_loop")
    )


def _refuse(coroutine: Any, message: str, hint: str) -> NoReturn:
    coroutine.close()  # it will never be awaited, and nobody is to be warned of that
    raise EventLoopError(message, hint=hint)


def _refuse_in_parked(_loop: AbstractEventLoop, coroutine: Any, **_: Any) -> NoReturn:
    _refuse(
        coroutine,
        "Playwright's sync API was called inside parked()",
        "call it before or after the block, which is for other event loops",
    )


@contextlib.contextmanager
def parked() -> Iterator[None]:
    """Let a browser test run an event loop of its own: ``with parked(): asyncio.run(main())``.

    The browser stays as it is; its events are delivered at the next call of Playwright after the block. Blocks may
    be nested, and where no browser is in use nothing happens.

    :raises EventLoopError: Playwright's sync API is called inside the block; the connection bears it.
    """
    loop = _suspended() if _can_park() else None
    if loop is None:
        yield
        return
    factory = loop.get_task_factory()
    try:
        loop.set_task_factory(_refuse_in_parked)
        _set_mark(None)
        yield
    finally:
        loop.set_task_factory(factory)
        if not _is_marked() and not loop.is_closed():
            _set_mark(loop)


class Mark:
    """The running-loop mark of Playwright in this thread.

    :param tell: says something to the user at once.
    :ivar enabled: whether it is ever taken off.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.enabled = False
        self._tell = tell
        self._told = False
        self._thread = threading.get_ident()
        # Loops without their mark, with the task factory that each had. A test's own sync_playwright() is a second.
        self._off: dict[AbstractEventLoop, Any] = {}

    def on(self) -> None:
        """Put the mark back; nothing where it was not taken off, or in a coroutine of another loop."""
        while self._off and not _is_marked():
            self._put_back(next(iter(self._off)))

    def off(self) -> None:
        """Take the mark off, if Playwright bears one."""
        if not self.enabled:
            return
        if not _can_park():
            if not self._told:
                self._told = True
                self._tell(
                    "this Python hides asyncio's running loop, so tests that run a loop fail after a browser test, "
                    "as they do with Playwright alone"
                )
            return
        loop = _suspended()
        if loop is not None:
            self._off[loop] = loop.get_task_factory()
            loop.set_task_factory(self._on_a_call)
            _set_mark(None)

    @property
    def is_on(self) -> bool:
        return self.enabled and _can_park() and _suspended() is not None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """For calls of Playwright between the phases of tests."""
        before = self.is_on
        self.on()
        try:
            yield
        finally:
            if not before:
                self.off()

    def _put_back(self, loop: AbstractEventLoop) -> None:
        loop.set_task_factory(self._off.pop(loop))
        if not loop.is_closed():
            _set_mark(loop)

    def _on_a_call(self, loop: AbstractEventLoop, coroutine: Any, **arguments: Any) -> Task[Any]:
        """A sync call while the mark is off: from a hook of the user's, or from a place that must not."""
        if threading.get_ident() != self._thread:
            task: Task[Any] = sys.modules["asyncio"].Task(coroutine, loop=loop, **arguments)
            return task  # what follows is Playwright's own error
        self.off()  # another of Playwright's, if there are two
        if _is_marked():
            _refuse(
                coroutine,
                "Playwright's sync API was called while another event loop runs in this thread",
                "call it in a sync test or fixture; for async tests there is pytest-playwright-asyncio",
            )
        self._put_back(loop)
        return loop.create_task(coroutine, **arguments)
