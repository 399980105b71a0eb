"""A Chromium that peaks launches is switched as one that the installed Playwright launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from leaks import Surroundings

from pytest_peaks.session import browsers
from pytest_peaks.session.spec import BrowserSpec
from pytest_peaks.session.switches import (
    DEFAULT_SWITCHES,
    HEADLESS_SWITCHES,
    QUIET_SWITCHES,
    SHADERS_IN_MEMORY,
    command,
)

# The lists are those of this release. An older one passes others, which is no fault of ours; a newer
# one that passes others is what these tests are for.
SOURCE = (1, 65)
as_playwright = pytest.mark.skipif(
    tuple(map(int, version("playwright").split(".")[:2])) < SOURCE,
    reason="the lists are of a later Playwright",
)

# What is a browser's own: where it is reached, where its profile is, what it opens, whether it has a
# sandbox, what it logs, and a cache on disk that no page can tell from one in memory.
OWN = (
    "--user-data-dir=",
    "--remote-debugging-",
    "--no-sandbox",
    "--no-startup-window",
    "about:blank",
    *QUIET_SWITCHES,
    *SHADERS_IN_MEMORY,
)

# In a process of its own, since one thread can run one synchronous Playwright only.
LAUNCH = """
import json, sys, psutil
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=sys.argv[1])
    # The main process is the one that no other of its program started.
    for process in psutil.Process().children(recursive=True):
        command = process.cmdline()
        if command and "--remote-debugging-pipe" in command and not any(a.startswith("--type=") for a in command):
            print(json.dumps(command[1:]))
            break
    browser.close()
"""

# Notes how it was started and ends, as a Chromium without its libraries would.
NOTING = """#!{python} -IS
import json, sys
with open({note!r}, "w") as file:
    json.dump(sys.argv[1:], file)
sys.exit(1)
"""

LAUNCH_HEADED = """
import sys
from playwright.sync_api import Error, sync_playwright
with sync_playwright() as playwright:
    try:
        playwright.chromium.launch(executable_path=sys.argv[1], headless=False)
    except Error:
        pass
"""


def run(code: str, executable: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, str(executable)], check=True, capture_output=True, text=True, timeout=120
    )
    return done.stdout


def switches(line: list[str]) -> set[str]:
    """A command line without what is `OWN`; lists of features are sets."""
    found = {part for part in line if not part.startswith(OWN)}
    return {_sorted_features(part) for part in found}


def _sorted_features(switch: str) -> str:
    name, _, values = switch.partition("=")
    return f"{name}={','.join(sorted(values.split(',')))}" if name.endswith("-features") else switch


def difference(ours: set[str], theirs: set[str]) -> dict[str, list[str]]:
    return {"only ours": sorted(ours - theirs), "only Playwright's": sorted(theirs - ours)}


NONE = {"only ours": [], "only Playwright's": []}


@as_playwright
def test_a_headless_browser_gets_the_switches_that_playwright_gives_it(surroundings: Surroundings) -> None:
    found = browsers.find(BrowserSpec())
    assert found.executable is not None
    theirs = json.loads(run(LAUNCH, found.executable))
    ours = command(found.executable, port=9000, user_data_dir=Path("/profile"), headed=False, sandboxed=True)
    assert difference(switches(ours[1:]), switches(theirs)) == NONE
    assert switches(ours[1:]) == switches([*DEFAULT_SWITCHES, *HEADLESS_SWITCHES])


@as_playwright
@pytest.mark.skipif(os.name != "posix", reason="an executable script")
def test_a_browser_with_a_window_gets_the_switches_that_playwright_gives_it(
    tmp_path: Path, surroundings: Surroundings
) -> None:
    stand_in, note = tmp_path / "chromium", tmp_path / "note.json"
    stand_in.write_text(NOTING.format(python=sys.executable, note=str(note)))
    stand_in.chmod(0o755)
    run(LAUNCH_HEADED, stand_in)
    theirs = json.loads(note.read_text())
    ours = command(stand_in, port=9000, user_data_dir=Path("/profile"), headed=True, sandboxed=True)
    assert difference(switches(ours[1:]), switches(theirs)) == NONE
    assert switches(ours[1:]) == switches([*DEFAULT_SWITCHES])


def test_the_command_names_the_profile_the_port_and_whether_there_is_a_sandbox() -> None:
    def built(*, headed: bool = False, sandboxed: bool = True, extra: tuple[str, ...] = ()) -> list[str]:
        return command(
            Path("/opt/chromium"),
            port=9000,
            user_data_dir=Path("/two words"),
            headed=headed,
            sandboxed=sandboxed,
            extra=extra,
        )

    assert built()[0] == "/opt/chromium"
    assert built()[-3:] == ["--user-data-dir=/two words", "--remote-debugging-port=9000", "about:blank"]
    assert "--remote-debugging-pipe" not in built(), "the spawner adds it"
    assert "--no-sandbox" not in built()
    assert set(built(sandboxed=False)) - set(built()) == {"--no-sandbox"}
    assert set(built()) - set(built(headed=True)) == {*HEADLESS_SWITCHES, *SHADERS_IN_MEMORY}
    assert set(QUIET_SWITCHES) <= set(built(headed=True))
    assert set(built(extra=("--lang=de",))) - set(built()) == {"--lang=de"}
    for given in (DEFAULT_SWITCHES, HEADLESS_SWITCHES, QUIET_SWITCHES):
        assert len({switch.partition("=")[0] for switch in given}) == len(given), (
            "a later switch hides an earlier"
        )
