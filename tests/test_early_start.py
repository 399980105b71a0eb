"""The browser and the driver start before the first test asks, and a run that needs neither loads nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from leaks import Surroundings

from pytest_peaks import options
from pytest_peaks.artifacts.options import Keep
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.spec import BrowserName, Isolation

HELLO = """
def test_hello(peaks_page):
    peaks_page.set_content("<h1>hello</h1>")
    assert peaks_page.text_content("h1") == "hello"
"""
PLAIN = "def test_plain(): pass\n"
# Which of the two run as children of this process; `wait` until both do.
CHILDREN = """
import os, pathlib, signal, time
import psutil, pytest

def children(wait=False):
    deadline = time.monotonic() + 30
    while True:
        lines = [" ".join(child.cmdline()) for child in psutil.Process().children()]
        found = [word for word in ("remote-debugging-port", "run-driver") if any(word in line for line in lines)]
        if len(found) == 2 or not wait or time.monotonic() > deadline:
            return found
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("fixture", "options"),
    [("peaks_page", ["-n0"]), ("peaks_page", ["-n2"]), ("page", ["-n0", "--peaks-bridge"])],
    ids=["-n0", "-n2", "bridge"],
)
def test_browser_and_driver_start_before_the_first_tests_fixtures(
    project: pytest.Pytester, fixture: str, options: list[str]
) -> None:
    project.makeconftest(
        CHILDREN
        + """
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    assert children(wait=True) == ["remote-debugging-port", "run-driver"]
"""
    )
    hello = HELLO.replace("peaks_page", fixture)
    project.makepyfile(hello + hello.replace("test_hello", "test_again"))
    project.runpytest_subprocess(*options).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("arguments", "workers"),
    [
        (["--setup-plan", "test_hello.py"], False),
        (["test_hello.py", "test_broken.py"], False),  # a collection error
        (["test_many.py", "test_hello.py", "-k", "plain or hello", "--deselect", "test_hello.py"], False),
        (["test_many.py", "test_hello.py", "--maxfail=1"], False),  # far behind, and not reached
        (["test_many.py", "test_hello.py", "--maxfail=1"], True),  # which worker would run it is not known
    ],
    ids=["plan", "collection error", "deselected", "far behind", "workers"],
)
def test_nothing_starts_that_may_not_be_wanted(
    project: pytest.Pytester, surroundings: Surroundings, arguments: list[str], *, workers: bool
) -> None:
    for name, text in {
        "hello": HELLO,
        "broken": "import nothing_of_this_name\n",
        "many": f"import pytest\n{PLAIN}@pytest.mark.parametrize('n', range(30))\ndef test_many(n): assert n\n",
    }.items():
        (project.path / f"test_{name}.py").write_text(text)
    # With workers a test's failure ends the run only after some more; none of them is a browser test.
    if workers:
        arguments = [*arguments[:1], "-n2", "-k", "plain or many or hello", *arguments[1:]]
    project.runpytest_subprocess(*arguments)
    assert not (project.path / ".peaks").exists()
    assert not (surroundings.runtime / "guardians").exists()


@pytest.mark.parametrize("wait", [True, False], ids=["running", "starting"])
def test_an_interrupt_before_the_first_test_leaves_nothing(project: pytest.Pytester, wait: bool) -> None:
    project.makeconftest(
        CHILDREN
        + f"""
def pytest_runtestloop():
    assert len(children(wait={wait})) == 2 or not {wait}
    raise KeyboardInterrupt
"""
    )
    project.makepyfile(HELLO)
    result = project.runpytest_subprocess()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert (project.path / ".peaks").exists(), "nothing was started"


@pytest.mark.parametrize("who", ["worker", "pytest"])
def test_a_kill_before_the_first_test_leaves_nothing(
    project: pytest.Pytester, surroundings: Surroundings, who: str
) -> None:
    project.makeconftest(
        CHILDREN
        + """
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    once = pathlib.Path(item.config.rootpath, "killed")
    if once.exists():
        return
    assert len(children(wait=True)) == 2
    once.touch()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    project.makepyfile(HELLO)
    workers = "-n1" if who == "worker" else "-n0"
    subprocess.run([sys.executable, "-m", "pytest", workers], cwd=project.path, check=False, timeout=120)
    assert (project.path / "killed").exists()
    surroundings.assert_clean(project.path)


def test_a_start_that_fails_is_told_by_the_test_and_by_nobody_else(project: pytest.Pytester) -> None:
    broken = project.path / "broken"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    project.makepyfile(PLAIN + HELLO)
    result = project.runpytest_subprocess(f"--peaks-executable={broken}", "-s", "-rN")
    result.assert_outcomes(passed=1, errors=1)
    assert result.stdout.str().count("exited with status 3 before it was ready") == 1
    result.stdout.fnmatch_lines(["*it is broken*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_a_run_without_a_browser_test_loads_nothing(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEAKS_PORTS")  # a setting that is given is read and validated at once
    project.makeconftest(
        """
        import sys
        def pytest_unconfigure():
            light = {"fixtures", "hookspecs", "marker_name", "options", "playwright_options", "plugin", "state"}
            ours = {name.partition(".")[2] for name in sys.modules if name.startswith("pytest_peaks.")}
            assert not ours - light, ours - light
            assert not {"playwright", "psutil", "filelock", "click", "platformdirs"} & set(sys.modules)
        """
    )
    project.makepyfile(PLAIN)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # what others load is not ours to say
    result = project.runpytest_subprocess("-q", "-p", "pytest_peaks.plugin")
    assert result.ret == 0, result.stdout.str() + result.stderr.str()


def test_the_options_name_the_values_that_there_are() -> None:
    assert ", ".join(Keep) == options.KEEPS
    assert ", ".join(BrowserName) == options.NAMES
    assert ", ".join(Isolation) == options.ISOLATIONS
    assert str(WORKER_PORTS) == options.PORT_RANGE
