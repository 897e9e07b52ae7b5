"""Recorded programs  ->  a Markdown table: planted, said first, what it was to save, what it saved.

    python tools/score.py programs

Beside what is said today stands what was said when nobody had looked at a program's recording
(`blind` in truth.json), where that was kept: rules made while looking at it score no more.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.program.counts import KernelVerdicts
    from profkit.program.timeline import Timeline
    from profkit.program.triage import Triage

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "program" / "data"
CLOSE = 0.25
PAGE = ROOT / "docs" / "howto" / "triage.md"
_PLACE = re.compile(r"(?s)(?<=<!-- programs -->\n).*(?=<!-- /programs -->)")
OPERATORS = {"op", "range", "python"}  # spans that name what was launched


def main() -> int:
    """Print the table, and write it into its page."""
    text = table()
    PAGE.write_text(_PLACE.sub(lambda _: text, PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(text)
    return 0


WITHOUT = ("shapes", "operators")  # what the score leaves out of recordings


def table(without: Sequence[str] = WITHOUT) -> str:
    """The table, and the score under it, also where the recordings lack what is named."""
    truths = read_truths()
    rows = [_row(name, truth) for name, truth in sorted(truths.items()) if is_recorded(name, truth)]
    head = "| program | planted | first | to save, ms | saved, ms | blind |\n|---|---|---|--:|--:|---|\n"
    return (
        head + "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n" + _score(truths, without)
    )


def read_truths() -> dict[str, Any]:
    """Return what was timed of each program."""
    truths: dict[str, Any] = json.loads((DATA / "truth.json").read_text())["programs"]
    return truths


def is_recorded(name: str, truth: Mapping[str, Any]) -> bool:
    return (DATA / f"{name}.planted.json.gz").is_file() and truth["planted_ms"] is not None


@cache
def answer(file: str) -> tuple[Triage, KernelVerdicts | None]:
    """What is said of a recording, once a process: all that hold it up to something share it."""
    return judge_recording(DATA / file)


def judge_recording(path: Path) -> tuple[Triage, KernelVerdicts | None]:
    from profkit.program.recorded import judge_recordings

    return judge_recordings([path])


@cache
def document(file: str) -> dict[str, Any]:
    """The same as a document."""
    from profkit.program.document import make_triage_document

    return make_triage_document(*answer(file))


def leave_out(what: str, timeline: Timeline) -> Timeline:
    """Return a recording that lacks shapes, or all that names operators; the steps' marks stay."""
    processes = []
    for process in timeline.processes:
        spans = []
        for span in process.spans:
            if what == "shapes":
                spans.append(replace(span, shapes=(), types=()))
            elif span.kind not in OPERATORS:
                spans.append(span)
        processes.append(replace(process, spans=spans))
    return replace(timeline, processes=processes)


def judged(name: str) -> dict[str, Any]:
    """What is said first of a program today: category, expect, low, high."""
    return _first(document(f"{name}.planted.json.gz"))


def _first(answer: Mapping[str, Any]) -> dict[str, Any]:
    first = answer["first"]
    return {"category": first["category"], **first["saves_ms"]}


def saved(truth: Mapping[str, Any]) -> float:
    """Milliseconds that mending a program saved; 0 for a healthy one."""
    return float(truth["planted_ms"] - (truth["mended_ms"] or truth["planted_ms"]))


def is_first(said: Mapping[str, Any], truth: Mapping[str, Any]) -> bool:
    """Whether the planted problem is said first, or a healthy program is called healthy."""
    return bool(said["category"] == truth["category"])


def is_near(said: Mapping[str, Any], truth: Mapping[str, Any]) -> bool:
    """Whether what is said first is the problem, and its saving is near, or its interval holds it."""
    came = saved(truth)
    return is_first(said, truth) and bool(
        said["low"] <= came <= said["high"] or abs(said["expect"] - came) < CLOSE * came
    )


def _row(name: str, truth: Mapping[str, Any]) -> list[str]:
    said, healthy = judged(name), truth["category"] == "healthy"
    first = said["category"] if is_first(said, truth) else f"**{said['category']}**"
    blind = truth.get("blind")
    return [
        name,
        truth["category"],
        first,
        "" if healthy else _saves(said),
        "" if healthy else f"{saved(truth):.3g}",
        f"{blind['category']}{'' if healthy else ', ' + _saves(blind)}" if blind else "",
    ]


def _saves(said: Mapping[str, Any]) -> str:
    return f"{said['expect']:.3g} ({said['low']:.3g} to {said['high']:.3g})"


def _score(truths: Mapping[str, Any], without: Sequence[str]) -> str:
    recorded = {n: t for n, t in truths.items() if is_recorded(n, t)}
    blind = [(t["blind"], t) for t in truths.values() if "blind" in t]
    today = [(judged(n), t) for n, t in recorded.items()]
    lines = [*_counted("Today", today)]
    for what in without:
        lines += _counted(f"Today, without {what}", _said_without(what, recorded))
    return "\n".join((*lines, *_counted("Blind", blind), ""))


def _said_without(what: str, truths: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """What is said first of the same recordings without shapes, or without all that names operators."""
    from profkit.program.document import make_triage_document
    from profkit.program.readers import read_timeline
    from profkit.program.triage import triage_timeline

    pairs = []
    for name, truth in truths.items():
        timeline = read_timeline(DATA / f"{name}.planted.json.gz")
        answer = triage_timeline(leave_out(what, timeline))
        pairs.append((_first(make_triage_document(answer, None)), truth))
    return pairs


def _counted(what: str, pairs: list[tuple[Any, Any]]) -> Iterator[str]:
    if not pairs:
        return
    timed = [(s, t) for s, t in pairs if t["category"] != "healthy"]
    yield (
        f"{what}: first in {sum(is_first(s, t) for s, t in pairs)} of {len(pairs)}; saving within 25 % "
        f"or inside in {sum(is_near(s, t) for s, t in timed)} of {len(timed)}.  "
    )
