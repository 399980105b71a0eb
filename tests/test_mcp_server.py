"""The MCP server's process: which program it is, and that it never outlives whoever holds its stdin."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pytest_peaks.doors import mcp
from pytest_peaks.session import processes, spawning
from pytest_peaks.session.spec import McpOptions

PATIENCE = 60.0


def test_the_server_ends_when_its_stdin_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = mcp.server_command(McpOptions(), ["--isolated"], 0, tmp_path / "output")
    server = spawning.spawn_held(command, os.environ, log)
    try:
        assert processes.wait_until(lambda: "Listening on" in log.read_text(), PATIENCE), log.read_text()
        server.pipe.close()
        assert processes.wait_until(lambda: not server.identity.is_alive(), PATIENCE)
    finally:
        processes.end_tree(server.identity, grace=0.0)
        processes.reap_child(server.identity.pid)


def test_node_and_the_program_are_found_without_playwrights_private_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PLAYWRIGHT_NODEJS_PATH", raising=False)
    known = mcp.driver_command()
    assert all(Path(part).is_file() for part in known)
    monkeypatch.setitem(sys.modules, "playwright._impl._driver", None)
    assert mcp.driver_command() == known
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/other/node")
    assert mcp.driver_command() == ["/other/node", known[1]]
