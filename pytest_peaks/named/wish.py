"""What a named session is to be, and whether it can be."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.doors.bundled import GLOBAL_CONFIG
from pytest_peaks.errors import InvalidOptionError, PeaksError
from pytest_peaks.named import sessions
from pytest_peaks.session import browsers, machine, profiles
from pytest_peaks.session.browsers import Found
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.spec import BrowserName, BrowserSpec

# The same in a configuration file, where they are about the browser.
_SHARING_IN_CONFIG = ("userDataDir", "cdpEndpoint", "remoteEndpoint")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a session is to be.

    :ivar browser: None for what the configuration says, else Chromium, a headless shell where there is one.
    :ivar persistent: keep its profile, in the project's folder.
    :ivar profile: a user's own profile; kept.
    :ivar attach: ``cdp=URL`` or such, for a session on a browser that is there already.
    :ivar config: a configuration file of playwright-cli.
    :ivar flags: further options of the daemon, as they are.
    :ivar idle_timeout: milliseconds without a command after which it ends, 0 for never; None for the default.
    """

    browser: str | None = None
    executable: Path | None = None
    headed: bool = False
    persistent: bool = False
    profile: Path | None = None
    attach: str = ""
    config: Path | None = None
    flags: tuple[str, ...] = ()
    idle_timeout: str | None = None


def check_configs(wish: Wish) -> None:
    """Refuse a configuration with which every session would work on one browser or one profile."""
    if wish.attach:
        return
    home = os.environ.get(GLOBAL_CONFIG)
    of_user = (Path(home) if home else Path.home()) / ".playwright" / "cli.config.json"
    for file in (wish.config, of_user):
        if file is None or not file.is_file():
            continue
        text = file.read_text(encoding="utf-8-sig", errors="replace")
        try:
            browser = json.loads(text).get("browser") or {}
            shared = [key for key in _SHARING_IN_CONFIG if browser.get(key)]
        except (ValueError, AttributeError, RecursionError):  # it may be an .ini file
            shared = [
                key
                for key in _SHARING_IN_CONFIG
                if re.search(rf"^\s*(browser\.)?{key}\s*=", text, re.MULTILINE)
            ]
        if shared:
            raise InvalidOptionError(
                f"{file} sets {', '.join(shared)}, which all sessions would share",
                hint="leave it out there; a session is given a profile with --profile, a browser with attach",
            )


def chosen_by_config(wish: Wish) -> bool:
    """Whether the configuration file says which browser to launch, and nothing else does."""
    if wish.config is None or wish.browser or wish.executable:
        return False
    try:
        browser = json.loads(wish.config.read_text(encoding="utf-8-sig")).get("browser") or {}
        launch = browser.get("launchOptions") or {}
        return bool(browser.get("browserName") or launch.get("channel") or launch.get("executablePath"))
    except (OSError, ValueError, AttributeError):
        return False  # the daemon will say what is wrong with it


def browser_of(wish: Wish) -> Found:
    name = next((each for each in BrowserName if each == (wish.browser or "chromium")), None)
    if name is None:
        raise InvalidOptionError(
            f"--browser={wish.browser} is not a browser", hint=f"choose one of: {', '.join(BrowserName)}"
        )
    spec = BrowserSpec(name, wish.executable, wish.headed)
    try:
        machine.check_display(spec)
        return browsers.find(spec)
    except PeaksError as error:
        # pytest's names of the same options.
        raise type(error)(error.message, hint=error.hint.replace("--peaks-", "--")) from None


def profile_for(dirs: ProjectDirs, name: str, wish: Wish) -> Path | None:
    if wish.profile is not None:
        return profiles.check_user_data_dir(wish.profile, dirs.root)
    return sessions.profile_of(dirs, name) if wish.persistent else None
