"""A saved login in words: what is in it and when it ends. Never a value."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pytest_peaks.auth.freshness import ago, as_text, earliest_expiry
from pytest_peaks.auth.model import State, cookie_key

if TYPE_CHECKING:
    from pytest_peaks.auth.store import Entry

REDACTED = "***"


def contents(state: State) -> str:
    """What is in a state, counted: ``2 cookies, localStorage of 1 origin``."""
    parts = [_counted(len(state.cookies), "cookie")]
    stores = {
        "localStorage": sum(bool(origin.get("localStorage")) for origin in state.origins),
        "IndexedDB": sum(bool(origin.get("indexedDB")) for origin in state.origins),
        "OPFS": sum(bool(origin.get("opfs")) for origin in state.origins),
        "sessionStorage": sum(bool(items) for items in state.session_storage.values()),
    }
    parts += [f"{what} of {_counted(number, 'origin')}" for what, number in stores.items() if number]
    passkeys = len(state.get("credentials") or ())
    if passkeys:
        parts.append(_counted(passkeys, "passkey"))
    return ", ".join(parts)


def described(state: State) -> dict[str, Any]:
    """What is in a state, by name; every value is redacted."""
    session = state.session_storage
    origins = {origin["origin"]: origin for origin in state.origins}
    return {
        "savedAt": state.extras.get("savedAt"),
        "url": re.split("[?#]", str(state.extras.get("url") or ""))[0],
        "cookies": [
            {
                "name": cookie_key(cookie)[0],
                "domain": cookie_key(cookie)[1],
                "path": cookie_key(cookie)[2],
                "value": REDACTED,
                "httpOnly": cookie.get("httpOnly", False),
                "secure": cookie.get("secure", False),
                "ends": _end(cookie.get("expires")),
            }
            for cookie in state.cookies
        ],
        "origins": [
            {
                "origin": url,
                "localStorage": [entry["name"] for entry in origins.get(url, {}).get("localStorage", ())],
                "indexedDB": [str(base.get("name")) for base in origins.get(url, {}).get("indexedDB", ())],
                "opfs": [str(file.get("path", "?")) for file in origins.get(url, {}).get("opfs") or ()],
                "sessionStorage": list(session.get(url, {})),
            }
            for url in dict.fromkeys([*origins, *session])
        ],
        "passkeys": [str(key.get("rpId", "?")) for key in state.get("credentials") or ()],
        "lost": list(state.extras.get("lost", ())),
    }


def row(entry: Entry, now: float) -> dict[str, Any]:
    """One line of `peaks auth ls`."""
    state = entry.state
    saved = state.saved_at if state is not None else None
    ends = earliest_expiry(state) if state is not None else None
    return {
        "name": entry.name,
        "account": entry.account,
        "file": str(entry.path),
        "encrypted": entry.encrypted,
        "problem": entry.problem,
        "savedAt": saved.strftime("%Y-%m-%dT%H:%M:%SZ") if saved else None,
        "age": ago(now - saved.timestamp()) if saved else None,
        "cookies": len(state.cookies) if state is not None else None,
        "origins": sorted({origin["origin"] for origin in state.origins} | set(state.session_storage))
        if state is not None
        else [],
        "ends": "with the session" if ends is None else as_text(ends),
        "expired": ends is not None and ends <= now,
    }


def _end(expires: object) -> str:
    return (
        as_text(float(expires)) if isinstance(expires, int | float) and expires >= 0 else "with the session"
    )


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
