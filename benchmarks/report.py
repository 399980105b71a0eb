"""Tables in Markdown: the machine, what was measured on it, and their place in a page of the docs."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import Figure, Outcome

PACKAGES = ("pytest", "pytest-xdist", "pytest-playwright", "playwright")


def machine(executable: str) -> dict[str, Any]:
    """What the figures depend on, without anything that tells whose machine it is."""
    cpu, memory, system = _read("/proc/cpuinfo"), _read("/proc/meminfo"), _read("/etc/os-release")
    done = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "cpu": _find(r"^model name\s*: (.*)$", cpu) or platform.machine(),
        "virtual": bool(re.search(r"^flags.*\bhypervisor\b", cpu, re.MULTILINE)),
        "memory_gb": round(int(_find(r"^MemTotal:\s+(\d+)", memory) or 0) / 2**20),
        "os": _find(r'^PRETTY_NAME="?(.*?)"?$', system) or platform.system(),
        "python": platform.python_version(),
        "browser": " ".join(re.findall(r"[A-Za-z]+|[\d.]{4,}", done.stdout)[:3]),
        "headless_shell": "headless" in Path(executable).name,
        **{package: version(package) for package in PACKAGES},
        "load": [round(load, 1) for load in os.getloadavg()],
    }


def machine_line(found: dict[str, Any]) -> str:
    kind = "virtual machine" if found["virtual"] else "machine"
    browser = found["browser"] + (" (headless shell)" if found["headless_shell"] else "")
    packages = ", ".join(f"{package} {found[package]}" for package in PACKAGES)
    return (
        f"{found['date']}; {kind} with {found['cores']} cores ({found['cpu']}), {found['memory_gb']} GB; "
        f"{found['os']}, Python {found['python']}, {packages}; {browser}. Load average of the minute before: "
        f"{found['load'][0]}."
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _find(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else ""


def amount(values: Sequence[float], unit: str) -> str:
    middle = statistics.median(values)
    if unit == "MB":
        return f"{middle:.0f} MB"
    return f"{middle:.1f} s" if middle >= 10 else f"{middle:.2f} s"


def _verdict(figure: Figure) -> str:
    if figure.target is None:
        return "–"  # noqa: RUF001
    return f"≤ {figure.target:.2f}: " + ("met" if figure.met else "**missed**")


def _ratio(figure: Figure) -> str:
    """With a third digit where two would make a missed target look like a met one."""
    short = f"{figure.ratio:.2f}"
    return f"{figure.ratio:.3f}" if figure.met is False and float(short) <= (figure.target or 0) else short


def table(outcomes: Sequence[Outcome]) -> str:
    lines = [
        "| what | beside | | peaks | | ratio | spread | promised |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        for number, figure in enumerate(outcome.figures):
            what = outcome.title if number == 0 else ""
            base = f"{outcome.base} | {amount(outcome.base_values, outcome.unit)}" if number == 0 else " | "
            lines.append(
                f"| {what} | {base} | {figure.title} | {amount(figure.values, outcome.unit)} "
                f"| {_ratio(figure)} | {figure.spread} | {_verdict(figure)} |"
            )
    facts = [f"- {outcome.fact}." for outcome in outcomes if outcome.fact]
    return "\n".join([*lines, *(["", "Looked at, not measured:", "", *facts] if facts else [])])


def put(page: Path, name: str, text: str) -> None:
    """Replace what stands between the two comments that name a part of a page."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    _, also_found, after = rest.partition(end)
    if not (found and also_found):
        sys.exit(f"{page.name} has no part {name}")
    page.write_text(f"{before}{begin}{text}\n{end}{after}", encoding="utf-8")
