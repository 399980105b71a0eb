"""Hosted sessions beside the bare MCP server of Playwright's wheel, and the list of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from harness import Scratch, seconds_of, site

from pytest_peaks.doors.bundled import driver_command
from pytest_peaks.doors.mcp_client import McpClient
from pytest_peaks.session.identity import ProcessIdentity
from pytest_peaks.session.paths import ProjectDirs
from pytest_peaks.session.record import Record, now_iso
from pytest_peaks.session.registry import Registry

RECORDS = 19  # as many as there are ports from 8931 to 8949
ENDING = 20.0


def _first_call(url: str, page: str) -> None:
    McpClient(url).call("browser_navigate", url=page)


def seconds_to_started(scratch: Scratch, page: str) -> float:
    """From `peaks playwright start` until a client's first tool call has worked."""
    folder = scratch.folder_for("hosted")
    command = [scratch.peaks, "playwright", "start", "--executable", scratch.executable, "--json"]
    command += ["--terminal", "bench"]
    started = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=scratch.env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    _first_call(json.loads(done.stdout)["mcpUrl"], page)
    took = time.perf_counter() - started
    seconds_of([scratch.peaks, "playwright", "stop", "--terminal", "bench"], folder, scratch.env)
    return took


def seconds_to_bare(scratch: Scratch, page: str) -> float:
    """From the start of the wheel's own MCP server until a client's first tool call has worked."""
    command = [*driver_command(), "mcp", "--port", "0", "--headless", "--isolated", "--browser=chromium"]
    command += [f"--executable-path={scratch.executable}", *scratch.launch_args]
    started = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=scratch.folder_for("bare-mcp"),
        env=scratch.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        place = next(filter(None, (re.search(r"Listening on (\S+)", line) for line in process.stderr)), None)
        if place is None:
            sys.exit(f"{' '.join(command)} failed")
        _first_call(f"{place[1]}/mcp", page)
        return time.perf_counter() - started
    finally:
        process.terminate()
        process.communicate(timeout=ENDING)


@contextmanager
def project_with_records(scratch: Scratch) -> Iterator[Path]:
    """A project with records of live sessions.

    Their owner is a process that sleeps, and where their ports are this process answers, for the
    browser as well: nineteen browsers would load the machine for both sides.
    """
    tabs = json.dumps([{"type": "page", "url": "about:blank"}]).encode()
    folder = scratch.folder_for("records")
    sleeping = subprocess.Popen(["sleep", "3600"])
    try:
        owner = ProcessIdentity.of(sleeping.pid)
        assert owner is not None
        with site({"/json/list": ("application/json", tabs)}) as url:
            port = urlsplit(url).port or 0
            registry = Registry(ProjectDirs.locate(folder).records)
            registry.folder.mkdir(parents=True)
            for number in range(RECORDS):
                name = f"bench-{number}"
                registry.write(
                    Record(
                        session_id=name,
                        port=port,
                        browser="chromium",
                        user_data_dir=str(folder / "profiles" / name),
                        started_at=now_iso(),
                        owner=owner,
                        pid=os.getpid(),
                        status="ready",
                        kind="hosted",
                        endpoints={"cdp": f"ws://127.0.0.1:{port}/devtools", "mcp": f"{url}mcp"},
                    )
                )
            yield folder
            for number in range(RECORDS):
                registry.remove(f"bench-{number}")
    finally:
        sleeping.kill()
        sleeping.wait()


def seconds_of_list(scratch: Scratch, folder: Path) -> float:
    return seconds_of([scratch.peaks, "playwright", "ls"], folder, scratch.env)


def check_list(scratch: Scratch, folder: Path) -> str:
    command = [scratch.peaks, "playwright", "ls"]
    done = subprocess.run(command, cwd=folder, env=scratch.env, capture_output=True, text=True, check=True)
    if done.stdout.count("state=alive") != RECORDS or done.stdout.count("tabs=1") != RECORDS:
        sys.exit(f"`peaks playwright ls` does not list {RECORDS} live sessions:\n{done.stdout}")
    return f"`ls` lists {RECORDS} live sessions, each asked for its tabs"
