"""From pytest-playwright's launch arguments to a browser of ours."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_peaks.config import PeaksConfig
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session.spec import BrowserName, BrowserSpec, LaunchOptions

# How long a start takes and who hears of signals is peaks' own affair.
_WITHOUT_MEANING = ("timeout", "handle_sigint", "handle_sigterm", "handle_sighup")
# These say where the browser listens and keeps its profile, which peaks decides.
_RESERVED = ("--remote-debugging", "--user-data-dir")


def browser_spec(config: PeaksConfig, name: str, arguments: Mapping[str, Any]) -> BrowserSpec:
    """The browser that ``browser_name`` and ``browser_type_launch_args`` ask for.

    What peaks can't give a browser that it spawns itself (a proxy, an environment, other channels) makes Playwright's
    driver launch it, with the Playwright door only.

    :raises InvalidOptionError: an argument of Chromium's names a port or a profile.
    """
    spec = config.browser_spec
    if name != BrowserName.CHROMIUM or not spec.browser.is_chromium:
        spec = dataclasses.replace(spec, browser=BrowserName(name))
        if spec.browser is not config.browser:
            spec = dataclasses.replace(spec, executable=None)
    rest = {key: value for key, value in {**spec.launch, **arguments}.items() if value is not None}
    for key in _WITHOUT_MEANING:
        rest.pop(key, None)
    changes: dict[str, Any] = {}
    if "headless" in rest:
        changes["headed"] = not rest.pop("headless")
    if "slow_mo" in rest:
        changes["slow_mo"] = float(rest.pop("slow_mo"))
    if "executable_path" in rest:
        changes["executable"] = Path(rest.pop("executable_path"))
    if rest.get("channel") in (BrowserName.CHROME, BrowserName.MSEDGE):
        changes["browser"] = BrowserName(rest.pop("channel"))
    if spec.browser.is_chromium:
        switches = [str(switch) for switch in rest.pop("args", ())]
        if rest.get("chromium_sandbox") is not None and not rest.pop("chromium_sandbox"):
            switches.append("--no-sandbox")
        changes["switches"] = tuple(_checked(switches))
    changes["launch"] = LaunchOptions(rest)
    if rest:
        changes["debug_port"] = False
    return dataclasses.replace(spec, **changes)


def _checked(switches: list[str]) -> list[str]:
    for switch in switches:
        if switch.startswith(_RESERVED):
            raise InvalidOptionError(
                f"browser_type_launch_args: {switch.partition('=')[0]} is for peaks to choose",
                hint="leave it out; @pytest.mark.peaks_session(user_data_dir=…) names a profile, --peaks-ports a port",
            )
    return switches
