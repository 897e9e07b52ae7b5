"""What SARIF 2.1.0 asks of the objects that profkit writes, as a JSON Schema written for these tests.

Required keys, types and ranges are the standard's; a key that profkit does not write is refused, so
that a misspelt one is seen.
"""

from __future__ import annotations

from typing import Any


def make_object(required: str, **properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these keys and no others."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def make_list(items: dict[str, Any], fewest: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": fewest}


TEXT = {"type": "string", "minLength": 1}
MESSAGE = make_object("text", text=TEXT)
RULE = make_object("id", id=TEXT, shortDescription=MESSAGE, help=MESSAGE)
ARTIFACT = make_object("uri", uri={"type": "string", "pattern": r"^[!-~]+$"})
REGION = make_object("", startLine={"type": "integer", "minimum": 1})
PHYSICAL = make_object("artifactLocation", artifactLocation=ARTIFACT, region=REGION)
RESULT = make_object(
    "message",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=make_list(make_object("", physicalLocation=PHYSICAL)),
)
DRIVER = make_object("name", name=TEXT, rules={**make_list(RULE), "uniqueItems": True})
RUN = make_object("tool", tool=make_object("driver", driver=DRIVER), results=make_list(RESULT))
LOG = make_object(
    "version runs",
    **{"$schema": {"type": "string", "format": "uri"}},
    version={"const": "2.1.0"},
    runs=make_list(RUN),
)
