"""A lock on a file that the system frees when its holder dies, waited for no longer than one likes.

On POSIX it is flock, waited for in the kernel: among eight processes that write at once, polling lets the unlucky
wait for several times as long. Elsewhere it is filelock, which polls.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

POLL = 0.001


class NotFreeError(Exception):
    """Somebody else had the lock all the time."""


@contextlib.contextmanager
def locked(path: Path, *, notice: float, limit: float, on_notice: Callable[[], object]) -> Iterator[None]:
    """Hold the lock on `path`, a file that is made if there is none, and that stays.

    :param on_notice: called when the lock was waited for `notice` seconds.
    :raises NotFreeError: it was not to be had in `limit` seconds.
    :raises OSError: the file can't be made, or its file system has no locks.
    """
    if sys.platform == "win32":
        held = _polled(path, notice, limit, on_notice)
    else:
        held = _in_turn(path, notice, limit, on_notice)
    with held:
        yield


if sys.platform != "win32":
    import fcntl

    # A forked child would keep the lock if its parent were killed.
    _descriptors: set[int] = set()

    def _close_in_child() -> None:
        for descriptor in _descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        _descriptors.clear()

    os.register_at_fork(after_in_child=_close_in_child)

    class _Turn:
        """A wait in the kernel, which takes no time limit, in a thread of its own."""

        def __init__(self, descriptor: int) -> None:
            self._descriptor = descriptor
            self._either = threading.Lock()
            self._over = threading.Event()
            self._given_up = False
            self._error: OSError | None = None
            threading.Thread(target=self._wait, name="peaks-lock", daemon=True).start()

        def _wait(self) -> None:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            except OSError as error:
                self._error = error
            with self._either:
                if self._given_up:
                    _close(self._descriptor)
                else:
                    self._over.set()

        def came(self, seconds: float) -> bool:
            """Whether the lock is ours after at most so many seconds.

            :raises OSError: it can't be had.
            """
            came = self._over.wait(seconds)
            if self._error is not None:
                raise self._error
            return came

        def give_up(self) -> None:
            """The lock is freed as soon as it is ours, by whoever comes to know of it."""
            with self._either:
                self._given_up = True
                if not self._over.is_set():
                    return
            _close(self._descriptor)

    @contextlib.contextmanager
    def _in_turn(path: Path, notice: float, limit: float, on_notice: Callable[[], object]) -> Iterator[None]:
        descriptor = _take(path, notice, limit, on_notice)
        while not _is_at(path, descriptor):  # it was removed meanwhile, and others lock another file
            _close(descriptor)
            descriptor = _take(path, notice, limit, on_notice)
        try:
            yield
        finally:
            _close(descriptor)

    def _take(path: Path, notice: float, limit: float, on_notice: Callable[[], object]) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        _descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                _close(descriptor)
                raise
        turn = _Turn(descriptor)
        try:
            if turn.came(notice):
                return descriptor
            on_notice()
            if turn.came(limit - notice):
                return descriptor
        except BaseException:
            turn.give_up()
            raise
        turn.give_up()
        raise NotFreeError

    def _is_at(path: Path, descriptor: int) -> bool:
        try:
            there, ours = path.lstat(), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _close(descriptor: int) -> None:
        if descriptor not in _descriptors:
            return  # this is a forked child, where it is closed
        _descriptors.discard(descriptor)
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # also where a forked child has it, too
        os.close(descriptor)


@contextlib.contextmanager
def _polled(path: Path, notice: float, limit: float, on_notice: Callable[[], object]) -> Iterator[None]:
    import filelock

    lock = filelock.FileLock(path, mode=0o600)
    try:
        try:
            lock.acquire(timeout=notice, poll_interval=POLL)
        except filelock.Timeout:
            on_notice()
            lock.acquire(timeout=limit - notice, poll_interval=POLL)
    except filelock.Timeout:
        raise NotFreeError from None
    except NotImplementedError as error:
        raise OSError(errno.ENOSYS, str(error)) from None
    try:
        yield
    finally:
        lock.release()
