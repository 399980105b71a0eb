"""Several sync calls of Playwright under way at once.

Playwright's sync API sends one call and waits for its answer, then the next. All of its methods go through one
private method, ``_sync``, which gets the call as something to await. Here that method is replaced for a moment, on
the objects that are ours: each function runs in a greenlet of its own, hands what it would wait for to a task of
the event loop, and goes on when the answer is there. Nothing else of Playwright's insides is touched, so the public
methods are called as its version wants them.

Where that does not work, in a version that has other insides, the functions are called one after the other, which
has the same effect and takes longer. It is tried out once in each process.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession

# Milliseconds; two answers take one.
TRIAL_TIMEOUT = 5_000.0
# Whether it works in this process; empty as long as it is not tried out.
_WORKS: list[bool] = []


def together(timeout: float, targets: Sequence[Any], *functions: Callable[[], Any]) -> list[Any]:
    """Call functions at the same time, each of which calls methods of Playwright; what they returned.

    :param timeout: milliseconds that they may take; where they are called one by one, each has its own limit.
    :param targets: all objects of Playwright whose methods they call; none that a test has.
    :raises playwright.sync_api.Error: the first that one of them raised, or the time is over. None of them goes on.
    """
    if not _WORKS or not _WORKS[0]:
        return [function() for function in functions]
    from playwright.sync_api import Error
    from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

    try:
        return _gathered(timeout, targets, functions)
    except TimeoutError:
        raise PlaywrightTimeoutError(f"no answer within {timeout:.0f} ms") from None
    except Exception as error:
        if not isinstance(error, Error):
            _WORKS[:] = [False]  # not as it was tried out; what is half done is the caller's to throw away
        raise


def try_out(session: CDPSession) -> None:
    """Find out whether calls can be gathered; once in each process.

    :raises playwright.sync_api.Error: the browser does not answer.
    """
    if _WORKS:
        return
    _WORKS[:] = [False]

    def ask() -> list[str]:
        return [session.send("Target.getTargetInfo")["targetInfo"]["targetId"] for _ in range(2)]

    expected = ask()
    try:
        found = _gathered(TRIAL_TIMEOUT, [session], [ask, lambda: len(ask())])
    except Exception:  # whatever a version without these insides makes of it
        return
    _WORKS[:] = [found == [expected, len(expected)]]


class _Fiber:
    """A function that is suspended wherever it would wait for Playwright."""

    def __init__(self, targets: Sequence[Any], function: Callable[[], Any]) -> None:
        # Playwright's own; it has no types.
        module: Any = importlib.import_module("greenlet")
        self._targets = targets
        self._current = module.getcurrent
        self._greenlet = module.greenlet(function)

    async def run(self) -> Any:
        """Run it to its end; what it returned."""
        waits_for = self._go_on(self._greenlet.switch)
        try:
            while not self._greenlet.dead:
                try:
                    answer = await waits_for
                except Exception as error:
                    waits_for = self._go_on(self._greenlet.throw, error)
                else:
                    waits_for = self._go_on(self._greenlet.switch, answer)
        finally:
            if not self._greenlet.dead:  # cancelled: it ends where it waits
                self._go_on(self._greenlet.throw)
        return waits_for

    def _go_on(self, how: Callable[..., Any], *arguments: Any) -> Any:
        self._greenlet.parent = self._current()  # where it hands over to, and returns to
        for target in self._targets:
            vars(target)["_sync"] = self._greenlet.parent.switch
        try:
            return how(*arguments)
        finally:
            for target in self._targets:
                del vars(target)["_sync"]


def _gathered(timeout: float, targets: Sequence[Any], functions: Sequence[Callable[[], Any]]) -> list[Any]:
    fibers = [_Fiber(targets, function) for function in functions]

    async def run() -> list[Any]:
        # With their errors, so that none is left running when there is one.
        everything = asyncio.gather(*(fiber.run() for fiber in fibers), return_exceptions=True)
        return await asyncio.wait_for(everything, timeout / 1000)

    answers: list[Any] = targets[0]._sync(run())
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return answers
