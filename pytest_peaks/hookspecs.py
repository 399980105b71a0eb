"""Hooks that a project's ``conftest.py`` (or another plugin) can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page


@pytest.hookspec(firstresult=True)
def pytest_peaks_login(name: str, page: Page, account: object) -> object:
    """Log in as `name` on a blank `page`; what the browser then holds is saved, and replayed in every test.

    Called once a run for all workers (once a slot with ``per_slot``, once an account with accounts), when
    nothing is saved that is still good. Return True when done; return None, without touching the page, to
    leave it to another hook.

    :param account: what ``pytest_peaks_accounts`` has for this slot; None without that hook.
    """


@pytest.hookspec(firstresult=True)
def pytest_peaks_check_login(name: str, page: Page) -> bool | None:
    """Say whether the login `name` is still good; `page` is blank and has it.

    Called once a worker for each saved state. False has it renewed; None says nothing.
    """


@pytest.hookspec(firstresult=True)
def pytest_peaks_accounts(name: str) -> Sequence[Any] | None:
    """The accounts that tests with ``auth=name`` run as: each slot gets one of them for the run.

    A text, or a mapping with ``name``, ``username`` or ``email``, by which files and messages call it.
    """


@pytest.hookspec(firstresult=True)
def pytest_peaks_auth(name: str) -> Mapping[str, Any] | None:
    """Settings of the login `name`, over those in ``[tool.peaks.auth.NAME]``: ``max_age``, ``per_slot``, …"""
