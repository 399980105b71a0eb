"""What Playwright's Python wheel brings along: node, its command line, and the parts of the CLI."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_peaks.errors import DriverFailedError
from pytest_peaks.session.live import node_environment

# Names the folder that playwright-cli takes for the home folder when it looks for the user's configuration.
GLOBAL_CONFIG = "PWTEST_CLI_GLOBAL_CONFIG"

# In HTTP mode the MCP server watches for the end of its stdin but never reads it, and so does the CLI's
# daemon. Both would outlive their parent. Reading makes the watch work.
STDIN_GUARD = "data:text/javascript,process.stdin.resume()"

# Names the folder in which an MCP server over HTTP notes its use; see `door_notes.mjs`.
DOOR_NOTES = "PEAKS_DOOR_NOTES"

# Names the file in which an MCP server is told its browser; see `door_waiting.mjs`.
AWAITED = "PEAKS_DOOR_AWAITED"


def driver_command() -> list[str]:
    """Node and ``cli.js`` of the Playwright wheel. Run directly, so that the pid is the program's own.

    ``PLAYWRIGHT_NODEJS_PATH`` names another node, as in Playwright.

    :raises DriverFailedError: the installed Playwright has neither.
    """
    # Not by Playwright's own (private) function, whose import takes longer than a call of the CLI.
    from importlib.util import find_spec

    spec = find_spec("playwright")
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places:
        raise DriverFailedError("Playwright is not installed", hint="pip install playwright")
    driver = Path(places[0]) / "driver"
    script = driver / "package" / "cli.js"
    if not script.exists():
        from playwright._impl._driver import compute_driver_executable

        return list(compute_driver_executable())
    node = os.environ.get("PLAYWRIGHT_NODEJS_PATH") or str(
        driver / ("node.exe" if os.name == "nt" else "node")
    )
    return [node, str(script)]


def client_config(url: str, name: str = "playwright") -> dict[str, Any]:
    """The ``mcpServers`` entry of a server at `url`, to paste into a client's configuration."""
    return {"mcpServers": {name: {"type": "http", "url": url}}}


def mcp_preloads() -> list[str]:
    """What node is to import before an MCP server: URLs, in which no space is left."""
    return [STDIN_GUARD, Path(__file__).resolve().with_name("door_notes.mjs").as_uri()]


def waiting_preload() -> str:
    """What node is to import before an MCP server that is told its browser later; see `door_waiting.mjs`."""
    return Path(__file__).resolve().with_name("door_waiting.mjs").as_uri()


def cli_daemon_script() -> Path:
    """The program that runs one session of playwright-cli.

    :raises DriverFailedError: the installed Playwright has none (it came with 1.62).
    """
    return _part("lib", "entry", "cliDaemon.js")


def cli_surface_file() -> Path:
    """The JSON file in which playwright-cli describes its commands.

    :raises DriverFailedError: the installed Playwright has none (it came with 1.62).
    """
    return _part("lib", "tools", "cli-client", "help.json")


def cli_scope(
    env: Mapping[str, str], folder: Path, output_dir: Path, *, own_list: bool = True
) -> dict[str, str]:
    """A session's environment in which a daemon's registry, sockets and artifacts are its own.

    The names are private to Playwright, and `tests/test_cli_contract.py` holds them against it.

    :param folder: private and short; the sockets are below it.
    :param output_dir: where files go that are not given a name.
    :param own_list: False leaves the user's list of browsers in force, by which one is found by its title.
    """
    environment = node_environment(env)
    environment.pop("PLAYWRIGHT_CLI_SESSION", None)
    environment.update(
        PWTEST_DAEMON_SESSION_DIR=str(folder / "d"),
        PWTEST_SOCKETS_DIR=str(folder / "s"),
        PLAYWRIGHT_MCP_OUTPUT_DIR=str(output_dir),
    )
    if own_list:
        environment["PWTEST_SERVER_REGISTRY"] = str(folder / "r")
    return environment


def _part(*names: str) -> Path:
    path = Path(driver_command()[1]).parent.joinpath(*names)
    if not path.exists():
        raise DriverFailedError(
            f"the installed Playwright has no {path.name}", hint="pip install --upgrade 'playwright>=1.62'"
        )
    return path
