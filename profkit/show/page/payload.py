"""Plain data  ->  the JSON that the page's scripts read: small, and nothing in it acts."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from profkit.show.text.escape import escaped

PIXEL, VALUE = 6, 9  # digits of what is drawn, and of what is compared: all 17 are half of a page


def policy_hash(text: str) -> str:
    """What a Content-Security-Policy calls a script or a style sheet of a page's own."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def by_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same keys, to be drawn: each key said once."""
    keys = list(rows[0]) if rows else []
    return {"keys": keys, "rows": [[rounded(row[key]) for key in keys] for row in rows]}


def rounded(value: Any, digits: int = PIXEL) -> Any:
    """A number in so many digits; anything else as it is."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def script_json(value: Any) -> str:
    """A document for a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(_seen(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _seen(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        return {str(key): _seen(item) for key, item in value.items()}
    return [_seen(item) for item in value] if isinstance(value, list | tuple) else value
