"""Which executable, which switches, and whether Chromium's sandbox can be used."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_peaks.errors import BrowserNotFoundError, NoDisplayError
from pytest_peaks.session.spec import BrowserName, BrowserSpec

# Playwright's own default switches for Chromium (its chromiumSwitches.ts and chromium.ts, release
# 1.65, Apache-2.0). They are more than taste: without them a browser reached over CDP partitions
# the storage of iframes, throttles background tabs and asks about search engines.
# tests/test_switches.py holds this list against what the installed Playwright passes.
DISABLED_FEATURES = (
    "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose",
    "HttpsUpgrades",
    "HttpsFirstBalancedModeAutoEnable",
    "LensOverlay",
    "MediaRouter",
    "PaintHolding",
    "ThirdPartyStoragePartitioning",
    "AvoidCorsURLLoaderRestartOnRedirect",
    "TcpPortRandomizationWin",
    "OptimizationHints",
    "NetworkTimeServiceQuerying",
    "AimEnabled",
    "PreconnectToSearch",
    "msForceBrowserSignIn",
    "msEdgeUpdateLaunchServicesPreferredVersion",
)
ENABLED_FEATURES = ("CDPScreenshotNewSurface", "SkipListAccountsWithoutGaiaCookies")
DEFAULT_SWITCHES = (
    "--disable-field-trial-config",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-back-forward-cache",
    "--disable-breakpad",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--no-default-browser-check",
    "--disable-default-apps",
    "--disable-dev-shm-usage",  # a container's 64 MB /dev/shm is too small for Chromium
    "--disable-edgeupdater",
    "--disable-extensions",
    "--disable-features=" + ",".join(DISABLED_FEATURES),
    "--enable-features=" + ",".join(ENABLED_FEATURES),
    "--allow-pre-commit-input",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-renderer-backgrounding",
    "--disable-updater-scheduler",
    "--force-color-profile=srgb",
    "--metrics-recording-only",
    "--no-first-run",
    "--password-store=basic",
    "--use-mock-keychain",
    "--no-service-autorun",
    "--disable-search-engine-choice-screen",
    "--unsafely-disable-devtools-self-xss-warnings",
    "--enable-unsafe-swiftshader",
    "--edge-skip-compat-layer-relaunch",
    "--disable-stack-profiler",
    "--disable-infobars",
    "--disable-sync",
    "--do-not-de-elevate",
)
HEADLESS_SWITCHES = (
    "--headless",
    "--hide-scrollbars",
    "--mute-audio",
    "--blink-settings=primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4",
)
# What pages write to their console would otherwise land in the log file, tokens and all. The
# headless shell heeds the first switch only, the full browser the second; fatal errors are still told.
QUIET_SWITCHES = ("--enable-logging=none", "--log-level=2")

_INSTALL_COMMANDS = {
    BrowserName.CHROMIUM: "peaks install",
    BrowserName.CHROME: "playwright install chrome",
    BrowserName.MSEDGE: "playwright install msedge",
    BrowserName.FIREFOX: "playwright install firefox",
    BrowserName.WEBKIT: "playwright install --with-deps webkit",
}

# Below PATH's names: where systems keep them. Debian's /usr/bin/chromium-headless-shell is a
# wrapper that does not exec, so that its pid would not be the browser's.
_SHELLS = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib64/chromium-browser/headless_shell",
)
_CHROMIUMS = (
    "chromium",
    "chromium-browser",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_CHANNELS = {
    BrowserName.CHROME: (
        "google-chrome-stable",
        "google-chrome",
        "/opt/google/chrome/chrome",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        r"%PROGRAMFILES%\Google\Chrome\Application\chrome.exe",
        r"%PROGRAMFILES(X86)%\Google\Chrome\Application\chrome.exe",
        r"%LOCALAPPDATA%\Google\Chrome\Application\chrome.exe",
    ),
    BrowserName.MSEDGE: (
        "microsoft-edge-stable",
        "microsoft-edge",
        "/opt/microsoft/msedge/msedge",
        "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
        r"%PROGRAMFILES(X86)%\Microsoft\Edge\Application\msedge.exe",
        r"%PROGRAMFILES%\Microsoft\Edge\Application\msedge.exe",
    ),
}


@dataclass(frozen=True, slots=True)
class Found:
    """A browser on this machine.

    :ivar executable: None where Playwright's driver finds its own download by itself.
    :ivar source: ``option``, ``playwright`` or ``system``.
    """

    browser: BrowserName
    executable: Path | None
    source: str

    def __str__(self) -> str:
        where = str(self.executable) if self.executable else f"Playwright's own {self.browser}"
        return f"{self.browser} ({where})"


def find(spec: BrowserSpec) -> Found:
    """The browser that `spec` means. Headless Chromium prefers a headless shell: twice as fast, half the memory.

    :raises BrowserNotFoundError: there is none; names what was looked for and the command that installs it.
    """
    name = spec.browser
    if spec.executable is not None:
        chosen = spec.executable
        if chosen.is_file() and os.access(chosen, os.X_OK):
            return Found(name, chosen, "option")
        reason = "does not exist" if not chosen.exists() else "is not an executable file"
        raise BrowserNotFoundError(
            f"the executable {chosen} {reason}",
            hint=f"correct --peaks-executable, or leave it out and run `{_INSTALL_COMMANDS[name]}`",
        )
    looked_for: list[str] = []
    for candidate, source in _candidates(name, headed=spec.headed):
        looked_for.append(candidate)
        path = _resolve(candidate)
        if path is not None:
            # Firefox and WebKit are launched by the driver, which knows its own download.
            return Found(name, path if name.is_chromium else None, source)
    raise BrowserNotFoundError(
        f"no {name} on this machine; looked for {', '.join(looked_for)}",
        hint=f"run `{_INSTALL_COMMANDS[name]}`, or name one with --peaks-executable",
    )


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


def inspector_problem() -> str:
    """Why Playwright's inspector, which ``PWDEBUG=1`` asks for, cannot be shown here; empty if it can.

    It is a window of its own, in a browser that Playwright itself has to find: its own Chromium,
    Chrome or Edge. Without one the driver refuses every connection.
    """
    if os.environ.get("PWDEBUG", "") in ("", "0", "false", "console"):
        return ""
    if not has_display():
        return "there is no display"
    names = [
        *_playwright_patterns("chromium"),
        *_CHANNELS[BrowserName.CHROME],
        *_CHANNELS[BrowserName.MSEDGE],
    ]
    if not any(map(_resolve, names)):
        return "it needs Playwright's own Chromium (`playwright install chromium`) or Chrome"
    return ""


def _candidates(name: BrowserName, *, headed: bool) -> Iterator[tuple[str, str]]:
    """What to look for, best first, with where it comes from."""
    if name is BrowserName.CHROMIUM:
        if not headed:
            yield from (
                (pattern, "playwright") for pattern in _playwright_patterns("chromium-headless-shell")
            )
            yield from ((path, "system") for path in _SHELLS)
        yield from ((pattern, "playwright") for pattern in _playwright_patterns("chromium"))
        yield from ((path, "system") for path in _CHROMIUMS)
    elif name in _CHANNELS:
        yield from ((path, "system") for path in _CHANNELS[name])
    else:
        yield from ((pattern, "playwright") for pattern in _playwright_patterns(name))


# The executable within Playwright's own download, by platform.
_INSIDE = {
    "chromium-headless-shell": ("chrome-headless-shell-*/chrome-headless-shell", "chrome-*/headless_shell"),
    "chromium": (
        "chrome-linux*/chrome",
        "chrome-mac*/*.app/Contents/MacOS/*",
        "chrome-win*/chrome.exe",
    ),
    "firefox": ("firefox/firefox*", "firefox/*.app/Contents/MacOS/firefox"),
    "webkit": ("pw_run.sh", "Playwright.exe"),
}


def playwright_browsers_dir() -> Path:
    """Where Playwright keeps its downloads (its docs: "Managing browser binaries")."""
    chosen = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if chosen == "0":
        package = _playwright_package()
        return (package / "driver" / "package" / ".local-browsers") if package else Path("/nonexistent")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "ms-playwright"


def _playwright_package() -> Path | None:
    spec = find_spec("playwright")
    places = spec.submodule_search_locations if spec else None
    return Path(places[0]) if places else None


def _playwright_patterns(name: str) -> Iterator[str]:
    """Glob patterns of the download whose revision the installed Playwright expects."""
    package = _playwright_package()
    if package is None:
        return
    try:
        listed = json.loads((package / "driver" / "package" / "browsers.json").read_text())["browsers"]
        revision = next(str(entry["revision"]) for entry in listed if entry["name"] == name)
    except (OSError, ValueError, KeyError, StopIteration, TypeError):
        return
    folder = playwright_browsers_dir() / f"{name.replace('-', '_')}-{revision}"
    for inside in _INSIDE[name]:
        yield f"{folder}/{inside}"


def _resolve(candidate: str) -> Path | None:
    """An executable for a name on PATH, a path, or a glob pattern."""
    if "*" in candidate:
        base = Path(candidate.partition("*")[0]).parent
        with contextlib.suppress(OSError, ValueError):
            for path in sorted(base.glob(str(Path(candidate).relative_to(base)))):
                if path.is_file() and os.access(path, os.X_OK):
                    return path
        return None
    expanded = os.path.expandvars(candidate)
    found = shutil.which(expanded)
    return Path(found) if found else None


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


def command(
    executable: Path,
    *,
    port: int,
    user_data_dir: Path,
    headed: bool,
    sandboxed: bool,
    extra: Sequence[str] = (),
) -> list[str]:
    """Chromium's command line, but for the debugging pipe, which the spawner adds."""
    return [
        str(executable),
        *DEFAULT_SWITCHES,
        *(() if headed else HEADLESS_SWITCHES),
        *(() if sandboxed else ("--no-sandbox",)),
        *QUIET_SWITCHES,
        *extra,
        f"--user-data-dir={user_data_dir}",
        f"--remote-debugging-port={port}",
        "about:blank",
    ]
