"""``@pytest.mark.peaks_session``: loose arguments in, a :class:`SessionSpec` out."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_peaks.config import PeaksConfig, one_of, path_from
from pytest_peaks.errors import InvalidOptionError
from pytest_peaks.session.identity import check_name
from pytest_peaks.session.spec import BrowserName, BrowserSpec, Door, Isolation, SessionSpec

# Keyword arguments of Playwright's Browser.new_context; a test holds them against the installed one.
CONTEXT_OPTIONS = frozenset(
    {
        "accept_downloads",
        "base_url",
        "bypass_csp",
        "client_certificates",
        "color_scheme",
        "contrast",
        "default_browser_type",
        "device_scale_factor",
        "extra_http_headers",
        "forced_colors",
        "geolocation",
        "has_touch",
        "http_credentials",
        "ignore_https_errors",
        "is_mobile",
        "java_script_enabled",
        "locale",
        "no_viewport",
        "offline",
        "permissions",
        "proxy",
        "record_har_content",
        "record_har_mode",
        "record_har_omit_content",
        "record_har_path",
        "record_har_url_filter",
        "record_video_dir",
        "record_video_fps",
        "record_video_size",
        "reduced_motion",
        "screen",
        "service_workers",
        "storage_state",
        "strict_selectors",
        "timezone_id",
        "user_agent",
        "viewport",
    }
)
OWN_ARGUMENTS = (
    "name",
    "auth",
    "desk",
    "save",
    "isolation",
    "browser",
    "user_data_dir",
    "url",
    "device",
    "doors",
    "mcp_caps",
    "mcp_args",
)


def merge(markers: Iterable[tuple[tuple[Any, ...], Mapping[str, Any]]]) -> dict[str, Any]:
    """The arguments of several markers as one, the closest first: it wins, name by name.

    :raises InvalidOptionError: a marker has more than one positional argument, or its name twice.
    """
    merged: dict[str, Any] = {}
    for args, kwargs in markers:
        if len(args) > 1:
            raise InvalidOptionError(
                f"{len(args)} positional arguments given; there is one, the name",
                hint="give the others by name: isolation='browser'",
            )
        if args and "name" in kwargs:
            raise InvalidOptionError("name is given twice", hint="once is enough")
        given = {"name": args[0], **kwargs} if args else dict(kwargs)
        for key, value in given.items():
            merged.setdefault(key, value)
    return merged


def check_doors(doors: frozenset[Door], browser: BrowserSpec) -> None:
    """Whether a browser can have these doors.

    :raises InvalidOptionError: it has no debugging port, which they need.
    """
    if doors and not (browser.own_process or browser.by_driver):
        raise InvalidOptionError(
            f"doors={', '.join(sorted(doors))} needs a Chromium with a debugging port",
            hint="leave out doors, or use a Chromium and peaks_debug_port = on",
        )


def build_spec(arguments: Mapping[str, Any], config: PeaksConfig) -> SessionSpec:
    """The session that merged marker arguments ask for; what they leave out comes from `config`.

    :raises InvalidOptionError: an argument is unknown, has a wrong value, or contradicts another.
    """
    _check_known(arguments)
    name = arguments.get("name")
    url = arguments.get("url")
    data_dir = arguments.get("user_data_dir")
    if name is not None:
        check_name(name, "name")
    if url is not None and (not isinstance(url, str) or not url):
        raise InvalidOptionError(f"url is {url!r}", hint="give a URL, or a path that base_url completes")
    if data_dir is not None and (not isinstance(data_dir, str | Path) or not str(data_dir)):
        raise InvalidOptionError(
            f"user_data_dir is {data_dir!r}", hint="give a path; relative ones start at rootdir"
        )

    if arguments.get("desk") is not None:
        return _at_a_desk(arguments, name or "", url, config)
    if arguments.get("save"):
        raise InvalidOptionError("save is given without desk", hint='desk="NAME" names the identity to save')

    browser = config.browser_spec
    if arguments.get("browser") is not None:
        chosen = one_of(BrowserName, arguments["browser"], "a browser")
        # The executable that was configured is of the configured browser.
        executable = browser.executable if chosen is browser.browser else None
        browser = dataclasses.replace(browser, browser=chosen, executable=executable)
    isolation = _isolation(arguments.get("isolation"), data_dir, config)
    options = {key: value for key, value in arguments.items() if key in CONTEXT_OPTIONS}
    device = _device(arguments)
    profile = isolation is Isolation.PROFILE or data_dir is not None
    if (options or device) and profile:
        refused = [*options, *(["device"] if device else [])]
        raise InvalidOptionError(
            f"{', '.join(sorted(refused))}: a profile's own context exists already and takes no context options",
            hint="leave them out, or use isolation='fresh' or 'browser' without user_data_dir",
        )
    if options.get("no_viewport") and options.get("viewport") is not None:
        raise InvalidOptionError("viewport and no_viewport contradict each other", hint="leave one out")
    doors = frozenset(one_of(Door, door, "a door") for door in _texts(arguments, "doors"))
    mcp = dataclasses.replace(
        config.mcp, caps=_texts(arguments, "mcp_caps"), args=_texts(arguments, "mcp_args")
    )
    check_doors(doors, browser)
    if "device" not in arguments and not profile:
        device = config.device
    if doors and (options or device):
        # Options can be given to a default context only where Playwright launches the browser for it.
        browser = dataclasses.replace(browser, by_driver=True)
        isolation = Isolation.BROWSER
    if data_dir is not None:
        path = path_from(config.root, data_dir, "user_data_dir")
        browser = dataclasses.replace(browser, user_data_dir=path)
    return SessionSpec(
        browser=dataclasses.replace(browser, persistent=profile),
        name=name or "",
        isolation=isolation,
        url=url,
        context_options=MappingProxyType(options),
        doors=doors,
        mcp=mcp,
        auth=_auth(arguments),
        device=device,
    )


def _check_known(arguments: Mapping[str, Any]) -> None:
    for key in arguments:
        if key not in OWN_ARGUMENTS and key not in CONTEXT_OPTIONS:
            close = difflib.get_close_matches(key, [*OWN_ARGUMENTS, *CONTEXT_OPTIONS], n=1)
            raise InvalidOptionError(
                f"unknown argument {key!r}",
                hint=f"did you mean {close[0]!r}?"
                if close
                else f"known are {', '.join(OWN_ARGUMENTS)} and the options of Browser.new_context",
            )


def _at_a_desk(arguments: Mapping[str, Any], name: str, url: str | None, config: PeaksConfig) -> SessionSpec:
    """The session of a named identity: its desk says which browser that is, and all doors lead there."""
    desk, save = check_name(arguments["desk"], "desk"), arguments.get("save", False)
    if not isinstance(save, bool):
        raise InvalidOptionError(f"save is {save!r}", hint="choose one of: True, False")
    possible = ("name", "desk", "save", "url", "doors", "mcp_caps", "mcp_args")
    others = sorted(
        key
        for key, value in arguments.items()
        if key not in possible and (value is not None or key in CONTEXT_OPTIONS)
    )
    if others:
        raise InvalidOptionError(
            f"desk and {', '.join(others)} contradict each other: a desk has its browser, and the identity its login",
            hint="leave out the one or the other; .peaks/pool.json says what browser a desk has",
        )
    mcp = dataclasses.replace(
        config.mcp, caps=_texts(arguments, "mcp_caps"), args=_texts(arguments, "mcp_args")
    )
    for door in _texts(arguments, "doors"):
        one_of(Door, door, "a door")
    return SessionSpec(
        browser=BrowserSpec(persistent=True, slow_mo=config.slow_mo),
        name=name or desk,
        isolation=Isolation.PROFILE,
        url=url,
        doors=frozenset(Door),
        mcp=mcp,
        desk=desk,
        save=save,
    )


def _device(arguments: Mapping[str, Any]) -> str:
    """The device that the marker names; empty for none."""
    device = arguments.get("device")
    if device is not None and (not isinstance(device, str) or not device):
        raise InvalidOptionError(
            f"device is {device!r}", hint="give a name of Playwright's, such as 'iPhone 15'"
        )
    return device or ""


def _auth(arguments: Mapping[str, Any]) -> str:
    """The name of the saved login; empty for none."""
    auth = arguments.get("auth")
    if auth is None:
        return ""
    if arguments.get("storage_state") is not None:
        raise InvalidOptionError(
            "auth and storage_state contradict each other: both say what the context begins with",
            hint="leave one out",
        )
    return check_name(auth, "auth")


def _texts(arguments: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A tuple of texts; one text alone is taken for one."""
    given = arguments.get(key)
    if given is None:
        return ()
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, list | tuple | set | frozenset) or not all(isinstance(v, str) for v in values):
        raise InvalidOptionError(f"{key} is {given!r}", hint=f"give a tuple of names: {key}=('…',)")
    return tuple(values)


def _isolation(given: object, data_dir: object, config: PeaksConfig) -> Isolation:
    if given is None:
        return config.isolation if data_dir is None else Isolation.PROFILE
    isolation = one_of(Isolation, given, "an isolation")
    if isolation in (Isolation.FRESH, Isolation.RECYCLED) and data_dir is not None:
        raise InvalidOptionError(
            f"isolation='{isolation}' and user_data_dir contradict each other: "
            "a context of its own sees nothing of a profile",
            hint="leave out isolation, or use isolation='browser' for a process of the test's own on that profile",
        )
    return isolation
