"""The device that a context emulates."""

from __future__ import annotations

import dataclasses
import difflib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session.spec import SessionSpec

if TYPE_CHECKING:
    from playwright.sync_api import Playwright

    from pytest_peaks.owner import Owner

# What belongs to a window of a size of its own.
_OF_A_VIEWPORT = ("viewport", "screen", "device_scale_factor", "is_mobile")


def completed(spec: SessionSpec, owner: Owner) -> SessionSpec:
    """A session with its device's context options below its own.

    :raises InvalidOptionError: Playwright has no device of that name; names some that are close.
    """
    if not spec.device:
        if spec.browser.persistent:
            owner.said_once.add(
                f"no {owner.config.device} in profiles and desks, whose context exists already"
            )
        return spec
    device = descriptor(owner.door.playwright(), spec.device)
    if spec.context_options.get("no_viewport"):
        for name in _OF_A_VIEWPORT:
            device.pop(name, None)
    return dataclasses.replace(spec, context_options=MappingProxyType({**device, **spec.context_options}))


def descriptor(playwright: Playwright, name: str) -> dict[str, Any]:
    """The context options of a device.

    :raises InvalidOptionError: Playwright has no device of that name; names some that are close.
    """
    known = playwright.devices
    if name not in known:
        close = _close(name, list(known))
        raise InvalidOptionError(
            f"Playwright knows no device {name!r}",
            hint=f"did you mean {', '.join(map(repr, close))}?"
            if close
            else "`playwright.devices` has the names, such as 'iPhone 15'",
        )
    device: dict[str, Any] = dict(known[name])
    # Which browser runs is said elsewhere.
    device.pop("default_browser_type", None)
    return device


def _close(name: str, known: list[str]) -> list[str]:
    by_lower = {device.lower(): device for device in known}
    return [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3)]
