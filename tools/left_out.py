"""Recorded programs  ->  old findings and regions side by side, each program left out of what is fitted.

    python tools/score.py programs --left-out     # writes docs/why/regions.md

What people get of a floor is fitted on the programs that were timed before and after; for each program
on all others. The old findings have no such fit: they were written while looking at these programs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
import programs

if TYPE_CHECKING:
    from profkit.program.findings.case import Case
    from profkit.program.regions.judge import PricedRegion
    from profkit.program.replay.scenario import Range

PAGE = Path(__file__).resolve().parents[1] / "docs" / "why" / "regions.md"
_PLACE = re.compile(r"(?s)(?<=<!-- left_out -->\n).*(?=<!-- /left_out -->)")
LEAST = 0.02  # of the step: a floor that saves less tells nothing of what people get of it
QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Answer:
    """What is said first of a program: in milliseconds."""

    category: str
    low: float = 0.0
    expect: float = 0.0
    high: float = 0.0

    def as_said(self) -> dict[str, Any]:
        """Return it as tools/programs.py scores it."""
        return {
            "category": self.category,
            "low": self.low,
            "expect": self.expect,
            "high": self.high,
        }


@dataclass(frozen=True)
class Program:
    """A recorded program: its step, what was said of it until now, its regions, and the truth."""

    name: str
    case: Case
    old: Answer
    regions: Sequence[PricedRegion]
    truth: Mapping[str, Any]

    @property
    def saved(self) -> float:
        """Milliseconds that mending it saved."""
        return programs.saved(self.truth)


def read_programs() -> list[Program]:
    """Judge each recorded program both ways."""
    from profkit.program.regions.judge import price_regions
    from profkit.program.triage import make_case

    read = []
    for name, truth in sorted(programs.read_truths().items()):
        if not programs.is_recorded(name, truth):
            continue
        triage, _ = programs.answer(f"{name}.planted.json.gz")
        case = make_case(triage.process, triage.steps, triage.hosts)
        said = programs.judged(name)
        old = Answer(said["category"], said["low"], said["expect"], said["high"])
        read.append(Program(name, case, old, price_regions(case), truth))
    return read


def find_quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values is, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def fit_shares(read: Sequence[Program], left_out: str = "") -> dict[str, Range]:
    """Return what people got of a floor by kind of region, without one program."""
    from profkit.program.replay.scenario import Range

    got: dict[str, list[float]] = {}
    for program in read:
        if program.name == left_out:
            continue
        for row in program.regions:
            planted = row.region.rule == program.truth["category"]
            if planted and row.floor > LEAST * program.case.hosts.plain.expect:
                got.setdefault(row.region.kind, []).append(program.saved / row.floor)
    shares = {}
    for kind, values in got.items():
        low, expect, high = (find_quantile(values, share) for share in QUANTILES)
        shares[kind] = Range(low, expect, high)
    return shares


def judge_left_out(program: Program, read: Sequence[Program]) -> Answer:
    """Return what regions say first of a program that they were not fitted to."""
    from profkit.program.regions.judge import name_first, price_regions

    priced = price_regions(program.case, fit_shares(read, program.name))
    category = name_first(program.case, priced)
    if category in {"healthy", "unknown"}:
        return Answer(category)
    saving = priced[0].saving
    return Answer(category, saving.low, saving.expected, saving.high)


def count_right(pairs: Sequence[tuple[Answer, Program]]) -> str:
    """Return how many answers are right, how many savings near, and how wide intervals are."""
    first = near = timed = 0
    widths = []
    for answer, program in pairs:
        said = answer.as_said()
        first += programs.is_first(said, program.truth)
        if program.truth["category"] == "healthy":
            continue
        timed += 1
        near += programs.is_near(said, program.truth)
        if answer.expect > 0:
            widths.append((answer.high - answer.low) / answer.expect)
    return (
        f"first in {first} of {len(pairs)}; saving within 25 % or inside in {near} of {timed}; "
        f"median width of the interval {median(widths):.2f} of the saving"
    )


def make_table() -> str:
    """Return the table, and the scores under it."""
    read = read_programs()
    old = [(program.old, program) for program in read]
    new = [(judge_left_out(program, read), program) for program in read]
    lines = [
        "| program | planted | saved, ms | until now | regions, left out |",
        "|---|---|--:|---|---|",
    ]
    for (was, program), (now, _) in zip(old, new, strict=True):
        truth = program.truth["category"]
        saved = "" if truth == "healthy" else f"{program.saved:.3g}"
        row = (program.name, truth, saved, say_answer(was, truth), say_answer(now, truth))
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", f"Until now (written while looking at them): {count_right(old)}.  "]
    lines += [f"Regions, each program left out: {count_right(new)}.", ""]
    lines += ["| kind | tenth | half | nine tenths |", "|---|--:|--:|--:|"]
    for kind, (low, expect, high) in sorted(fit_shares(read).items()):
        lines.append(f"| {kind} | {low:.2f} | {expect:.2f} | {high:.2f} |")
    return "\n".join([*lines, ""])


def say_answer(answer: Answer, truth: str) -> str:
    """Return an answer for a cell; what is not right is bold."""
    category = answer.category if answer.category == truth else f"**{answer.category}**"
    if not answer.expect:
        return category
    return f"{category} {answer.expect:.3g} ({answer.low:.3g} to {answer.high:.3g})"


def main() -> int:
    """Print the table, and write it into its page."""
    text = make_table()
    PAGE.write_text(_PLACE.sub(lambda _: text, PAGE.read_text("utf-8")), "utf-8")
    print(text)
    return 0
