"""Chromium's command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
# Clearing a context's cache dooms the profile's caches of shaders as well, with some 750 accesses to files. The
# browser keeps what it compiled in memory as well; only headless ones, since a real GPU may compile for seconds.
SHADERS_IN_MEMORY = ("--disable-gpu-shader-disk-cache",)


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
        *(() if headed else (*HEADLESS_SWITCHES, *SHADERS_IN_MEMORY)),
        *(() if sandboxed else ("--no-sandbox",)),
        *QUIET_SWITCHES,
        *extra,
        f"--user-data-dir={user_data_dir}",
        f"--remote-debugging-port={port}",
        "about:blank",
    ]
