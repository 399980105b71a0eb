"""Options of a browser context, given by the marker."""

import pytest
from notes_steps import log_in
from playwright.sync_api import Page, expect

from pytest_peaks import PeaksSession

PHONE = {"width": 390, "height": 844}


@pytest.mark.peaks_session(viewport=PHONE, has_touch=True, locale="en-GB")
class TestOnAPhone:
    def test_the_keyboard_tip_is_hidden(self, peaks_page: Page) -> None:
        log_in(peaks_page, "alice")
        expect(peaks_page.get_by_text("Tip: press Enter")).to_be_hidden()

    def test_a_note_can_be_added_by_touch(self, peaks_page: Page) -> None:
        log_in(peaks_page, "alice")
        peaks_page.get_by_label("New note").fill("buy milk")

        # Playwright refuses to tap unless the context has has_touch=True.
        peaks_page.get_by_role("button", name="Add").tap()

        expect(peaks_page.get_by_text("buy milk")).to_be_visible()

    @pytest.mark.peaks_session(locale="fr-FR")
    def test_a_french_phone_is_greeted_in_french(self, peaks_page: Page) -> None:
        # The method changes the locale; the rest of the class marker still holds.
        assert peaks_page.viewport_size == PHONE
        log_in(peaks_page, "alice")
        expect(peaks_page.get_by_role("heading")).to_have_text("Bonjour, alice")


@pytest.mark.peaks_session(name="desk", viewport={"width": 1280, "height": 800})
def test_the_keyboard_tip_shows_on_a_desk(peaks_session: PeaksSession, peaks_slot: int) -> None:
    # The handle tells what to look for in a log: its name, slot, pid and port.
    assert peaks_session.name == "desk"
    assert peaks_session.slot == peaks_slot

    log_in(peaks_session.page, "alice")
    expect(peaks_session.page.get_by_text("Tip: press Enter")).to_be_visible()
