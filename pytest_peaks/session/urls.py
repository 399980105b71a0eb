"""URLs as they may be shown: without what may be a token."""

from __future__ import annotations

from urllib.parse import urlsplit


def shown(url: str) -> str:
    """A URL without query, fragment and user; of one that is no web address little more than its scheme."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url if url.startswith(("about:", "chrome")) else f"{parts.scheme}:…" if parts.scheme else url
    return f"{shown_host(url)}{parts.path or '/'}"


def shown_host(url: str) -> str:
    """Scheme, host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
