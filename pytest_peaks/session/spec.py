"""What was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_peaks.session.identity import ProcessIdentity
    from pytest_peaks.session.ports import PortRange


class BrowserName(StrEnum):
    """Browsers that can be asked for, by Playwright's names of browsers and channels."""

    CHROMIUM = "chromium"
    CHROME = "chrome"
    MSEDGE = "msedge"
    FIREFOX = "firefox"
    WEBKIT = "webkit"

    @property
    def is_chromium(self) -> bool:
        return self not in (BrowserName.FIREFOX, BrowserName.WEBKIT)


class Isolation(StrEnum):
    """How much one test shares with the next one of its worker.

    ``fresh``: a context of its own in the worker's browser. ``recycled``: one that tests before it had, proved
    blank. ``profile``: the default context of
    the worker's browser, with all that earlier tests left in it. ``browser``: a process of its own.
    """

    FRESH = "fresh"
    RECYCLED = "recycled"
    PROFILE = "profile"
    BROWSER = "browser"


class Door(StrEnum):
    """Doors beyond Playwright that a test can declare."""

    MCP = "mcp"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class McpOptions:
    """How an MCP server is to be started.

    :ivar caps: capabilities beyond the core, such as ``vision``, ``pdf``, ``storage``.
    :ivar args: further arguments of the server, as they are.
    :ivar settle: how long an action waits for what it set off, in milliseconds.
    :ivar command: another server's command line, such as ``npx @playwright/mcp``; empty for the bundled one.
    """

    caps: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    settle: int = 500
    command: str = ""


class LaunchOptions(Mapping[str, Any]):
    """Keyword arguments of Playwright's ``BrowserType.launch``, as one hashable value.

    Its `repr` shows the names only: the value of ``proxy`` or ``env`` may be a secret.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options = dict(options or {})
        self._key = repr(sorted(self._options.items()))

    def __getitem__(self, name: str) -> Any:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LaunchOptions) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"LaunchOptions({', '.join(sorted(self._options))})"


@dataclass(frozen=True, slots=True)
class BrowserSpec:
    """A browser process: two equal ones may share it.

    :ivar executable: None means to look for one.
    :ivar user_data_dir: a user's own profile (absolute), None for one made for the session.
    :ivar debug_port: False launches through Playwright's own pipe, with the Playwright door only.
    :ivar persistent: its default context is a kept profile.
    :ivar by_driver: Playwright's driver launches it although it has a debugging port: the only way to
        give context options to a default context.
    :ivar slow_mo: milliseconds that Playwright waits before each action.
    :ivar switches: further ones of Chromium's command line.
    :ivar launch: what Playwright's driver is told besides, where it launches the browser.
    """

    browser: BrowserName = BrowserName.CHROMIUM
    executable: Path | None = None
    headed: bool = False
    user_data_dir: Path | None = None
    debug_port: bool = True
    persistent: bool = False
    by_driver: bool = False
    slow_mo: float = 0.0
    switches: tuple[str, ...] = ()
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    @property
    def own_process(self) -> bool:
        """Whether peaks spawns it (else Playwright's driver does)."""
        return self.debug_port and self.browser.is_chromium and not self.by_driver

    @property
    def needs_profile(self) -> bool:
        """Whether it works on a user-data dir that peaks names."""
        return self.own_process or self.persistent or self.by_driver


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """One session as a test asked for it.

    :ivar url: where the page is taken before the test gets it.
    :ivar context_options: keyword arguments of Playwright's ``Browser.new_context``.
    :ivar auth: the saved login that it begins with; empty for none.
    :ivar desk: the named identity that it is, at one of the project's desks; empty for none.
    :ivar device: what the context emulates, by Playwright's name; empty for none.
    :ivar save: what that identity holds at the end of a test that passed is saved.
    :ivar doors: what else is to lead into it. A session with one runs in the browser's default
        context, which all doors share.
    """

    browser: BrowserSpec
    name: str = ""
    isolation: Isolation = Isolation.FRESH
    url: str | None = None
    context_options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    doors: frozenset[Door] = frozenset()
    mcp: McpOptions = McpOptions(settle=0)
    auth: str = ""
    desk: str = ""
    save: bool = False
    device: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """The pytest run and the place in it that sessions are acquired for.

    :ivar uid: same in the controller and all its workers; ``[a-z0-9]``.
    :ivar worker: xdist's id, ``main`` without xdist.
    :ivar controller: the process that reports the run; without xdist the caller itself.
    :ivar workers: how many processes run tests.
    """

    uid: str
    slot: int
    worker: str
    controller: ProcessIdentity
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Hosting:
    """What makes a session a hosted one: a name that is found again, and a port for its MCP server.

    :ivar base: the terminal's id; the session's name, unless `with_port`.
    :ivar with_port: the name is ``<base>@<port>``: the terminal holds another session.
    :ivar ports: where its MCP server listens; its Chromium takes a port of the system's choice.
    :ivar terminal: see ``Record.terminal``.
    :ivar launch: see ``Record.launch``.
    """

    base: str
    with_port: bool
    ports: PortRange
    terminal: str = ""
    launch: str = ""

    def name(self, port: int) -> str:
        return f"{self.base}@{port}" if self.with_port else self.base
