"""What ``peaks playwright start`` says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_peaks.cli.listed import bad_files
from pytest_peaks.cli.output import Reply

if TYPE_CHECKING:
    from pytest_peaks.hosting.starting import Started
    from pytest_peaks.session.paths import ProjectDirs


def started(dirs: ProjectDirs, done: Started, asked_port: int | None) -> Reply:
    """The answer of a start.

    :param asked_port: the port that a user gave.
    """
    from pytest_peaks.doors.bundled import client_config
    from pytest_peaks.session.registry import Registry

    record = done.record
    url = record.endpoints["mcp"]
    walked = asked_port not in (None, record.port)
    what = "is running" if done.reused else "started"
    line = f"playwright MCP {what} on port {record.port} (browser={record.browser}, terminal={record.session_id})"
    config = client_config(url)
    lines = [line]
    if walked:
        lines.append(f"port {asked_port} is taken; {record.port} is the next free one")
    lines += [f"cleared away a dead session on port {hosted.record.port}" for hosted in done.cleared]
    problems = [f"{problem.path}: {problem.reason}" for problem in done.problems]
    lines += bad_files(problems)
    lines += [f"MCP URL: {url}", "for a client's configuration:", json.dumps(config, indent=2)]
    fields = {
        "session": record.to_json(),
        "sessionFile": str(Registry(dirs.records).path_of(record.session_id)),
        "mcpUrl": url,
        "mcpServers": config["mcpServers"],
        "reused": done.reused,
        "walked": walked,
        "cleared": [hosted.name for hosted in done.cleared],
        "problems": problems,
    }
    return Reply(line, fields, "\n".join(lines))
