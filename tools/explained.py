"""Probes and what was recorded of them  ->  profkit/diagnosis/rules/pages/measured.json.

    python tools/explained.py

What `profkit explain` shows as measured, also where the probes are not: for each rule the probes that it
must name first and how much faster their twin without the cause is; for each metric the probes with the
lowest and the highest value. tests/kernels/test_explained.py holds it current.
"""

from __future__ import annotations

import json
import sys
from math import isfinite
from pathlib import Path
from typing import Any

from profkit.diagnosis.pages import FOLDER
from profkit.files import write_text
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import read_report_files

sys.path.insert(0, str(Path(__file__).parent))
import verdicts


def pairs() -> dict[str, list[dict[str, Any]]]:
    """Rule -> its probes with a twin, the largest gain first."""
    known = verdicts.truths()
    times = json.loads((verdicts.RECORDED / "times.json").read_text("utf-8"))["times"]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, path in known.probes(verdicts.PROBES).items():
        keys, took = known.header(path), times.get(name, {})
        if "twin" not in took:
            continue
        pair = {
            "probe": name,
            "title": path.read_text("utf-8").splitlines()[0].removeprefix("/* ").rstrip("."),
            "relieves": keys["relieves"],
            "gain": round(took["main"] / took["twin"], 2),
        }
        found.setdefault(keys["cause"], []).append(pair)
    return {
        rule: sorted(several, key=lambda pair: (-pair["gain"], pair["probe"]))
        for rule, several in sorted(found.items())
    }


def ranges() -> tuple[str, dict[str, list[tuple[str, float]]]]:
    """The GPU, and metric -> the probes with its lowest and its highest value."""
    reports = read_report_files(sorted(verdicts.RECORDED.glob("probes-*.ncu-rep*")))
    launches, rows = reports.launches, verdicts.main_launches(reports)
    found = {}
    for metric in CATALOGUE:
        values = sorted(
            (float(row[metric]), str(name))
            for name, row in rows.items()
            if metric in row and isfinite(float(row[metric]))
        )
        if values and values[0][0] != values[-1][0]:
            ends = values[0], values[-1]
            found[metric] = [(name, float(f"{value:.4g}")) for value, name in ends]
    return str(launches["device"].iloc[0]), found


def document() -> str:
    """The file's text."""
    gpu, metrics = ranges()
    kept = {"gpu": gpu, "rules": pairs(), "metrics": metrics}
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    write_text(FOLDER / "measured.json", document())
