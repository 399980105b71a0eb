"""A bridged test's session: its own marker over pytest-playwright's arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_peaks import emulation, state
from pytest_peaks.bridge import launch
from pytest_peaks.marker import check_doors
from pytest_peaks.session.spec import Isolation, SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext


def completed(request: pytest.FixtureRequest, spec: SessionSpec) -> tuple[SessionSpec, str | None]:
    """What a bridged test's session is to be like, and its base URL.

    ``browser_type_launch_args`` says how the browser is launched, ``browser_context_args`` and the marker of that
    name what the context is like; what the test's ``peaks_session`` marker says wins over both.

    :raises InvalidOptionError: the launch arguments can't be had, or not with the test's doors.
    """
    options = _context_options(request)
    given = options.pop("base_url", None)
    base_url = state.of(request.config).config.base_url or given
    if spec.desk:
        return spec, base_url
    spec = _with_launch_arguments(request, spec)
    check_doors(spec.doors, spec.browser)
    # The configured device is among the arguments, or was taken out of them.
    device = _device(request)
    spec = dataclasses.replace(spec, device="")
    options = {**options, **device, **spec.context_options}
    if spec.browser.persistent:
        return spec, base_url  # a profile's own context is as it is
    if spec.doors and options:
        browser = dataclasses.replace(spec.browser, by_driver=True)
        spec = dataclasses.replace(spec, browser=browser, isolation=Isolation.BROWSER)
    return dataclasses.replace(spec, context_options=MappingProxyType(options)), base_url


def further_context_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What `new_context` gives a context: pytest-playwright's arguments, the marker's, and the test's login."""
    spec = state.spec_of(request.node)
    options = {**request.getfixturevalue("browser_context_args"), **_device(request), **spec.context_options}
    if spec.auth:
        login = request.getfixturevalue("_peaks_owner").logins.login(spec.auth)
        options.setdefault("storage_state", login.state.plain)
    return options


def _device(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The context options of the device that the test's own marker names."""
    name = state.arguments_of(request.node).get("device")
    return emulation.descriptor(request.getfixturevalue("playwright"), name) if name else {}


def _context_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    options = dict(request.getfixturevalue("browser_context_args"))
    closest = next(request.node.iter_markers("browser_context_args"), None)
    if closest is not None:
        options.update(closest.kwargs)
    return options


def _with_launch_arguments(request: pytest.FixtureRequest, spec: SessionSpec) -> SessionSpec:
    if state.arguments_of(request.node).get("browser") is not None:
        return spec  # the arguments are another browser's
    config = state.of(request.config).config
    browser = launch.browser_spec(
        config, request.getfixturevalue("browser_name"), request.getfixturevalue("browser_type_launch_args")
    )
    browser = dataclasses.replace(
        browser,
        user_data_dir=spec.browser.user_data_dir,
        persistent=spec.browser.persistent,
        by_driver=spec.browser.by_driver,
    )
    return dataclasses.replace(spec, browser=browser)


class WithDefaults:
    """A browser whose `new_context` has other defaults, for pytest-playwright's `new_context` to call."""

    def __init__(self, browser: Browser, options: Mapping[str, Any]) -> None:
        self._browser = browser
        self._options = options

    def new_context(self, **options: Any) -> BrowserContext:
        return self._browser.new_context(**{**self._options, **options})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._browser, name)
