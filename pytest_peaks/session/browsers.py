"""Which browsers are on this machine, and where."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pytest_peaks.errors import BrowserNotFoundError
from pytest_peaks.session import machine
from pytest_peaks.session.spec import BrowserName, BrowserSpec

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
        if not _is_of_this_system(candidate):
            continue
        looked_for.append(candidate)
        path = _resolve(candidate)
        if path is not None:
            # Firefox and WebKit are launched by the driver, which knows its own download.
            return Found(name, path if name.is_chromium else None, source)
    raise BrowserNotFoundError(
        f"no {name} on this machine; looked for {', '.join(looked_for)}",
        hint=f"run `{_INSTALL_COMMANDS[name]}`, or name one with --peaks-executable",
    )


def inspector_problem() -> str:
    """Why Playwright's inspector, which ``PWDEBUG=1`` asks for, cannot be shown here; empty if it can.

    It is a window of its own, in a browser that Playwright itself has to find: its own Chromium,
    Chrome or Edge. Without one the driver refuses every connection.
    """
    if os.environ.get("PWDEBUG", "") in ("", "0", "false", "console"):
        return ""
    if not machine.has_display():
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
    folder = download_folder(name)
    for inside in _INSIDE[name] if folder is not None else ():
        yield f"{folder}/{inside}"


def download_folder(name: str) -> Path | None:
    """Where the installed Playwright looks for a download of its own; None if it does not say."""
    package = _playwright_package()
    if package is None:
        return None
    try:
        listed = json.loads((package / "driver" / "package" / "browsers.json").read_text())["browsers"]
        revision = next(str(entry["revision"]) for entry in listed if entry["name"] == name)
    except (OSError, ValueError, KeyError, StopIteration, TypeError):
        return None
    return playwright_browsers_dir() / f"{name.replace('-', '_')}-{revision}"


def _is_of_this_system(candidate: str) -> bool:
    """Whether a place could exist on this system at all."""
    if "/Contents/MacOS/" in candidate or "/chrome-mac" in candidate:
        return sys.platform == "darwin"
    if candidate.endswith(".exe"):
        return sys.platform == "win32"
    return True


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
