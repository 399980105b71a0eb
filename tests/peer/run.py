"""pytest-playwright's own suite, with and without pytest-peaks: `python tests/peer/run.py FOLDER WITHOUT WITH`.

FOLDER is a checkout of microsoft/playwright-pytest; nothing is fetched. WITHOUT and WITH are two Python interpreters
with the same packages, but that the second has pytest-peaks too. A third run, with the word ``bridge`` as a last
argument, lets every test of the suite ride on sessions of peaks (``PEAKS_BRIDGE=1``).

The suite runs in a copy. It expects Playwright's own downloads, so the copy's HOME has wrappers in their places that
start the Chromium of this machine, and the ffmpeg of the package imageio-ffmpeg where that is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

# What Playwright 1.65 renamed; the suite is older.
RENAMED = ('"ws_endpoint"', '"endpoint"')
WRAPPER = '#!/bin/sh\nexec {executable} --no-sandbox "$@"\n'
FACTS = """
import json, pathlib, playwright
entries = json.loads((pathlib.Path(playwright.__file__).parent / "driver/package/browsers.json").read_text())
try:
    import imageio_ffmpeg
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
except ImportError:
    ffmpeg = ""
print(json.dumps([{entry["name"]: entry["revision"] for entry in entries["browsers"]}, ffmpeg]))
"""
SHELL = "/usr/lib/chromium/chromium-headless-shell"


def prepare(home: Path, python: str) -> None:
    """Put what the suite looks for in its places."""
    answer = subprocess.run([python, "-c", FACTS], check=True, capture_output=True, text=True).stdout
    revisions, ffmpeg = json.loads(answer)
    cache = home / ".cache" / "ms-playwright"
    chromium = shutil.which("chromium") or SHELL
    places = {
        f"chromium_headless_shell-{revisions['chromium-headless-shell']}/chrome-headless-shell-linux64/"
        "chrome-headless-shell": SHELL if Path(SHELL).exists() else chromium,
        f"chromium-{revisions['chromium']}/chrome-linux64/chrome": chromium,
    }
    for place, executable in places.items():
        path = cache / place
        path.parent.mkdir(parents=True)
        path.write_text(WRAPPER.format(executable=executable))
        path.chmod(0o755)
    if ffmpeg:
        path = cache / f"ffmpeg-{revisions['ffmpeg']}" / "ffmpeg-linux"
        path.parent.mkdir(parents=True)
        path.symlink_to(ffmpeg)


def outcomes(checkout: Path, python: str, scratch: Path, **environment: str) -> dict[str, str]:
    """How each test of the suite ended."""
    home, copy = scratch / "home", scratch / "copy"
    prepare(home, python)
    shutil.copytree(checkout, copy)
    suite = copy / "tests" / "test_sync.py"
    suite.write_text(suite.read_text().replace(*RENAMED))
    report = scratch / "report.xml"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PEAKS"))}
    env |= {"HOME": str(home), "PATH": f"{Path(python).parent}:{env['PATH']}", **environment}
    env.pop("CI", None)
    # Two workers and the suite's own setup.cfg; the copy is its root.
    command = [python, "-m", "pytest", "tests/test_sync.py", "-n", "2", "-q", f"--junitxml={report}"]
    subprocess.run(command, cwd=copy, env=env, check=False, stdout=subprocess.DEVNULL)
    found = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        ended = next((kind for kind in ("error", "failure", "skipped") if kind in kinds), "passed")
        found[case.attrib["name"]] = ended
        if ended in ("error", "failure") and "PEER_SHOW" in os.environ:
            print(f"--- {case.attrib['name']}\n{ET.tostring(case, 'unicode', 'text')[-3000:]}")
    return found


def main() -> int:
    checkout, without, with_peaks, *more = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="peaks-peer-") as name:
        scratch = Path(name)
        columns = {
            "without": outcomes(Path(checkout), without, scratch / "without"),
            "with": outcomes(Path(checkout), with_peaks, scratch / "with"),
        }
        if more == ["bridge"]:
            columns["bridge"] = outcomes(Path(checkout), with_peaks, scratch / "bridge", PEAKS_BRIDGE="1")
    print("| test | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for test in sorted(columns["without"].keys() | columns["with"].keys()):
        print(f"| {test} | " + " | ".join(column.get(test, "not run") for column in columns.values()) + " |")
    for title, column in columns.items():
        ends = list(column.values())
        print(f"{title}: " + ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends))))
    return int(columns["without"] != columns["with"])


if __name__ == "__main__":
    sys.exit(main())
