"""Steps which several test files take through the pages of the notes service."""

from notes_app import PASSWORDS
from playwright.sync_api import Page, expect


def log_in(page: Page, user: str) -> None:
    login = page.get_by_role("heading", name="Log in")
    if not login.is_visible():
        page.goto("/login")
    page.get_by_label("Name").fill(user)
    page.get_by_label("Password").fill(PASSWORDS[user])
    page.get_by_role("button", name="Log in").click()
    # Wait for the answer, so that the next goto does not cut the login short.
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def add_note(page: Page, text: str) -> None:
    page.get_by_label("New note").fill(text)
    page.get_by_role("button", name="Add").click()
    expect(page.get_by_text(text, exact=True)).to_be_visible()


def remember_token(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Remember token").click()
    expect(page.get_by_role("status")).to_have_text(token)
