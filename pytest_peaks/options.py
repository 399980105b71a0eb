"""The options of a run: every setting in three spellings. Every pytest run loads it, so it imports next to nothing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

# The values of `Keep`, `BrowserName` and `Isolation`, and `WORKER_PORTS`, which a test holds them against.
KEEPS = "off, on, retain-on-failure, on-first-retry"
NAMES = "chromium, chrome, msedge, firefox, webkit"
ISOLATIONS = "fresh, recycled, profile, browser"
PORT_RANGE = "8950-9149"
_KEEP = KEEPS.replace(", ", "|")


class Option:
    """One setting, its three spellings derived from `name`: ``--peaks-name``, ``peaks_name``, ``PEAKS_NAME``."""

    def __init__(
        self, name: str, text: str, metavar: str = "", *, flag: bool = False, command_line: bool = True
    ) -> None:
        self.name = name
        self.help = text
        self.metavar = metavar
        self.flag = flag
        self.command_line = command_line

    @property
    def switch(self) -> str:
        return f"--peaks-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        return f"peaks_{self.name}"

    @property
    def env(self) -> str:
        return f"PEAKS_{self.name.upper()}"


BROWSER = Option("browser", f"Browser of all sessions: {NAMES}. Default: chromium.", "NAME")
EXECUTABLE = Option("executable", "Path of the browser's executable. Default: look for one.", "PATH")
HEADED = Option("headed", "Show the browser's window.", flag=True)
ISOLATION = Option(
    "isolation",
    f"What a test without a marker of its own shares with the next: {ISOLATIONS}. Default: fresh.",
    "KIND",
)
PORTS = Option(
    "ports",
    f"Debugging ports, FIRST-LAST or one port; 0 lets the system choose. Default: {PORT_RANGE}, then 0.",
    "RANGE",
)
DEBUG_PORT = Option(
    "debug_port",
    "Whether Chromium opens a debugging port (on, off). Every user of this machine can reach that port; off "
    "launches through Playwright's own pipe, with the Playwright door only. Default: on.",
    command_line=False,
)
MCP_COMMAND = Option(
    "mcp_command",
    "Another MCP server, such as 'npx @playwright/mcp'. Default: the one in Playwright's wheel.",
    "COMMAND",
)
REUSE = Option(
    "reuse",
    "Keep each worker's browser running for the next run (on, off). Ignored in CI (environment variable CI), "
    "unless it is 'force'. Default: off.",
    "on|off|force",
)
FRESH = Option("fresh", "End the browsers that --peaks-reuse kept, and start anew.", flag=True)
ATTACH = Option(
    "attach",
    "Run tests in contexts of their own inside a browser that is there: a CDP URL, a Playwright server's URL, or "
    "the id of a terminal from `peaks playwright ls`.",
    "URL",
)
DESK_WAIT = Option(
    "desk_wait",
    "Seconds that a test waits for a desk, or for its named identity to be free. Default: 300.",
    "SECONDS",
)
ASYNC_SAFE = Option(
    "async_safe",
    "Whether tests that run an event loop work beside browser tests (on, off); on does so as well for runs that use "
    "pytest-playwright alone. Default: in runs with a test of peaks.",
    "on|off",
)
BRIDGE = Option(
    "bridge",
    "Let pytest-playwright's page, context, new_context and browser of all tests ride on peaks' sessions; without it "
    "those of tests marked peaks_session do.",
    flag=True,
)
TRACING = Option("tracing", f"Record a trace of each test: {KEEPS}. Default: off.", _KEEP)
SCREENSHOT = Option(
    "screenshot", f"Take a picture of each page at the end of a test: {KEEPS}. Default: off.", _KEEP
)
VIDEO = Option("video", f"Record a video of each page: {KEEPS}. Default: off.", _KEEP)
FULL_PAGE_SCREENSHOT = Option("full_page_screenshot", "Pictures show the page's whole height.", flag=True)
OUTPUT = Option("output", "Folder of what tracing, screenshot and video keep. Default: test-results.", "DIR")
BASE_URL = Option("base_url", "What relative URLs start at. Default: a fixture of that name.", "URL")
DEVICE = Option(
    "device", "The device that contexts emulate, such as 'iPhone 15': Playwright's names.", "NAME"
)
SLOWMO = Option("slowmo", "Milliseconds that Playwright waits before each of its actions.", "MS")
AUTO_WORKERS = Option(
    "auto_workers",
    "Whether `-n auto` starts fewer workers where CPUs or memory do not suffice for their browsers (on, off). "
    "Default: on.",
    command_line=False,
)
OPTIONS = (
    BROWSER,
    EXECUTABLE,
    HEADED,
    ISOLATION,
    PORTS,
    REUSE,
    FRESH,
    ATTACH,
    DEBUG_PORT,
    MCP_COMMAND,
    DESK_WAIT,
    ASYNC_SAFE,
    BRIDGE,
    TRACING,
    SCREENSHOT,
    VIDEO,
    FULL_PAGE_SCREENSHOT,
    OUTPUT,
    BASE_URL,
    DEVICE,
    SLOWMO,
    AUTO_WORKERS,
)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("peaks", "an isolated browser for every worker (pytest-peaks)")
    for option in OPTIONS:
        if option.command_line and option.flag:
            group.addoption(
                option.switch, action="store_true", default=None, dest=option.ini, help=option.help
            )
        elif option is REUSE:
            group.addoption(
                option.switch,
                nargs="?",
                const="on",
                default=None,
                dest=option.ini,
                metavar="force",
                help=option.help,
            )
        elif option.command_line:
            group.addoption(
                option.switch, default=None, dest=option.ini, metavar=option.metavar, help=option.help
            )
        parser.addini(option.ini, f"{option.help} Environment: {option.env}.", default="")


def any_given(config: pytest.Config) -> bool:
    """Whether anything was said about a setting, which then has to be read and validated at once."""
    return any(
        (option.command_line and config.getoption(option.ini, default=None) is not None)
        or os.environ.get(option.env)
        or config.getini(option.ini)
        for option in OPTIONS
    )


def give_reuse_its_value(args: list[str]) -> None:
    """Let ``--peaks-reuse`` stand alone: argparse would take the next word, a test file, for its value."""
    args[:] = [f"{REUSE.switch}=on" if argument == REUSE.switch else argument for argument in args]
