"""Playwright's driver as a process: its environment, one that is started ahead, and which child it is."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_peaks.doors.bundled import driver_command
from pytest_peaks.session import browsers, processes, spawning
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import node_cache_dir

if TYPE_CHECKING:
    import asyncio

# pytest changes it with every phase of a test, and it means nothing to the driver.
_CHANGING = "PYTEST_CURRENT_TEST"
_EXIT_POLL = 0.002
# What NODE_OPTIONS was; the preload puts it back for what the driver starts.
_OURS = "PEAKS_NODE_OPTIONS"


def _settings(folder: Path) -> dict[str, str]:
    """What the driver's environment has of ours.

    Its temp files lie in `folder`: what a killed one leaves then goes with it. Where ``PWDEBUG`` asks for an
    inspector that cannot be shown, it gets the console variant.
    """
    settings = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    cache = node_cache_dir()
    if cache is not None:
        settings["NODE_COMPILE_CACHE"] = str(cache)
    if browsers.inspector_problem():
        settings["PWDEBUG"] = "console"
    before = os.environ.get("NODE_OPTIONS", "")
    # Quoted, since node splits at spaces; a backslash in quotes escapes.
    preload = str(Path(__file__).resolve().with_name("no_deflate.cjs")).replace("\\", "/")
    settings["NODE_OPTIONS"] = f'{before} --require "{preload}"'.strip()
    settings[_OURS] = before
    return settings


@contextlib.contextmanager
def driver_environment(folder: Path) -> Iterator[None]:
    """Have the driver start with our settings. Saved logins and their key are not for it.

    :param folder: where it puts its temp files.
    """
    if _OURS in os.environ:  # of an outer one
        yield
        return
    changed = _settings(folder)
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        with spawning.secrets_aside():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def driver_children() -> list[ProcessIdentity]:
    """Playwright drivers among this process's children."""
    import psutil

    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if "run-driver" in child.cmdline():
                identity = ProcessIdentity.of(child.pid)
                if identity is not None:
                    found.append(identity)
    return found


class SpareDriver:
    """A driver that runs before Playwright asks for one, since node takes long to load it.

    Playwright takes it only if it would start the very same: command, environment and working directory. It ends
    by itself when this process does, as any driver: it reads the end of its stdin.
    """

    def __init__(
        self,
        command: list[str],
        env: dict[str, str],
        process: subprocess.Popen[bytes],
        identity: ProcessIdentity,
    ) -> None:
        self._command = command
        self._env = env
        self._cwd = os.getcwd()  # noqa: PTH109 - compared as it is
        self._process = process
        self.identity = identity
        self.is_taken = False
        self._is_over = False

    @classmethod
    def start(cls, folder: Path) -> SpareDriver | None:
        """Start one with `folder` for its temp files; None where that is not possible."""
        if os.name != "posix":
            return None
        try:
            from playwright._repo_version import version

            command = [*driver_command(), "run-driver"]
            env = {**spawning.without_secrets(), **_settings(folder)}
            env |= {
                "PW_LANG_NAME": "python",
                "PW_LANG_NAME_VERSION": f"{sys.version_info.major}.{sys.version_info.minor}",
                "PW_CLI_DISPLAY_VERSION": version,
            }
            process = subprocess.Popen(
                command, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=_stderr()
            )
        except Exception:  # whatever is wrong is told when a test needs the driver
            return None
        identity = ProcessIdentity.of(process.pid)
        if identity is None:  # it has ended already
            process.communicate()
            return None
        return cls(command, env, process, identity)

    @contextlib.contextmanager
    def offered(self) -> Iterator[None]:
        """Have Playwright take it where it would start a driver."""
        import asyncio

        start = asyncio.create_subprocess_exec

        async def take_or_start(*command: Any, **options: Any) -> Any:
            if self._is_asked_for(command, options):
                self.is_taken = True
                return await self._handed_over(options.get("limit", 2**16))
            return await start(*command, **options)

        setattr(asyncio, "create_subprocess_exec", take_or_start)  # noqa: B010 - it is a function to mypy
        try:
            yield
        finally:
            setattr(asyncio, "create_subprocess_exec", start)  # noqa: B010

    def _is_asked_for(self, command: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
        return (
            not (self.is_taken or self._is_over)
            and list(command) == self._command
            and _lasting(options.get("env") or {}) == _lasting(self._env)
            and os.getcwd() == self._cwd  # noqa: PTH109
            and self._process.poll() is None
        )

    async def _handed_over(self, limit: int) -> _Child:
        import asyncio

        loop = asyncio.get_running_loop()
        output = asyncio.StreamReader(limit=limit, loop=loop)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output, loop=loop), self._process.stdout
        )
        # Nothing is read from its stdin; the reader is there for the protocol that a writer needs.
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), loop=loop),
            self._process.stdin,
        )
        return _Child(self._process, asyncio.StreamWriter(transport, protocol, None, loop), output)

    def discard(self) -> None:
        """End it, unless Playwright has it. Idempotent."""
        if self.is_taken or self._is_over:
            return
        self._is_over = True
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                end.close()
        processes.end_tree(self.identity, grace=0.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(processes.KILL_WAIT)


class _Child:
    """What Playwright uses of ``asyncio.subprocess.Process``."""

    def __init__(
        self, process: subprocess.Popen[bytes], stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
    ) -> None:
        self._process = process
        self.stdin = stdin
        self.stdout = stdout
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.poll()

    async def wait(self) -> int:
        import asyncio

        while (status := self._process.poll()) is None:
            await asyncio.sleep(_EXIT_POLL)
        return status

    async def communicate(self) -> tuple[bytes, None]:
        rest = await self.stdout.read()
        self.stdin.close()
        await self.wait()
        return rest, None


def _lasting(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != _CHANGING}


def _stderr() -> int | None:
    """Where the driver's words go: where Python's do, as Playwright has it."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return sys.__stderr__.fileno() if sys.__stderr__ is not None else None
