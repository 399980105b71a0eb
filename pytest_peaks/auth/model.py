"""A saved login: Playwright's storageState with what Playwright leaves out, checked before it is used.

The file is plain storageState JSON, so that Playwright, its MCP server and its CLI read it. What is ours
stands under the top-level key ``peaks``, which they ignore. No message here quotes any value.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from pytest_peaks.errors import InvalidStateError

EXTRAS = "peaks"
EXTRAS_VERSION = 1
SAME_SITE = ("Strict", "Lax", "None")
# Unix time in seconds reaches this in the year 5138; what is above is in milliseconds.
LATEST_EXPIRY = 100_000_000_000
MEND = "save the login anew: `peaks auth save NAME`, or context.storage_state() of a page that is logged in"


class State(dict[str, Any]):
    """A storageState. Shows no value of it anywhere, also where pytest prints local variables.

    :ivar modified: Unix time of its file; None for one that is in none.
    """

    modified: float | None = None

    def __repr__(self) -> str:
        return f"<State {len(self.cookies)} cookies, {len(self.origins)} origins>"

    __str__ = __repr__

    @property
    def cookies(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("cookies", [])
        return found

    @property
    def origins(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("origins", [])
        return found

    @property
    def extras(self) -> dict[str, Any]:
        """What pytest-peaks added; empty for a state made elsewhere."""
        found: dict[str, Any] = self.get(EXTRAS) or {}
        return found

    @property
    def session_storage(self) -> Mapping[str, Mapping[str, str]]:
        """sessionStorage by origin."""
        found: Mapping[str, Mapping[str, str]] = self.extras.get("sessionStorage", {})
        return found

    @property
    def saved_at(self) -> datetime.datetime | None:
        """When it was saved, UTC; of one made elsewhere, when its file was written; None if neither is known."""
        try:
            when = datetime.datetime.fromisoformat(str(self.extras.get("savedAt", "")))
        except ValueError:
            if self.modified is None:
                return None
            return datetime.datetime.fromtimestamp(self.modified, datetime.UTC)
        return when if when.tzinfo else when.replace(tzinfo=datetime.UTC)

    @property
    def plain(self) -> State:
        """Without what is ours, and without origins in which nothing is: each costs a navigation to replay."""
        kept = {key: value for key, value in self.items() if key != EXTRAS}
        kept["origins"] = [
            origin
            for origin in self.origins
            if any(value for key, value in origin.items() if key != "origin")
        ]
        return State(kept)

    @property
    def version(self) -> str:
        """What tells this state apart from a later one of the same name; says nothing of its content."""
        return hashlib.sha256(json.dumps(self, sort_keys=True).encode()).hexdigest()


class Account(dict[str, Any]):
    """What a project keeps of an account. Shows its keys only: there is a password among the values."""

    def __repr__(self) -> str:
        return f"<Account {', '.join(map(str, self))}>"

    __str__ = __repr__


def cookie_key(cookie: Mapping[str, Any]) -> tuple[str, str, str]:
    """What makes a cookie the same cookie: name, domain and path."""
    domain = str(cookie.get("domain") or urlsplit(str(cookie.get("url") or "")).hostname or "")
    return str(cookie.get("name", "")), domain, str(cookie.get("path") or "/")


def parse_state(text: str | bytes, where: str) -> State:
    """Read a storageState.

    :param where: what is named in messages: a file, a variable.
    :raises InvalidStateError: it is none; says where and what is wrong, and quotes nothing of it.
    """
    content = (
        text.decode("utf-8-sig", errors="replace") if isinstance(text, bytes) else text.removeprefix("\ufeff")
    )
    if not content.strip():
        raise InvalidStateError(f"{where} is empty", hint=MEND)
    try:
        data = json.loads(content)
    except RecursionError:
        reason = "is nested too deeply"
    except ValueError as error:
        # Its own message quotes nothing; its `doc` holds the whole text and must not travel on.
        place = (
            f"line {error.lineno} column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else "somewhere"
        )
        reason = f"is no JSON, or is cut off (at {place})"
    else:
        return check_state(data, where)
    raise InvalidStateError(f"{where} {reason}", hint=MEND)


def check_state(data: object, where: str) -> State:
    """The storageState that `data` is.

    :raises InvalidStateError: it is none.
    """
    fault = next(_faults(data), None)
    if fault is not None:
        raise InvalidStateError(f"{where} is not a usable storage state: {fault}", hint=MEND)
    assert isinstance(data, dict), "checked"
    return State(data)


def _faults(data: object) -> Iterator[str]:
    if isinstance(data, list):
        yield "it is a list, such as other tools export; it has to be an object with 'cookies' and 'origins'"
        return
    if not isinstance(data, dict):
        yield "it is no object with lists 'cookies' and 'origins'"
        return
    for key, check in (("cookies", _cookie_faults), ("origins", _origin_faults)):
        entries = data.get(key)
        if not isinstance(entries, list):
            yield f"{key} is {_kind(entries)}, not a list"
            return
        for number, entry in enumerate(entries):
            if not isinstance(entry, dict):
                yield f"{key}[{number}] is {_kind(entry)}, not an object"
                return
            yield from (f"{key}[{number}]{fault}" for fault in check(entry))
    passkeys = data.get("credentials", [])
    if not isinstance(passkeys, list) or not all(isinstance(key, dict) for key in passkeys):
        yield "credentials is no list of passkeys"
    yield from _extra_faults(data.get(EXTRAS))


def _cookie_faults(cookie: Mapping[str, Any]) -> Iterator[str]:
    for key in ("name", "value"):
        if not isinstance(cookie.get(key), str):
            yield f".{key} is {_kind(cookie.get(key))}, not text"
    if not cookie.get("url") and not (cookie.get("domain") and cookie.get("path")):
        missing = "domain" if not cookie.get("domain") else "path"
        yield f" has no {missing}"
    for key in ("domain", "path"):
        if not isinstance(cookie.get(key, ""), str):
            yield f".{key} is {_kind(cookie[key])}, not text"
    if "url" in cookie and not _is_web_address(cookie["url"]):
        yield ".url is no http or https address"
    expires = cookie.get("expires", -1)
    if expires is not None and (isinstance(expires, bool) or not isinstance(expires, int | float)):
        yield f".expires is {_kind(expires)}, not a number"
    elif expires is not None and not (expires == -1 or 0 <= expires < LATEST_EXPIRY):
        yield ".expires is no Unix time in seconds" + (" (milliseconds?)" if expires > 0 else "")
    if "sameSite" in cookie and cookie["sameSite"] not in SAME_SITE:
        yield f".sameSite is none of {', '.join(SAME_SITE)}"
    for key in ("httpOnly", "secure"):
        if not isinstance(cookie.get(key, False), bool):
            yield f".{key} is {_kind(cookie[key])}, not true or false"


def _origin_faults(origin: Mapping[str, Any]) -> Iterator[str]:
    if not _is_web_address(origin.get("origin")):
        yield ".origin is no http or https origin"
    entries = origin.get("localStorage")
    if not isinstance(entries, list):
        yield f".localStorage is {_kind(entries)}, not a list"
        return
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not all(
            isinstance(entry.get(key), str) for key in ("name", "value")
        ):
            yield f".localStorage[{number}] has no name and value that are text"
            return
    for key in ("indexedDB", "opfs"):
        found = origin.get(key, [])
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            yield f".{key} is no list of objects"


def _extra_faults(extras: object) -> Iterator[str]:
    if extras is None:
        return
    if not isinstance(extras, dict):
        yield f"{EXTRAS} is {_kind(extras)}, not an object"
        return
    version = extras.get("v")
    if isinstance(version, int) and not isinstance(version, bool) and version > EXTRAS_VERSION:
        yield f"a later pytest-peaks wrote it (v {version})"
    elif version != EXTRAS_VERSION or isinstance(version, bool):
        yield f"{EXTRAS}.v is not {EXTRAS_VERSION}"
    storage = extras.get("sessionStorage", {})
    if not isinstance(storage, dict) or not all(
        _is_web_address(origin)
        and isinstance(items, dict)
        and all(isinstance(value, str) for value in items.values())
        for origin, items in storage.items()
    ):
        yield f"{EXTRAS}.sessionStorage is no object of texts by origin"
    important = extras.get("important", [])
    if not isinstance(important, list) or not all(
        isinstance(key, list) and len(key) == 3 and all(isinstance(part, str) for part in key)
        for key in important
    ):
        yield f"{EXTRAS}.important is no list of cookies (name, domain, path)"
    lost = extras.get("lost", [])
    if not isinstance(lost, list) or not all(isinstance(entry, str) for entry in lost):
        yield f"{EXTRAS}.lost is no list of texts"


def _is_web_address(url: object) -> bool:
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:  # its message quotes the address
        return False


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), "something else")
