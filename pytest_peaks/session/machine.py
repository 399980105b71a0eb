"""What this machine allows: a display, Chromium's sandbox."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pytest_peaks.errors import NoDisplayError
from pytest_peaks.session.spec import BrowserSpec


def check_display(spec: BrowserSpec) -> None:
    """Refuse a browser with a window where there is no display to show it.

    :raises NoDisplayError: headed, on Linux, with neither DISPLAY nor WAYLAND_DISPLAY.
    """
    if spec.headed and sys.platform.startswith("linux") and not has_display():
        raise NoDisplayError(
            "a browser with a window was asked for and there is no display (DISPLAY is not set)",
            hint="leave out --peaks-headed, or run under a virtual display: xvfb-run -a pytest …",
        )


def has_display() -> bool:
    """Whether a window could be shown; always true off Linux."""
    if not sys.platform.startswith("linux"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Whether Chromium's sandbox is used here, and why not."""

    usable: bool
    reason: str


def sandbox() -> Sandbox:
    """Look at what Chromium's sandbox needs on Linux: no root, and unprivileged user namespaces.

    Source: Chromium's docs/linux/sandboxing.md and Ubuntu's AppArmor restriction of user namespaces.
    """
    if not sys.platform.startswith("linux"):
        return Sandbox(True, "the system's own sandbox")
    if os.geteuid() == 0:
        return Sandbox(False, "running as root")
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return Sandbox(False, "in a container")
    for setting, unusable in (
        ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
        ("/proc/sys/user/max_user_namespaces", "0"),
        ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
    ):
        with contextlib.suppress(OSError):
            if Path(setting).read_text().strip() == unusable:
                return Sandbox(False, f"user namespaces are restricted ({setting} is {unusable})")
    return Sandbox(True, "user namespaces")
