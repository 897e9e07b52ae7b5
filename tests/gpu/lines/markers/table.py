"""What score.py has recorded  ->  a table of lines: by mode and phase, and by model.

python -m tests.gpu.lines.markers.table [RECORD]      # docs/decisions/363 has its output
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("record.json")
NAMES = {
    "eager": "eager",
    "compile": "torch.compile",
    "reduce": "reduce-overhead",
    "hand": "captured by hand",
}
PHASES = ("forward", "backward", "optimizer")
COUNTED = ("time", "line", "told", "right_line", "right_all", "layer", "module", "right_module")
HEAD = (
    "| {what} | kernels | GPU time | with a line | sizes tell it | right line | "
    "all lines right | module named | right module |\n| --- |" + " --: |" * 8
)


def add_rows(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Add up what is counted."""
    sums = dict.fromkeys((*COUNTED, "kernels"), 0)
    for row in rows:
        for name in sums:
            sums[name] += row[name]
    return sums


def say_share(part: int, whole: int) -> str:
    """Say a share of nanoseconds in percent; a dash where there is nothing."""
    if not whole:
        return "-"
    share = 100 * part / whole
    return f"{share:.1f} %" if share < 99.95 or part == whole else "99.9 %"


def write_row(name: str, sums: Mapping[str, int]) -> str:
    """Write one row of the table."""
    cells = [
        name,
        f"{sums['kernels']:,}",
        f"{sums['time'] / 1e6:.1f} ms",
        say_share(sums["line"], sums["time"]),
        say_share(sums["told"], sums["time"]),
        say_share(sums["right_line"], sums["told"]),
        say_share(sums["right_all"], sums["told"]),
        say_share(sums["module"], sums["layer"]),
        say_share(sums["right_module"], sums["module"]),
    ]
    return f"| {' | '.join(cells)} |"


def write_tables(record: Mapping[str, Any]) -> str:
    """Write both tables."""
    rows: Sequence[Mapping[str, Any]] = record["rows"]
    lines = [HEAD.format(what="mode and phase")]
    for mode, name in NAMES.items():
        for phase in PHASES:
            own = [row for row in rows if row["mode"] == mode and row["phase"] == phase]
            lines.append(write_row(f"{name}, {phase}", add_rows(own)))
    lines += ["", HEAD.format(what="model, all modes, forward and backward")]
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model and row["phase"] in PHASES[:2]]
        lines.append(write_row(model, add_rows(own)))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    path = Path(arguments[0]) if arguments else RECORD
    print(write_tables(json.loads(path.read_text("utf-8"))), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
