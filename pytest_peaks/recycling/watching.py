"""Objects that say what is asked of them: while they are watched they belong to a class of ours."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

# What a watcher makes of an attribute that was asked for: (object, name, value) -> value.
Asked = Callable[[Any, str, Any], Any]
# Told that an attribute is set or deleted: (object, name).
Changed = Callable[[Any, str], None]

# By the id of an object, which lives as long as it is watched. Several may watch one: contexts share a browser.
_WATCHERS: dict[int, list[Watcher]] = {}
# As long as there is something in it, nobody is told anything.
_ASIDE: list[None] = []


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Nobody is told of what is done in here: it is not a test's doing, and leaves nothing."""
    _ASIDE.append(None)
    try:
        yield
    finally:
        _ASIDE.pop()


class Watcher:
    """Watches objects until it ends.

    :param asked: called when a public attribute is read; what it returns is what the reader gets.
    :param changed: called before an attribute is set or deleted.
    """

    def __init__(self, asked: Asked, changed: Changed) -> None:
        self.asked = asked
        self.changed = changed
        self._watched: list[Any] = []

    def watch(self, target: Any) -> None:
        """Watch an object as well. Twice is once."""
        watchers = _WATCHERS.setdefault(id(target), [])
        if self in watchers:
            return
        if not watchers:
            kind: Any = type(target)
            object.__setattr__(target, "__class__", _watched(kind))
        watchers.append(self)
        self._watched.append(target)

    def end(self) -> None:
        """Let go of all of them. Idempotent."""
        while self._watched:
            target = self._watched.pop()
            watchers = _WATCHERS[id(target)]
            watchers.remove(self)
            if not watchers:
                del _WATCHERS[id(target)]
                object.__setattr__(target, "__class__", type(target).__mro__[1])


@functools.cache
def _watched(kind: Any) -> Any:
    """A class that is `kind` in all that can be seen of it, and tells the watchers."""

    def get(self: Any, name: str) -> Any:
        value = kind.__getattribute__(self, name)
        if not (_ASIDE or name.startswith("_")):
            for watcher in tuple(_WATCHERS.get(id(self), ())):
                value = watcher.asked(self, name, value)
        return value

    def put(self: Any, name: str, value: object) -> None:
        _tell(self, name)
        kind.__setattr__(self, name, value)

    def remove(self: Any, name: str) -> None:
        _tell(self, name)
        kind.__delattr__(self, name)

    return type(
        kind.__name__,
        (kind,),
        {
            "__getattribute__": get,
            "__setattr__": put,
            "__delattr__": remove,
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
        },
    )


def _tell(target: Any, name: str) -> None:
    for watcher in () if _ASIDE else tuple(_WATCHERS.get(id(target), ())):
        watcher.changed(target, name)
