"""`peaks cli` as the tests call it: the real command, in a project of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record
from pytest_peaks.session.registry import Registry

PEAKS = [sys.executable, "-c", "from pytest_peaks.cli import main; main()"]
# For a machine that is out of breath; no test waits this long where all is well.
PATIENCE = 90.0
# What a page knows of itself and keeps.
SELF = "() => ({href: location.href, cookie: document.cookie, local: {...localStorage}, session: {...sessionStorage}})"


def wait_until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about: {what}"
        time.sleep(0.02)


def at_once(tasks: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run them all at the same time; their results, in order."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [future.result() for future in [pool.submit(task) for task in tasks]]


@dataclass
class Project:
    """A project in which `peaks` is called.

    :ivar env: set in every call's environment.
    """

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Project:
        (folder / ".git").mkdir(parents=True)
        # Commands wait for what a page does after them; these pages do nothing.
        return cls(folder, {"PLAYWRIGHT_MCP_TIMEOUT_SETTLE": "0"})

    @property
    def dirs(self) -> ProjectDirs:
        return ProjectDirs.locate(self.folder)

    def spawn(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*PEAKS, *arguments],
            cwd=cwd or self.folder,
            env={**os.environ, **self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # nobody's terminal
        )

    def peaks(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return finished(self.spawn(*arguments, cwd=cwd, **env))

    def cli(self, *arguments: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return self.peaks("cli", *arguments, cwd=cwd, **env)

    def text(self, *arguments: str, cwd: Path | None = None, **env: str) -> str:
        """What is said where all is well."""
        done = self.cli(*arguments, cwd=cwd, **env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not done.stderr
        return done.stdout

    def ok(self, *arguments: str, cwd: Path | None = None, **env: str) -> Any:
        """The JSON that is printed where all is well."""
        return json.loads(self.text(*arguments, "--json", cwd=cwd, **env))

    def raw(self, name: str, *arguments: str, cwd: Path | None = None, **env: str) -> Any:
        """The JSON literal that ``--raw`` prints."""
        return json.loads(self.text(f"-s={name}", "--raw", *arguments, cwd=cwd, **env))

    def me(self, name: str) -> dict[str, Any]:
        """What the page of a session knows of itself."""
        found: dict[str, Any] = self.raw(name, "eval", SELF)
        return found

    def fails(
        self, code: str, status: int, *arguments: str, cwd: Path | None = None, **env: str
    ) -> dict[str, Any]:
        """The object that is printed for a failure."""
        return failed(self.cli("--json", *arguments, cwd=cwd, **env), code, status)

    def open(self, name: str, *arguments: str, **env: str) -> dict[str, Any]:
        opened: dict[str, Any] = self.ok(f"-s={name}", "open", *arguments, **env)
        assert set(opened) == {"session", "pid", "result"}
        return opened

    def listed(self) -> dict[str, dict[str, Any]]:
        """The sessions that `list` shows, by name."""
        return {row["name"]: row for row in self.ok("list")["browsers"]}

    def states(self) -> dict[str, str]:
        return {name: row["status"] for name, row in self.listed().items()}

    def record(self, name: str) -> Record:
        found = Registry(self.dirs.records).read(f"cli-{name}")
        assert found is not None, f"{name} has a record"
        return found

    def parts(self, name: str) -> dict[str, ProcessIdentity]:
        """The daemon and the browser of a session."""
        found = dict(self.record(name).processes)
        assert set(found) == {"cli", "browser"}
        assert all(part.is_alive() for part in found.values())
        return found

    def works(self, name: str, number: int = 6) -> bool:
        return bool(self.raw(name, "eval", f"() => {number} * 7") == number * 7)


def finished(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    out, err = process.communicate(timeout=PATIENCE * 2)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def failed(done: subprocess.CompletedProcess[str], code: str, status: int) -> dict[str, Any]:
    found = json.loads(done.stdout)
    assert (found.get("error"), done.returncode) == (code, status), (found, done.stderr)
    assert {**found, "message": "", "hint": ""} == {
        "schema": 1,
        "ok": False,
        "action": "cli",
        "isError": True,
        "error": code,
        "message": "",
        "hint": "",
    }
    assert not done.stderr
    return dict(found)
