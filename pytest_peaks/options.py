"""The options of a run: every setting in three spellings."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_peaks.artifacts.options import Keep
from pytest_peaks.session.ports import WORKER_PORTS
from pytest_peaks.session.spec import BrowserName, Isolation

_KEEPS = ", ".join(Keep)
_KEEP = "|".join(Keep)
_NAMES = ", ".join(BrowserName)
_ISOLATIONS = ", ".join(Isolation)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting, its three spellings derived from `name`: ``--peaks-name``, ``peaks_name``, ``PEAKS_NAME``."""

    name: str
    help: str
    metavar: str = ""
    flag: bool = False
    command_line: bool = True

    @property
    def switch(self) -> str:
        return f"--peaks-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        return f"peaks_{self.name}"

    @property
    def env(self) -> str:
        return f"PEAKS_{self.name.upper()}"


BROWSER = Option("browser", f"Browser of all sessions: {_NAMES}. Default: chromium.", "NAME")
EXECUTABLE = Option("executable", "Path of the browser's executable. Default: look for one.", "PATH")
HEADED = Option("headed", "Show the browser's window.", flag=True)
ISOLATION = Option(
    "isolation",
    f"What a test without a marker of its own shares with the next: {_ISOLATIONS}. Default: fresh.",
    "KIND",
)
PORTS = Option(
    "ports",
    f"Debugging ports, FIRST-LAST or one port; 0 lets the system choose. Default: {WORKER_PORTS}, then 0.",
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
TRACING = Option("tracing", f"Record a trace of each test: {_KEEPS}. Default: off.", _KEEP)
SCREENSHOT = Option(
    "screenshot", f"Take a picture of each page at the end of a test: {_KEEPS}. Default: off.", _KEEP
)
VIDEO = Option("video", f"Record a video of each page: {_KEEPS}. Default: off.", _KEEP)
FULL_PAGE_SCREENSHOT = Option("full_page_screenshot", "Pictures show the page's whole height.", flag=True)
OUTPUT = Option("output", "Folder of what tracing, screenshot and video keep. Default: test-results.", "DIR")
BASE_URL = Option("base_url", "What relative URLs start at. Default: a fixture of that name.", "URL")
DEVICE = Option(
    "device", "The device that contexts emulate, such as 'iPhone 15': Playwright's names.", "NAME"
)
SLOWMO = Option("slowmo", "Milliseconds that Playwright waits before each of its actions.", "MS")
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
)
