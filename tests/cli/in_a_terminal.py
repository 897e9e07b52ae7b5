"""Runs verbs in this process, whose stdout is a terminal, and keeps every table they print.

Arguments: a file to write, as JSON, of each width and command the tables (their cells and what was
drawn), and width -> commands, as JSON. A line END ends what is printed at a width.
"""

from __future__ import annotations

import fcntl
import json
import struct
import sys
import termios
from pathlib import Path
from typing import Any

from profkit.cli.app import app
from profkit.show.text import terminal
from profkit.show.text.blocks import convert_to_spans, get_plain_text, is_right_aligned
from tests.conftest import read_once

tables: list[dict[str, Any]] = []
DRAW = terminal.render_grid
END = "end of this width"


def _kept(grid: Any, on: Any, indent: int) -> str:
    drawn = DRAW(grid, on, indent)
    tables.append(
        {
            "head": [get_plain_text(title) for title in grid.head],
            "right": [is_right_aligned(title) for title in grid.head],
            "rows": [[get_plain_text(cell) for cell in row] for row in grid.rows],
            "names": [
                [any(x.role in ("name", "code") for x in convert_to_spans(cell)) for cell in row]
                for row in grid.rows
            ],
            "wraps": grid.wraps,
            "spare": [get_plain_text(title) for title in grid.spare],
            "bands": grid.bands or grid.asked,  # further tables, of a line a row each
            "drawn": drawn,
        }
    )
    return drawn


def main() -> None:
    """Run each command at each width, whatever its exit status."""
    terminal.render_grid = _kept
    read_once()  # a report for all widths
    found = {}
    for width, commands in json.loads(sys.argv[2]).items():
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(width), 0, 0))
        found[width] = [_told(command) for command in commands]
        print(END, flush=True)
    Path(sys.argv[1]).write_text(json.dumps(found), "utf-8")


def _told(command: list[str]) -> dict[str, Any]:
    tables.clear()
    try:
        app(command)
    except SystemExit as end:
        return {"command": command, "status": end.code, "tables": list(tables)}
    raise AssertionError(f"{command} does not end with a status")


if __name__ == "__main__":
    main()
