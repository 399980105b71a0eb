"""playwright-cli in the same tab: snapshots as trees, refs to work on, and a login that is kept in a file."""

from pathlib import Path

import pytest
from notes_steps import log_in
from playwright.sync_api import Page, expect

from pytest_peaks.doors.cli import PeaksCli
from pytest_peaks.errors import StaleRefError


@pytest.mark.peaks_session(url="/login")
def test_commands_work_in_the_tab_of_the_test(peaks_page: Page, peaks_cli: PeaksCli) -> None:
    log_in(peaks_page, "alice")

    # A snapshot is a tree of what there is to see; refs of it are what commands work on.
    tree = peaks_cli.snapshot()
    assert tree.find("heading", "Hello, alice")
    peaks_cli("fill", tree.find("textbox", "New note").ref, "written by a command", submit=True)

    expect(peaks_page.get_by_text("written by a command")).to_be_visible()


@pytest.mark.peaks_session(url="/login")
def test_a_ref_of_a_page_that_is_gone_is_refused(peaks_page: Page, peaks_cli: PeaksCli) -> None:
    button = peaks_cli.snapshot().find("button").ref
    log_in(peaks_page, "bob")

    with pytest.raises(StaleRefError, match="take a new snapshot"):
        peaks_cli("click", button)


@pytest.mark.peaks_session(url="/login")
def test_a_login_is_saved_and_loaded(
    peaks_page: Page, peaks_cli: PeaksCli, base_url: str, tmp_path: Path
) -> None:
    log_in(peaks_page, "alice")
    # A name such as "alice" would keep it with the project, in .peaks/auth. Either way only you can read it.
    login = peaks_cli.state_save(tmp_path / "alice.json")
    peaks_cli("cookie-clear")
    peaks_cli("reload")
    expect(peaks_page.get_by_role("heading", name="Log in")).to_be_visible()

    peaks_cli.state_load(login)
    peaks_page.goto(f"{base_url}/notes")

    expect(peaks_page.get_by_role("heading", name="Hello, alice")).to_be_visible()
