"""[tool.profkit] in pyproject.toml  ->  what a verb does where no flag says it."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.cli.options import FAIL_ON
from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import read_json_or_toml_bytes

if TYPE_CHECKING:
    from profkit.units import PlainValues, VerbName


# A key -> the verbs that take it, and the name of their parameter.
PLACES: dict[str, tuple[str, tuple[str, ...]]] = {
    "artifacts": ("artifacts", ("claims", "compare", "decide", "history", "ladder", "whatif")),
    "fail-on": ("fail_on", ("compare", "ladder")),
    "ignore": ("ignore", ("diagnose",)),
}
Defaults = dict[str, dict[str, Any]]  # verb -> parameter -> value
MOST = 1 << 20  # bytes of a pyproject.toml
# Dots of a line, and of one that names a table: for each key tomllib looks at all parts of both, and for
# a key `a.a.a...` at the square of them. All lines together may have as many squares as this.
DOTS_MOST = 1000
TABLE_DOTS_MOST = 50
SQUARES_MOST = 4_000_000


def read_defaults_of_verbs(file: Path, current: Path) -> dict[VerbName, dict[str, PlainValues]]:
    """Return what a pyproject.toml says of each verb's parameters.

    Raises:
        ProfkitError: The file is no TOML, or a key or a value is not known: it names both.
    """
    try:
        text = read_json_or_toml_bytes(file, MOST).decode("utf-8")
        refuse_long_keys(text)
        content = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise ProfkitError(f"{file}: not TOML: {error}", "fix the file") from error
    tool = content.get("tool")
    table = {}
    if isinstance(tool, dict):
        table = tool.get("profkit", {})
    if not isinstance(table, dict):
        raise ProfkitError(f"{file}: tool.profkit is not a table", "write [tool.profkit]")
    defaults: Defaults = {}
    for key, value in table.items():
        if key not in PLACES:
            why = f"{file}: [tool.profkit] {key}: unknown key"
            raise ProfkitError(why, suggest_nearest_names(key, PLACES))
        parameter, verbs = PLACES[key]
        checked = verify_and_convert_setting(file, key, value)
        if key == "artifacts":
            checked = os.path.relpath(file.parent / checked, current)
        for verb in verbs:
            defaults.setdefault(verb, {})[parameter] = checked
    return defaults


def refuse_long_keys(text: str) -> None:
    """Raise a ValueError where keys may have more parts than tomllib reads in a moment."""
    squares = 0
    for line in text.splitlines():
        dots = line.count(".")
        most = TABLE_DOTS_MOST if line.lstrip().startswith("[") else DOTS_MOST
        if dots > most:
            raise ValueError(f"a line has more than {most} dots")
        squares += dots * dots
    if squares > SQUARES_MOST:
        raise ValueError("its lines have too many dots")


def verify_and_convert_setting(file: Path, key: str, value: object) -> PlainValues:
    """Return a value that has the type of its key, and names what there is."""
    where = f"{file}: [tool.profkit] {key}"
    if key == "artifacts":
        if not isinstance(value, str) or not value:
            raise ProfkitError(f"{where}: not a folder's name", 'for example artifacts = "runs"')
        return value
    known = list(FAIL_ON)
    if key == "ignore":
        from profkit.diagnosis.rules import BY_ID

        known = list(BY_ID)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ProfkitError(f"{where}: not a list of names", f'for example {key} = ["{known[0]}"]')
    for name in value:
        if name not in known:
            raise ProfkitError(f"{where}: {name}: unknown", suggest_nearest_names(name, known))
    return value
