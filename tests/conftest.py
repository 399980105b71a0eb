"""Every test gets a project, a runtime dir, a temp dir and ports of its own, and a check that nothing is left.

So the suite can run beside a developer's own live sessions: it never looks at, or signals, what
it did not start itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from leaks import Surroundings

pytest_plugins = ["pytester"]

SUITE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def _node_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache of what node compiles for the whole suite, and not the developer's."""
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "node-cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_COMPILE_CACHE", str(cache))
        yield


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Surroundings]:
    """An environment of the test's own; `surroundings.assert_clean(project)` is the leak check."""
    for name in list(os.environ):
        if name.startswith(("PEAKS_", "PLAYWRIGHT_MCP_", "PYTEST_ADDOPTS", "PWDEBUG", "PYTEST_XDIST")):
            monkeypatch.delenv(name)
    # Short, since what Chromium keeps in it has a socket's name.
    temp = Path(tempfile.mkdtemp(prefix="pkt-", dir="/tmp" if os.name == "posix" else None))
    made = Surroundings.prepare(temp, tmp_path / "runtime")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", None)  # forget what was computed from the old TMPDIR
    yield made
    made.clear()


@pytest.fixture
def project(
    pytester: pytest.Pytester, surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.Pytester]:
    """A pytest project of its own, without plugins that the developer happens to have; checked for leaks at the end."""
    # Also in projects with an ini file of their own: these two are for tests/test_async.py alone.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:asyncio -p no:anyio")
    pytester.makeini(
        """
        [pytest]
        addopts = -p no:playwright -p no:cacheprovider --strict-markers
        filterwarnings = error
        """
    )
    yield pytester
    surroundings.assert_clean(pytester.path)


@pytest.fixture
def peaks() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the `peaks` command: ``peaks("doctor", "--json", cwd=…)``."""

    def run(
        *arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from pytest_peaks.cli import main; main()", *arguments],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    return run


@pytest.fixture
def site() -> Iterator[str]:
    """Base URL of a loopback web site."""
    from webserver import serve

    with serve() as url:
        yield url
