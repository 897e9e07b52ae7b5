"""Whatever a test prints is held to its schema, wherever it is run."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache, wraps
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).parents[1] / "profkit" / "schemas"
_BEGINS = re.compile(r'\s*\{\s*"schema": "profkit\.')


@cache
def validator(name: str) -> Any:
    """Of one document: profkit.gate/1."""
    import jsonschema

    file = SCHEMAS / f"{name.replace('/', '.')}.json"
    return jsonschema.Draft202012Validator(json.loads(file.read_text("utf-8")))


@cache
def _compiled(name: str) -> Any:
    """The same schema as code: the official validator takes a dozen times as long.

    It knows draft 7, where prefixItems is a list of items and a $ref stands alone.
    """
    import fastjsonschema

    return fastjsonschema.compile(_draft_7(validator(name).schema), use_default=False)


def _draft_7(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_draft_7(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    of = {key: _draft_7(value) for key, value in schema.items() if key != "$schema"}
    if "prefixItems" in of:
        of |= {"items": of.pop("prefixItems"), "additionalItems": of["items"]}
    if "$ref" in of and len(of) > 1:
        of["allOf"] = [{"$ref": of.pop("$ref")}]
    return of


def is_valid(document: dict[str, Any], schema: str) -> bool:
    try:
        from fastjsonschema import JsonSchemaValueException
    except ImportError:  # a GPU machine that has the official one only
        return bool(validator(schema).is_valid(document))
    try:
        _compiled(schema)(document)
    except JsonSchemaValueException:
        return False
    return True


def held(document: dict[str, Any]) -> None:
    """Assert that a document is as its schema says; the official validator says what is not."""
    if is_valid(document, document["schema"]):
        return
    from jsonschema.exceptions import best_match

    error = best_match(validator(document["schema"]).iter_errors(document))
    assert error is None, f"{document['schema']} {error.json_path}: {error.message[:300]}"


def hold_what_is_printed() -> None:
    """From now on, hold what a verb prints here, and what a process prints."""
    from typer.testing import CliRunner

    def holding(run: Any) -> Any:
        @wraps(run)
        def ran(*args: Any, **given: Any) -> Any:
            done = run(*args, **given)
            text = (
                done.stdout.decode(errors="replace")
                if isinstance(done.stdout, bytes)
                else done.stdout
            )
            if text and _BEGINS.match(text):
                held(json.loads(text))
            return done

        return ran

    CliRunner.invoke = holding(CliRunner.invoke)
    subprocess.run = holding(subprocess.run)
