"""Finding and ending processes. The only place that signals anything.

A process is signalled only if it is the recorded one (pid and start time agree), belongs to this
user, and is neither pid 1 nor the caller.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pytest_peaks.session.identity import ProcessIdentity

if TYPE_CHECKING:
    import psutil

# After SIGKILL the kernel needs milliseconds; this much is for a machine that is out of breath.
KILL_WAIT = 5.0
POLL = 0.01
KILL_POLL = 0.002
MARK = "PEAKS_SESSION"


def reap_child(pid: int) -> int | None:
    """Collect a dead child of ours, so that it is no zombie. Its exit status, if it had one to give."""
    if os.name == "nt":
        return None
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except OSError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None


def end_tree(root: ProcessIdentity, *, grace: float) -> bool:
    """End a process and all its descendants: TERM to the root, `grace` seconds, then KILL to all.

    With `grace` 0 it is KILL at once. A stopped process ends as well. True if all are gone.
    """
    if not root.is_alive():
        return True
    import psutil

    try:
        process = psutil.Process(root.pid)
        tree = [process, *process.children(recursive=True)]
    except psutil.Error:
        return not root.is_alive()
    if not _may_signal(process):
        return False
    if not root.is_alive():  # the pid changed hands while the tree was read
        return True
    if grace > 0:
        _signal([process], signal.SIGTERM)
        _wait_gone(tree, grace)
    # Whatever the root started meanwhile.
    with contextlib.suppress(psutil.Error):
        tree += [child for child in process.children(recursive=True) if child not in tree]
    return _kill_all(tree)


def end_marked(session_id: str, user_data_dir: str) -> bool:
    """End what carries the mark of a session, or its user-data dir, whoever its parent is now.

    Finds a browser that was spawned but not yet recorded. True if none is left.
    """
    return _kill_all(list(marked(session_id, user_data_dir)))


def marked(session_id: str, user_data_dir: str) -> Iterable[psutil.Process]:
    """Processes of this user with the environment mark of `session_id` and its user-data dir."""
    import psutil

    switch = f"--user-data-dir={user_data_dir}" if user_data_dir else None
    for process in _that_mention(f"{MARK}={session_id}", switch):
        if not _may_signal(process):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            # Helpers overwrite their environment but not their place in the tree: ending the root
            # ends them, and those with the mark are found here one by one.
            if switch in process.cmdline() or process.environ().get(MARK) == session_id:
                yield process


def _that_mention(variable: str, switch: str | None) -> Iterable[psutil.Process]:
    """At least the processes with an environment variable or a switch; to be looked at more closely."""
    import psutil

    if sys.platform != "linux":
        yield from psutil.process_iter()
        return
    # Straight from the kernel: psutil takes five times as long, which each end of a run would pay.
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError, psutil.Error):
            if (switch and os.fsencode(switch) in _raw(entry, "cmdline")) or os.fsencode(variable) in _raw(
                entry, "environ"
            ):
                yield psutil.Process(int(entry))


def _raw(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # noqa: PTH123 - for each process of the machine
        return file.read()


def send(identity: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal. True if the process was there to take it."""
    import psutil

    if not identity.is_alive():
        return False
    try:
        process = psutil.Process(identity.pid)
    except psutil.Error:
        return False
    return _signal([process], number)


def interrupt_main_thread() -> None:
    """Raise KeyboardInterrupt in this process's main thread, also while it sleeps."""
    if hasattr(signal, "pthread_kill"):
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, signal.SIGINT)
    else:
        import _thread

        _thread.interrupt_main()


def wait_until(condition: Callable[[], bool], timeout: float, *, pause: float = POLL) -> bool:
    """Wait until `condition` holds; False if it still does not after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def _may_signal(process: psutil.Process) -> bool:
    import psutil

    if process.pid <= 1 or process.pid == os.getpid():
        return False
    if not hasattr(os, "getuid"):
        return True
    try:
        return process.uids().real == os.getuid()
    except psutil.Error:
        return False


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> bool:
    import psutil

    sent = False
    for process in processes:
        # psutil compares the start time once more before it signals.
        with contextlib.suppress(psutil.Error, OSError):
            if _may_signal(process) and process.is_running():
                process.send_signal(number)
                sent = True
    return sent


def _kill_all(processes: list[psutil.Process]) -> bool:
    kill = signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM
    _signal(processes, kill)
    return _wait_gone(processes, KILL_WAIT, pause=KILL_POLL)


def _wait_gone(processes: Iterable[psutil.Process], timeout: float, *, pause: float = POLL) -> bool:
    return wait_until(lambda: all(map(_is_gone, processes)), timeout, pause=pause)


def _is_gone(process: psutil.Process) -> bool:
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            reap_child(process.pid)
            return True
        return not process.is_running()
    except psutil.Error:
        return True
