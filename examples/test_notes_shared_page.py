"""One page for a whole module: quick, and safe while no test changes anything."""

from collections.abc import Iterator

import pytest
from notes_steps import log_in
from playwright.sync_api import Page, expect

from pytest_peaks import SessionFactory


@pytest.fixture(scope="module")
def alices_page(peaks_session_factory: SessionFactory) -> Iterator[Page]:
    """Alice's notes, logged in once. Tests may read this page but not act on it."""
    with peaks_session_factory() as session:
        log_in(session.page, "alice")
        yield session.page


def test_the_page_greets_the_user(alices_page: Page) -> None:
    expect(alices_page.get_by_role("heading")).to_have_text("Hello, alice")


def test_the_page_says_that_there_are_no_notes(alices_page: Page) -> None:
    expect(alices_page.get_by_role("listitem")).to_have_text("No notes yet.")
