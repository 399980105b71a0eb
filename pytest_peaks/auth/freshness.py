"""Whether a saved login may still be good, from what the file itself says."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_peaks.auth.model import State, cookie_key

# A cookie that ends within the next moments would end during the test.
MARGIN = 5.0


def stale_reason(state: State, name: str, *, max_age: float | None, now: float) -> str | None:
    """Why a saved login is not good any more, as a sentence; None if nothing says so.

    :param max_age: seconds since it was saved; None for no limit.
    :param now: Unix time in seconds.
    """
    saved = state.saved_at
    if max_age is not None and saved is not None and now - saved.timestamp() > max_age:
        age = ago(now - saved.timestamp())
        return f"auth {name!r} is {age} old, older than its max_age of {ago(max_age)}"
    ended = [cookie for cookie in that_matter(state) if _is_over(cookie, now)]
    if ended:
        first = min(ended, key=lambda cookie: float(cookie["expires"]))
        cookie_name, domain, _ = cookie_key(first)
        since = now - float(first["expires"])
        when = f"expired {ago(since)} ago" if since >= 1 else "is about to expire"
        return f"auth {name!r} {when}: cookie {cookie_name} of {domain.lstrip('.')}"
    return None


def that_matter(state: State) -> list[dict[str, Any]]:
    """The cookies on whose end a login ends.

    Those that the login itself set for the application, as was noted when it was saved; of these the
    HttpOnly ones, if there are any. Others (analytics) come and go.
    """
    noted = {tuple(key) for key in state.extras.get("important", ())}
    cookies = [cookie for cookie in state.cookies if cookie_key(cookie) in noted] if noted else state.cookies
    return [cookie for cookie in cookies if cookie.get("httpOnly")] or list(cookies)


def earliest_expiry(state: State) -> float | None:
    """Unix time at which the first of the cookies that matter ends; None if none of them has an end."""
    ends = [float(cookie["expires"]) for cookie in that_matter(state) if _ends(cookie)]
    return min(ends, default=None)


def has_live_login(state: State, present: Iterable[Mapping[str, Any]], now: float) -> bool:
    """Whether one of the cookies that matter is among those `present` in a browser, and not over."""
    wanted = {cookie_key(cookie) for cookie in that_matter(state)}
    return any(cookie_key(cookie) in wanted and not _is_over(cookie, now) for cookie in present)


def ago(seconds: float) -> str:
    """A time span in one unit: ``3 h``."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def as_text(when: float) -> str:
    """A Unix time as ISO 8601 in UTC, to the second."""
    return datetime.datetime.fromtimestamp(when, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _ends(cookie: Mapping[str, Any]) -> bool:
    return cookie.get("expires") not in (None, -1)


def _is_over(cookie: Mapping[str, Any], now: float) -> bool:
    return _ends(cookie) and float(cookie["expires"]) <= now + MARGIN
