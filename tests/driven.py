"""A pytest run in a process group of its own, which a test watches and sends signals to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_peaks.session.identity import ProcessIdentity

# For a machine that is out of breath; no test waits this long where all is well.
PATIENCE = 90.0
# What a core can carry, in waiting processes, before a promise in seconds says nothing about the project.
PER_CORE = 2.5

# What a developer's environment happens to have. Hypothesis, for one, is imported as late as at the end of a run,
# which would count as ours.
OTHER_PLUGINS = ("hypothesispytest", "pytest_cov", "rerunfailures", "timeout")

# What the tests of a driven run have at hand.
CONFTEST = '''
import json, os, pathlib, signal, time

import psutil, pytest
from pytest_peaks.session.identity import ProcessIdentity

SEEN = pathlib.Path(__file__).parent / "seen"


def write(name, **facts):
    """Tell the outside what was seen; whole or not at all."""
    part = SEEN / f".{os.getpid()}-{name}"
    part.write_text(json.dumps(facts))
    part.replace(SEEN / name)


def read(name):
    return json.loads((SEEN / name).read_text())


def wait_until(condition, otherwise):
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.02)


def wait_for(path):
    """Wait until the outside, or another test, has made `path`."""
    wait_until(path.exists, f"{path} never came")


def driver():
    """Playwright's driver of this process."""
    [found] = [child for child in psutil.Process().children() if "run-driver" in child.cmdline()]
    return found


def use_doors(session):
    """Have every door that the module's tests declare in use."""
    door = os.environ.get("DRIVEN_DOORS")
    if door == "mcp":
        session.mcp.call("browser_tabs", action="list")
    elif door == "cli":
        session.cli("screenshot")


@pytest.fixture
def here(peaks_session, peaks_page, peaks_slot, worker_id):
    """An open page; calling it tells the outside where and on what this test runs."""
    peaks_page.set_content("<h1>open</h1>")
    use_doors(peaks_session)

    def tell(name=f"here-{worker_id}"):
        write(
            name, worker=worker_id, slot=peaks_slot, process=ProcessIdentity.of_self().to_json(),
            browser=ProcessIdentity.of(peaks_session.pid).to_json(), driver=driver().pid,
            port=peaks_session.port, profile=str(peaks_session.user_data_dir),
            record=peaks_session.user_data_dir.name,
        )

    return tell
'''


@dataclass(frozen=True)
class Here:
    """What a test said of the place it runs in."""

    worker: str
    slot: int
    process: ProcessIdentity
    browser: ProcessIdentity
    driver: int
    port: int
    profile: Path
    record: str

    @classmethod
    def read(cls, path: Path) -> Here:
        facts: dict[str, Any] = json.loads(path.read_text())
        facts["process"] = ProcessIdentity.from_json(facts["process"])
        facts["browser"] = ProcessIdentity.from_json(facts["browser"])
        return cls(**{**facts, "profile": Path(facts["profile"])})


class DrivenRun:
    """A pytest that runs while the test looks on.

    :ivar seen: where its tests write what they saw.
    """

    def __init__(
        self,
        project: pytest.Pytester,
        arguments: Sequence[str],
        prefix: Sequence[str],
        plugins: Sequence[str],
    ) -> None:
        self.project = project.path
        self.seen = self.project / "seen"
        self._output = self.project / "output.txt"
        without = [f"-pno:{name}" for name in OTHER_PLUGINS if name not in plugins]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "pytest", *without, "-rA", *arguments],
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._signalled: float | None = None

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for(self, name: str) -> Path:
        """Wait until a test has written `name`; the run has failed if it ends before."""
        deadline = time.monotonic() + PATIENCE
        while not (self.seen / name).exists():
            assert self.process.poll() is None, f"the run ended before {name} came:\n{self.output}"
            assert time.monotonic() < deadline, f"{name} never came:\n{self.output}"
            time.sleep(0.02)
        return self.seen / name

    def here(self, *workers: str) -> list[Here]:
        """Wait until a test sits in each of `workers` with an open page."""
        return [Here.read(self.wait_for(f"here-{worker}")) for worker in workers]

    def go_on(self) -> None:
        """Let tests that wait for ``seen/go`` continue."""
        (self.seen / "go").touch()

    def send(self, number: int) -> None:
        """Signal the controller alone."""
        self._signalled = time.monotonic()
        self.process.send_signal(number)

    def send_to_group(self, number: int) -> None:
        """Signal all of the run that a terminal would."""
        self._signalled = time.monotonic()
        os.killpg(self.process.pid, number)

    def end(self) -> int:
        """Wait until pytest is gone; its status as `subprocess` gives it."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run does not end:\n{self.output}")

    def rest_of(self, promised: float) -> float:
        """What is left of `promised` seconds since the last signal; more where others take most of the machine."""
        assert self._signalled is not None, "a signal was sent"
        promised *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1) / PER_CORE)
        took = time.monotonic() - self._signalled
        assert took < promised, f"pytest itself took {took:.1f} s to end:\n{self.output}"
        return promised - took

    def outcomes(self) -> dict[str, int]:
        """The counts of pytest's last line."""
        last = [line for line in self.output.splitlines() if re.search(r" in [0-9.]+s", line)][-1]
        counts = re.findall(r"(\d+) (passed|failed|errors?|skipped|xfailed|warnings?|rerun)", last)
        return {what: int(number) for number, what in counts}


@contextmanager
def driven(
    project: pytest.Pytester, *arguments: str, prefix: Sequence[str] = (), plugins: Sequence[str] = ()
) -> Iterator[DrivenRun]:
    """Start a run of the project's tests. Whatever is left of it is ended.

    :param prefix: command that pytest is started with.
    :param plugins: those of `OTHER_PLUGINS` that the run is to have.
    """
    (project.path / "seen").mkdir(exist_ok=True)
    if not (project.path / "conftest.py").exists():
        project.makeconftest(CONFTEST)
    run = DrivenRun(project, arguments, prefix, plugins)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()


def kill(identity: ProcessIdentity, number: int = signal.SIGKILL) -> None:
    """Signal a process of the run, by its identity."""
    assert identity.is_alive(), f"process {identity.pid} is gone already"
    psutil.Process(identity.pid).send_signal(number)
