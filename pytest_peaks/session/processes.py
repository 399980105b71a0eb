"""Spawning and ending processes. The only place that signals anything.

A process is signalled only if it is the recorded one (pid and start time agree), belongs to this
user, and is neither pid 1 nor the caller.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pytest_peaks.session.identity import ProcessIdentity

if TYPE_CHECKING:
    import psutil

# After SIGKILL the kernel needs milliseconds; this much is for a machine that is out of breath.
KILL_WAIT = 5.0
POLL = 0.01
MARK = "PEAKS_SESSION"


class OwnerPipe:
    """The two ends that an owner holds of a browser's ``--remote-debugging-pipe``.

    Nothing is ever written or read. When the last holder closes them or dies, Chromium exits.
    A forked child must not keep a dead owner's browser alive, so forking closes them in the child.
    """

    _open: ClassVar[weakref.WeakSet[OwnerPipe]] = weakref.WeakSet()

    def __init__(self, *ends: int) -> None:
        self._ends = list(ends)
        self._lock = threading.Lock()
        self._open.add(self)

    def close(self) -> None:
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            with contextlib.suppress(OSError):
                os.close(end)

    @classmethod
    def close_all(cls) -> None:
        for pipe in list(cls._open):
            pipe._lock = threading.Lock()  # another thread may have held it at the fork
            pipe.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OwnerPipe.close_all)


@dataclass(frozen=True, slots=True)
class Spawned:
    identity: ProcessIdentity
    pipe: OwnerPipe


def spawn_browser(command: Sequence[str], env: Mapping[str, str], log: Path) -> Spawned:
    """Start a Chromium in a session of its own, its debugging pipe held by this process.

    Its output goes to `log`. `command` must not hold the pipe switch: it is added here.

    :raises OSError: the executable can't be run.
    """
    if os.name == "nt":
        return _spawn_browser_windows(command, env, log)
    to_browser, ours_out = map(_lifted, os.pipe())
    ours_in, from_browser = map(_lifted, os.pipe())
    with_pipe = [*command[:1], "--remote-debugging-pipe", *command[1:]]
    return _spawn_posix(with_pipe, env, log, {3: to_browser, 4: from_browser}, OwnerPipe(ours_out, ours_in))


def spawn_held(command: Sequence[str], env: Mapping[str, str], log: Path) -> Spawned:
    """Start a server in a session of its own, its stdin held open and unused by this process.

    When the pipe is closed, or this process dies, the server reads the end of its stdin.

    :raises OSError: the executable can't be run.
    """
    if os.name == "nt":
        with log.open("wb") as output:
            child = subprocess.Popen(
                list(command),
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,  # type: ignore[attr-defined]
            )
        assert child.stdin is not None, "asked for"
        child.returncode = 0  # its life is watched by identity, not through this object
        return Spawned(_identity_of_child(child.pid), OwnerPipe(os.dup(child.stdin.fileno())))
    executable = shutil.which(command[0], path=env.get("PATH")) or command[0]
    stdin, ours = map(_lifted, os.pipe())
    return _spawn_posix([executable, *command[1:]], env, log, {0: stdin}, OwnerPipe(ours))


def _lifted(descriptor: int) -> int:
    """Move a descriptor away from the low numbers, which are the child's."""
    import fcntl

    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(descriptor)
    return high


