"""Starting processes: a browser on its pipe, a server on its stdin, one that outlives us."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pytest_peaks.session.identity import ProcessIdentity

# What holds a saved login or the key of one. Only pytest and its workers need it.
SECRET_VARIABLES = ("PEAKS_AUTH_", "PEAKS_STATE_KEY")


def without_secrets() -> dict[str, str]:
    """This process's environment for a child that has no use for saved logins and their key."""
    # Asked one by one: another thread may set the driver's environment meanwhile.
    found = {key: os.environ.get(key) for key in list(os.environ) if not key.startswith(SECRET_VARIABLES)}
    return {key: value for key, value in found.items() if value is not None}


@contextlib.contextmanager
def secrets_aside() -> Iterator[None]:
    """Have a child that takes over this process's environment as it is start without saved logins and their key."""
    kept = {key: value for key, value in os.environ.items() if key.startswith(SECRET_VARIABLES)}
    for key in kept:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(kept)


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
    command: Sequence[str], env: Mapping[str, str], log: Path | None = None, *, cwd: Path | None = None
) -> ProcessIdentity:
    """Start a process that outlives this one and no signal to our group reaches.

    :param cwd: where it works; None for where this process does.

    :raises OSError: the executable can't be run.
    """
    with open(log or os.devnull, "ab") as output:  # noqa: PTH123 - devnull is no path of ours
        flags = 0
        if os.name == "nt":
            flags = subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP  # type: ignore[attr-defined]
        child = subprocess.Popen(
            list(command),
            env=dict(env),
            cwd=cwd,
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
    return [sys.executable, "-P", "-c", _code(module), argument]


def idle_python_command(module: str, argument: str, *, file: Path, beats: int, beat: float) -> list[str]:
    """As :func:`python_command`, for a process that first sleeps `beats` times, and imports nothing meanwhile.

    It leaves at once when `file` is gone. Without ``site`` Python starts in a third of the time.
    """
    code = (
        "import os, sys, time\n"
        f"for _ in range({beats}):\n"
        f"    time.sleep({beat})\n"
        f"    if not os.path.lexists({str(file)!r}): sys.exit()\n"
        f"import site; site.main(); {_code(module)}"
    )
    return [sys.executable, "-P", "-S", "-c", code, argument]


def _code(module: str) -> str:
    package_parent = str(Path(__file__).resolve().parents[2])
    return f"import sys; sys.path.append({package_parent!r}); from {module} import main; main()"
