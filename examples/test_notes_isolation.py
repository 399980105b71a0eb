"""Who shares what: two users, two devices, two tests, two browsers."""

from typing import ClassVar

import pytest
from notes_steps import add_note, log_in, remember_token
from playwright.sync_api import Page, expect

from pytest_peaks import PeaksSession, SessionFactory, SessionOpener


def test_two_users_share_nothing(peaks_sessions: SessionOpener) -> None:
    alice, bob = peaks_sessions("alice", "bob")
    log_in(alice.page, "alice")
    log_in(bob.page, "bob")

    add_note(alice.page, "surprise party for bob")
    bob.page.reload()

    # Bob's login has not replaced Alice's, and he sees none of her notes.
    expect(alice.page.get_by_role("heading")).to_have_text("Hello, alice")
    expect(bob.page.get_by_role("heading")).to_have_text("Hello, bob")
    expect(bob.page.get_by_role("listitem")).to_have_text("No notes yet.")


def test_notes_follow_a_user_to_a_second_device(peaks_page: Page, peaks_sessions: SessionOpener) -> None:
    log_in(peaks_page, "alice")
    add_note(peaks_page, "buy milk")

    laptop = peaks_sessions("laptop")
    log_in(laptop.page, "alice")

    expect(laptop.page.get_by_text("buy milk")).to_be_visible()


# Whichever of the two runs second would find the token of the first.
@pytest.mark.parametrize("token", ["red", "blue"])
@pytest.mark.peaks_session(isolation="fresh", url="/token")
def test_a_token_does_not_outlive_its_test(peaks_page: Page, token: str) -> None:
    expect(peaks_page.get_by_role("status")).to_have_text("no token")
    remember_token(peaks_page, token)


@pytest.mark.peaks_session(isolation="browser")
def test_a_test_can_have_a_browser_of_its_own(
    peaks_session: PeaksSession, peaks_session_factory: SessionFactory
) -> None:
    log_in(peaks_session.page, "alice")

    with peaks_session_factory() as other:
        assert other.pid != peaks_session.pid
        assert other.user_data_dir != peaks_session.user_data_dir
        other.page.goto("/notes")
        expect(other.page.get_by_role("heading")).to_have_text("Log in")


@pytest.mark.peaks_session(isolation="profile", url="/notes")
class TestKeptLogin:
    """One profile serves both tests, so a worker logs in once at most.

    The tests may land on different xdist workers, and each worker has a profile
    of its own. So neither test may take for granted that the other has run here.
    """

    logins: ClassVar[int] = 0

    def open_notes(self, page: Page) -> None:
        if page.get_by_role("heading", name="Log in").is_visible():
            log_in(page, "alice")  # the app has sent the page here
            type(self).logins += 1
        assert self.logins == 1, "the profile has lost its login"

    def test_a_note_can_be_in_any_language(self, peaks_page: Page) -> None:
        self.open_notes(peaks_page)
        add_note(peaks_page, "acheter du thé, 買牛奶")

    def test_a_note_can_hold_markup(self, peaks_page: Page) -> None:
        self.open_notes(peaks_page)
        add_note(peaks_page, "<b>not bold</b>")
