"""What a run says at its end: where each worker ran, and that nothing was left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_peaks.session.paths import ProjectDirs, orphaned_temp_dirs
from pytest_peaks.session.registry import Registry

if TYPE_CHECKING:
    from pytest_peaks.state import RunState


def leftovers(dirs: ProjectDirs, run_uid: str) -> list[str]:
    """What is left of a run: records, profiles, temp dirs; empty if nothing is."""
    records, _ = Registry(dirs.records).list()
    left = [f"record {record.session_id}" for record in records if record.run_uid == run_uid]
    left += [
        f"profile {path.name}"
        for path in _children(dirs.profiles)
        if path.name.startswith(f"r{run_uid[:12]}-")
    ]
    left += [f"temp dir {path}" for path in orphaned_temp_dirs()]
    return left


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def lines_of(run_state: RunState) -> list[str]:
    """The lines of the section ``peaks`` at the end of a run."""
    lines = []
    for report in sorted(run_state.reports, key=lambda report: (report["slot"], report["worker"])):
        for browser in report["browsers"]:
            port = f"port {browser['port']}" if browser["port"] else "no port"
            sessions = "worker crashed" if report.get("crashed") else _plural(browser["sessions"], "session")
            lines.append(
                f"slot {report['slot']} ({report['worker']})  {browser['browser']} {browser['version']}".rstrip()
                + f"  {port}  pid {browser['pid']}  {sessions}"
            )
    for report in sorted(run_state.reports, key=lambda report: report["slot"] or 0):
        lines += report.get("said", [])
    lines += sorted({text for report in run_state.reports for text in report.get("said_once", [])})
    lines += run_state.kept.lines() if run_state.kept is not None else []
    swept = sorted({name for report in run_state.reports for name in report.get("swept", [])})
    if swept:
        lines.append(f"cleared away {_plural(len(swept), 'session')} that earlier runs left")
    for bad in sorted({name for report in run_state.reports for name in report.get("set_aside", [])}):
        lines.append(f"set aside a file that is no record: {bad}")
    if run_state.swept:
        lines.append(f"cleared away after dead workers: {', '.join(sorted(set(run_state.swept)))}")
    if run_state.left:
        lines.append("left behind, to be removed by `peaks reap`: " + ", ".join(run_state.left))
    else:
        lines.append("nothing left behind")
    return lines


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