def _spawn_posix(
    command: Sequence[str], env: Mapping[str, str], log: Path, ends: Mapping[int, int], pipe: OwnerPipe
) -> Spawned:
    """Spawn with the descriptors `ends` (number in the child: ours, closed here afterwards) and output in `log`."""
    try:
        pid = os.posix_spawn(
            command[0],
            list(command),
            env,
            file_actions=[
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *((os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in ends.items()),
            ],
            setsid=True,
            setsigmask=(),
        )
    except BaseException:
        pipe.close()
        raise
    finally:
        for end in ends.values():
            os.close(end)
    return Spawned(_identity_of_child(pid), pipe)


def _inheritable() -> list[int]:
    """Descriptors that a child would get besides its standard ones: what a shell or make opened for pytest.

    A browser that held a shell's lock (``exec 9>lock``) or the jobs of make would keep it.
    """
    found = []
    with contextlib.suppress(OSError):
        for entry in Path("/dev/fd").iterdir():
            number = int(entry.name)
            with contextlib.suppress(OSError):  # the listing's own
                if number > 2 and os.get_inheritable(number):
                    found.append(number)
    return found


def _spawn_browser_windows(command: Sequence[str], env: Mapping[str, str], log: Path) -> Spawned:
    # Chromium on Windows takes its pipe as two inherited handles named on the command line.
    import msvcrt

    to_browser, ours_out = os.pipe()
    ours_in, from_browser = os.pipe()
    pipe = OwnerPipe(ours_out, ours_in)
    try:
        handles = [msvcrt.get_osfhandle(end) for end in (to_browser, from_browser)]  # type: ignore[attr-defined]
        for handle in handles:
            os.set_handle_inheritable(handle, True)  # type: ignore[attr-defined]
        startup = subprocess.STARTUPINFO(lpAttributeList={"handle_list": handles})  # type: ignore[attr-defined]
        switches = ["--remote-debugging-pipe", f"--remote-debugging-io-pipes={handles[0]},{handles[1]}"]
        with log.open("wb") as output:
            child = subprocess.Popen(
                [*command[:1], *switches, *command[1:]],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                startupinfo=startup,
                creationflags=subprocess.CREATE_NEW_PROCESS_GROUP,  # type: ignore[attr-defined]
            )
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(to_browser)
        os.close(from_browser)
    child.returncode = 0  # its life is watched by identity, not through this object
    return Spawned(_identity_of_child(child.pid), pipe)


def _identity_of_child(pid: int) -> ProcessIdentity:
    """Identity of a child that was just spawned, also if it has already ended."""
    identity = ProcessIdentity.of(pid)
    if identity is not None:
        return identity
    me = ProcessIdentity.of_self()
    return ProcessIdentity(pid, 0, me.host, me.boot, me.namespace)


def spawn_detached(
    command: Sequence[str], env: Mapping[str, str], log: Path | None = None
) -> ProcessIdentity:
    """Start a process that outlives this one and no signal to our group reaches.

    :raises OSError: the executable can't be run.
    """
    with open(log or os.devnull, "ab") as output:  # noqa: PTH123 - devnull is no path of ours
        flags = 0
        if os.name == "nt":
            flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP  # type: ignore[attr-defined]
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            creationflags=flags,
        )
    child.returncode = 0  # never waited for: see reap_child
    return _identity_of_child(child.pid)


def python_command(module: str, argument: str) -> list[str]:
    """The command line that runs ``main()`` of one of our modules in this Python, with one argument."""
    # -P and append: nothing in the working directory or beside the package shadows the standard library.
    package_parent = str(Path(__file__).resolve().parents[2])
    code = f"import sys; sys.path.append({package_parent!r}); from {module} import main; main()"
    return [sys.executable, "-P", "-c", code, argument]


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
    import psutil

    if not root.is_alive():
        return True
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
    for process in psutil.process_iter():
        if not _may_signal(process):
            continue
        with contextlib.suppress(psutil.Error, OSError):
            # Helpers overwrite their environment but not their place in the tree: ending the root
            # ends them, and those with the mark are found here one by one.
            if switch in process.cmdline() or process.environ().get(MARK) == session_id:
                yield process


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
    return _wait_gone(processes, KILL_WAIT)


def _wait_gone(processes: Iterable[psutil.Process], timeout: float) -> bool:
    return wait_until(lambda: all(map(_is_gone, processes)), timeout)


def _is_gone(process: psutil.Process) -> bool:
    import psutil

    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            reap_child(process.pid)
            return True
        return not process.is_running()
    except psutil.Error:
        return True
