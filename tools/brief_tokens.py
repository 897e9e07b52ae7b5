"""How much an agent has to read: profkit's brief beside Nsight Compute's own text, for each probe.

    ncu --import probes-0.ncu-rep --page details > 0.txt      on a machine with ncu; likewise the others
    python tools/brief_tokens.py 0.txt 1.txt ...

Without files only the briefs are counted. A token is taken for four characters, as tokenizers make of
English with numbers on average; the ratio does not depend on it.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

from profkit.diagnosis.launches import judged, judged_rows, with_lines
from profkit.reports.reader import read_report
from profkit.show.views.brief import brief_diagnosis

RECORDED = Path(__file__).parents[1] / "artifacts" / "probes"
PER_TOKEN = 4.0  # characters
# What begins the part of a launch in `--page details`.
_LAUNCH = re.compile(r"^ {2}(\S.*?) \(\d+, \d+, \d+\)x\(\d+, \d+, \d+\), Context \d+", re.M)


def briefs() -> dict[str, tuple[str, str]]:
    """Probe -> its kernel's name and its brief; the probe itself, not its twin."""
    runs = judged(read_report(sorted(map(str, RECORDED.glob("*.ncu-rep*")))))
    main = {run.variant: run for run in reversed(runs) if run.case == "main" and run.variant}
    lined = with_lines(list(main.values()), None, 0)
    return {
        str(name): (run.kernel, brief_diagnosis(judged_rows([run])))
        for name, run in zip(main, lined, strict=True)
    }


def details(files: Iterable[Path]) -> dict[str, int]:
    """Kernel -> characters of its part of ncu's text, the shortest of several launches."""
    found: dict[str, int] = {}
    for file in files:
        text = file.read_text("utf-8", errors="replace")
        starts = [*_LAUNCH.finditer(text)]
        ends = [match.start() for match in starts[1:]] + [len(text)]
        for match, end in zip(starts, ends, strict=True):
            name = re.sub(r"[<(].*", "", match[1]).split()[-1]
            found[name] = min(found.get(name, end - match.start()), end - match.start())
    return found


def main(files: list[Path]) -> None:
    """Print one line a probe, then the medians, as JSON at the end."""
    ours = {name: (kernel, len(text)) for name, (kernel, text) in briefs().items()}
    theirs = details(files)
    ratios, sizes, others = [], [], []
    for name, (kernel, size) in sorted(ours.items()):
        bare = re.sub(r"[<(].*", "", kernel.removeprefix("void ")).split()[-1]
        other = theirs.get(bare)
        sizes.append(size / PER_TOKEN)
        if other:
            ratios.append(other / size)
            others.append(other / PER_TOKEN)
        print(
            f"{name:24} {size / PER_TOKEN:6.0f} {other / PER_TOKEN if other else float('nan'):8.0f}"
        )
    summary = {
        "probes": len(sizes), "brief_median": statistics.median(sizes), "brief_most": max(sizes),
        "with_ncu": len(others), "ncu_median": statistics.median(others) if others else None,
        "times_median": statistics.median(ratios) if ratios else None,
    }  # fmt: skip
    print(json.dumps(summary))


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
