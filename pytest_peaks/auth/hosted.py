"""Putting a saved login into a hosted session, before anybody uses it."""

from __future__ import annotations

import time
from typing import Any

from pytest_peaks.auth.freshness import has_live_login
from pytest_peaks.auth.model import State
from pytest_peaks.auth.replay import replay, seed
from pytest_peaks.errors import StartFailedError
from pytest_peaks.session.record import Record


def log_in(record: Record, state: State) -> bool:
    """Log a hosted session in; False if it has a live login of its own, which stays.

    :raises ReplayFailedError: its browser refuses the login; the session is not to be used.
    :raises StartFailedError: its browser does not answer.
    """
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.connect_over_cdp(record.endpoints.get("cdp", ""))
            context = browser.contexts[0]
            present: Any = context.cookies()
        except (Error, IndexError) as error:
            raise StartFailedError(
                f"the browser of session {record.session_id} does not answer: {str(error).splitlines()[0]}",
                hint="`peaks playwright ls` shows its state",
            ) from None
        if has_live_login(state, present, time.time()):
            return False
        replay(context, state)
        seed(context.pages[0] if context.pages else context.new_page(), state)
        browser.close()  # a guest leaves; the browser stays
        return True
