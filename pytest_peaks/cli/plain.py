"""What answers have in common, with click and without."""

from __future__ import annotations

import json

TYPE_CHECKING = False  # typing's own, which a type checker knows by its name
if TYPE_CHECKING:
    from typing import Any

SCHEMA = 1
JSON = "--json"


def object_text(*, ok: bool, action: str, **fields: Any) -> str:
    """The one JSON object of an answer."""
    return json.dumps({"schema": SCHEMA, "ok": ok, "action": action, **fields}, default=str)


def counted(number: int, what: str) -> str:
    """``1 session``, ``2 sessions``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
