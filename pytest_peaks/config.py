"""Options, ini keys and environment variables, read and validated once.

The command line wins over the environment, the environment over the ini file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_peaks import playwright_options
from pytest_peaks.artifacts.options import ArtifactOptions, Keep
from pytest_peaks.errors import InvalidNameError, InvalidOptionError
from pytest_peaks.options import (
    ASYNC_SAFE,
    ATTACH,
    AUTO_WORKERS,
    BASE_URL,
    BRIDGE,
    BROWSER,
    DEBUG_PORT,
    DESK_WAIT,
    DEVICE,
    EXECUTABLE,
    FRESH,
    FULL_PAGE_SCREENSHOT,
    HEADED,
    ISOLATION,
    MCP_COMMAND,
    OUTPUT,
    PORTS,
    REUSE,
    SCREENSHOT,
    SLOWMO,
    TRACING,
    VIDEO,
    Option,
)
from pytest_peaks.session.ports import WORKER_PORTS, PortRange
from pytest_peaks.session.spec import BrowserName, BrowserSpec, Isolation, LaunchOptions, McpOptions

if TYPE_CHECKING:
    import pytest

    from pytest_peaks.playwright_options import TheirOptions

E = TypeVar("E", bound=Enum)
T = TypeVar("T")


# What a value that may be left out means.
REUSE_VALUES = ("on", "off", "force")


@dataclass(frozen=True, slots=True)
class PeaksConfig:
    """What a run was asked for.

    :ivar root: pytest's rootdir; relative paths start there.
    :ivar async_safe: ``on``, ``off``, or empty where nothing was said.
    :ivar bridge: whether pytest-playwright's fixtures of all tests ride on sessions of peaks.
    :ivar device: the device to emulate, by Playwright's name; empty for none.
    :ivar slow_mo: milliseconds before each action.
    :ivar channel: one of Playwright's channels that is no browser of ours, such as ``chrome-beta``.
    """

    root: Path
    browser: BrowserName
    executable: Path | None
    headed: bool
    isolation: Isolation
    ports: PortRange
    debug_port: bool
    mcp: McpOptions
    reuse: str
    fresh: bool
    attach: str
    desk_wait: float = 300.0
    async_safe: str = ""
    bridge: bool = False
    artifacts: ArtifactOptions = field(default_factory=ArtifactOptions)
    base_url: str = ""
    device: str = ""
    slow_mo: float = 0.0
    channel: str = ""
    auto_workers: bool = True

    @property
    def browser_spec(self) -> BrowserSpec:
        return BrowserSpec(
            browser=self.browser,
            executable=self.executable,
            headed=self.headed,
            debug_port=self.debug_port and not self.channel,
            slow_mo=self.slow_mo,
            launch=LaunchOptions({"channel": self.channel} if self.channel else {}),
        )


def read(config: pytest.Config) -> PeaksConfig:
    """The validated configuration.

    :raises PeaksError: a value can't be used; names the spelling in which it was given.
    """

    theirs = playwright_options.given(config)

    def value(option: Option, parse: Callable[[str], T], default: T) -> T:
        given, source = _lookup(config, option, theirs)
        if given == "":
            return default
        try:
            return parse(given)
        except (InvalidOptionError, InvalidNameError) as error:
            raise type(error)(f"{source}: {error.message}", hint=error.hint) from None

    return PeaksConfig(
        root=config.rootpath,
        browser=value(BROWSER, lambda text: one_of(BrowserName, text, "a browser"), BrowserName.CHROMIUM),
        executable=value(EXECUTABLE, lambda text: path_from(config.rootpath, text, "path"), None),
        headed=value(HEADED, _boolean, _headed_by_default()),
        isolation=value(ISOLATION, lambda text: one_of(Isolation, text, "an isolation"), Isolation.FRESH),
        ports=value(PORTS, PortRange.parse, WORKER_PORTS),
        debug_port=value(DEBUG_PORT, _boolean, True),
        # Half a second after every action is for pages that a person watches; a test waits for what it wants.
        mcp=McpOptions(settle=0, command=value(MCP_COMMAND, str, "")),
        reuse=value(REUSE, _reuse, "off"),
        fresh=value(FRESH, _boolean, False),
        attach=value(ATTACH, _attach, ""),
        desk_wait=value(DESK_WAIT, lambda text: _number(text, "seconds"), 300.0),
        async_safe=value(ASYNC_SAFE, lambda text: "on" if _boolean(text) else "off", ""),
        bridge=value(BRIDGE, _boolean, False),
        artifacts=ArtifactOptions(
            tracing=value(TRACING, _keep, Keep.OFF),
            screenshot=value(SCREENSHOT, _keep, Keep.OFF),
            video=value(VIDEO, _keep, Keep.OFF),
            full_page=value(FULL_PAGE_SCREENSHOT, _boolean, False),
            output=value(
                OUTPUT,
                lambda text: path_from(Path.cwd(), text, "folder"),  # as pytest-playwright's --output
                Path.cwd() / "test-results",
            ),
        ),
        base_url=value(BASE_URL, str, ""),
        device=value(DEVICE, str, ""),
        slow_mo=value(SLOWMO, lambda text: _number(text, "milliseconds"), 0.0),
        channel=theirs.channel,
        auto_workers=value(AUTO_WORKERS, _boolean, True),
    )


def _lookup(config: pytest.Config, option: Option, theirs: TheirOptions) -> tuple[str, str]:
    """The value as text and where it came from; empty where it was not given."""
    if option.command_line:
        given = config.getoption(option.ini, default=None)
        if given is not None:
            return str(given), option.switch
    if option.name in theirs.values:
        return theirs.values[option.name]
    if os.environ.get(option.env):
        return os.environ[option.env], option.env
    return str(config.getini(option.ini) or ""), f"{option.ini} in the ini file"


def one_of(kind: type[E], text: object, what: str) -> E:
    """The member of `kind` whose value is `text`.

    :raises InvalidOptionError: there is none; lists those there are.
    """
    for member in kind:
        if member.value == text:
            return member
    raise InvalidOptionError(
        f"{text!r} is not {what}", hint=f"choose one of: {', '.join(str(member.value) for member in kind)}"
    )


def path_from(root: Path, text: str | Path, what: str) -> Path:
    """A path that a user gave; relative ones start at `root`, ``~`` is the home folder.

    :raises InvalidOptionError: a user whose home is unknown comes after the ``~``.
    """
    try:
        return root / Path(text).expanduser()
    except RuntimeError:
        raise InvalidOptionError(
            f"{what} {str(text)!r} begins with the home folder of an unknown user", hint="write the path out"
        ) from None


def _reuse(text: str) -> str:
    if text not in REUSE_VALUES:
        raise InvalidOptionError(f"{text!r} is not a kind of reuse", hint="choose one of: on, off, force")
    return text


def _keep(text: str) -> Keep:
    # pytest-playwright's word for screenshots.
    return one_of(Keep, Keep.ON_FAILURE.value if text == "only-on-failure" else text, "a time to keep it")


def _number(text: str, unit: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < math.inf:
        raise InvalidOptionError(f"{text!r} is not a number of {unit}", hint="0 does not wait at all")
    return number


def _attach(text: str) -> str:
    """A URL, or the id of a terminal."""
    if "://" not in text:
        from pytest_peaks.hosting.terminals import check_terminal_id

        return check_terminal_id(text)
    if not text.startswith(("http://", "https://", "ws://", "wss://")):
        raise InvalidOptionError(
            f"{text!r} is no URL to attach to", hint="http://, https://, ws:// or wss://"
        )
    return text


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise InvalidOptionError(f"{text!r} is neither on nor off", hint="choose one of: on, off")


def _headed_by_default() -> bool:
    """PWDEBUG shows the window, as it does in Playwright, where there is a display to show it."""
    from pytest_peaks.session.machine import has_display

    return bool(os.environ.get("PWDEBUG")) and has_display()
