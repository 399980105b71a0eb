"""An agent's door into the same tab: what it does through MCP tools, the test sees, and the other way round."""

import re

import pytest
from notes_steps import add_note, log_in
from playwright.sync_api import Page, expect

from pytest_peaks.doors.mcp import McpClient


def ref_of(snapshot: str, role_and_name: str) -> str:
    """The ref under which MCP's snapshot lists an element, for example ``button "Add"``."""
    found = re.search(rf"{re.escape(role_and_name)}.*?\[ref=(\w+)\]", snapshot)
    assert found, f"no {role_and_name} in:\n{snapshot}"
    return found[1]


@pytest.mark.peaks_session(url="/login")
def test_an_agent_works_in_the_tab_of_the_test(peaks_page: Page, peaks_mcp: McpClient) -> None:
    log_in(peaks_page, "alice")

    # The agent is logged in: tabs, cookies and storage are the test's.
    snapshot = peaks_mcp.snapshot()
    assert 'heading "Hello, alice"' in snapshot
    target = ref_of(snapshot, 'textbox "New note"')
    peaks_mcp.call("browser_type", element="New note", target=target, text="written by an agent", submit=True)

    expect(peaks_page.get_by_text("written by an agent")).to_be_visible()


@pytest.mark.peaks_session(url="/login")
def test_an_agent_sees_what_the_test_does(peaks_page: Page, peaks_mcp: McpClient) -> None:
    log_in(peaks_page, "bob")
    add_note(peaks_page, "written by a test")

    assert "written by a test" in peaks_mcp.snapshot()
