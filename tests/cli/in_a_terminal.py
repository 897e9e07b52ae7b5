"""Runs verbs in this process, whose stdout is a terminal, and keeps every table they print.

Arguments: a file to write, as JSON, of each command its tables (their cells and what was drawn), and
the commands, as a JSON list of lists.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from profkit.cli.app import app
from profkit.show.text import terminal
from profkit.show.text.blocks import is_right, plain_words, spans

tables: list[dict[str, Any]] = []
DRAW = terminal._grid


def _kept(grid: Any, on: Any, indent: int) -> str:
    drawn = DRAW(grid, on, indent)
    tables.append({
        "head": [plain_words(title) for title in grid.head],
        "right": [is_right(title) for title in grid.head],
        "rows": [[plain_words(cell) for cell in row] for row in grid.rows],
        "names": [[any(x.role in ("name", "code") for x in spans(cell)) for cell in row]
                  for row in grid.rows],
        "wraps": grid.wraps,
        "bands": grid.bands or grid.asked,  # further tables, of a line a row each
        "drawn": drawn,
    })  # fmt: skip
    return drawn


def main() -> None:
    """Run each command, whatever its exit status."""
    terminal._grid = _kept
    found = []
    for command in json.loads(sys.argv[2]):
        tables.clear()
        try:
            app(command)
        except SystemExit as end:
            found.append({"command": command, "status": end.code, "tables": list(tables)})
    Path(sys.argv[1]).write_text(json.dumps(found), "utf-8")


main()
