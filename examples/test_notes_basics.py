"""First steps: a page, a second tab, a hand-made context, a unittest class."""

import unittest

import pytest
from notes_steps import add_note, log_in
from playwright.sync_api import Browser, BrowserContext, Page, expect


def test_a_note_can_be_added_and_deleted(peaks_page: Page) -> None:
    log_in(peaks_page, "alice")
    add_note(peaks_page, "buy milk")

    peaks_page.get_by_role("button", name="Delete buy milk").click()

    expect(peaks_page.get_by_role("listitem")).to_have_text("No notes yet.")


@pytest.mark.peaks_session(url="/login")
def test_a_wrong_password_is_refused(peaks_page: Page) -> None:
    # No goto here: the marker has opened the login page already.
    peaks_page.get_by_label("Name").fill("alice")
    peaks_page.get_by_label("Password").fill("guess")
    peaks_page.get_by_role("button", name="Log in").click()

    expect(peaks_page.get_by_role("alert")).to_have_text("Wrong name or password.")


def test_a_second_tab_shares_the_login(peaks_context: BrowserContext, peaks_page: Page) -> None:
    log_in(peaks_page, "alice")

    # A page of the same context is a tab of the same user.
    second_tab = peaks_context.new_page()
    second_tab.goto("/notes")

    expect(second_tab.get_by_role("heading")).to_have_text("Hello, alice")


def test_another_context_of_the_browser_starts_logged_out(
    peaks_browser: Browser, peaks_page: Page, base_url: str
) -> None:
    log_in(peaks_page, "alice")

    # A context made by hand takes no options from the plugin and is yours to close.
    with peaks_browser.new_context(base_url=base_url) as context:
        stranger = context.new_page()
        stranger.goto("/notes")
        expect(stranger.get_by_role("heading")).to_have_text("Log in")


@pytest.mark.usefixtures("peaks_page")
class LogOutTest(unittest.TestCase):
    """unittest methods take no arguments: the plugin sets self.peaks_page."""

    peaks_page: Page

    def test_logging_out_closes_the_notes(self) -> None:
        log_in(self.peaks_page, "bob")
        self.peaks_page.get_by_role("button", name="Log out").click()
        expect(self.peaks_page.get_by_role("heading")).to_have_text("Log in")

        self.peaks_page.goto("/notes")

        expect(self.peaks_page).to_have_url("/login")
