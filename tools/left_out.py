"""Recorded programs  ->  what is said first of each, which is left out of what is fitted.

    python tools/score.py programs --left-out     # writes docs/why/regions.md

What people get of a floor is fitted on the programs that were timed before and after; for each program
on all others. Findings with an interval of their own have no such fit: their numbers were chosen while
looking at these programs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools import programs

if TYPE_CHECKING:
    from profkit.program.findings.case import StepCase, StepFinding
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
    floor: str = ""  # the kind of its floor; empty where its interval is its own

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
    """A recorded program: its step, what its rules find, and the truth."""

    name: str
    case: StepCase
    drafts: Sequence[StepFinding]
    truth: Mapping[str, Any]
    floors: dict[int, float] = field(default_factory=dict)  # by the draft that they are of

    @property
    def saved(self) -> float:
        """Milliseconds that mending it saved."""
        return programs.saved(self.truth)

    def compute_ms_saved_at_floor(self, draft: StepFinding) -> float:
        """Return the milliseconds that a finding's floor saves: replayed once, and asked for often."""
        from profkit.program.findings.floors import compute_ms_saved_at_floor

        if id(draft) not in self.floors:
            self.floors[id(draft)] = compute_ms_saved_at_floor(self.case, draft.change)
        return self.floors[id(draft)]


def read_programs() -> list[Program]:
    """Read each recorded program, and ask the rules."""
    from profkit.program.findings import draft_findings
    from profkit.program.triage import make_step_case

    read = []
    for name, truth in sorted(programs.read_truths().items()):
        if not programs.is_recorded(name, truth):
            continue
        triage, _ = programs.answer(f"{name}.planted.json.gz")
        case = make_step_case(triage.process, triage.steps, triage.hosts)
        read.append(Program(name, case, draft_findings(case), truth))
    return read


def find_quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of the values is, between neighbours in proportion."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def fit_shares(read: Sequence[Program], left_out: str = "") -> dict[str, Range]:
    """Return what people got of a floor by kind of floor, without one program."""
    from profkit.program.replay.scenario import Range

    got: dict[str, list[float]] = {}
    for program in read:
        if program.name == left_out:
            continue
        for draft in program.drafts:
            if not draft.floor or draft.rule != program.truth["category"]:
                continue
            floor = program.compute_ms_saved_at_floor(draft)
            if floor > LEAST * program.case.hosts.step_ms_without_recorder.expect:
                got.setdefault(draft.floor, []).append(program.saved / floor)
    shares = {}
    for kind, values in got.items():
        low, expect, high = (find_quantile(values, share) for share in QUANTILES)
        shares[kind] = Range(low, expect, high)
    return shares


def judge_left_out(program: Program, read: Sequence[Program]) -> Answer:
    """Return what is said first of a program that the shares of floors were not fitted to."""
    from profkit.program.triage import (
        copy_findings_with_savings,
        rank_findings_that_save,
        widen_saving,
    )
    from profkit.program.verdict import judge_step_health

    drafts = copy_findings_with_savings(
        program.case, program.drafts, fit_shares(read, program.name)
    )
    found = rank_findings_that_save(program.case, drafts)
    verdict = judge_step_health(program.case, found, drafts)
    if verdict.category:
        return Answer(verdict.category)
    first = found[0]
    saving = widen_saving(program.case, first).saving
    return Answer(first.rule, saving.low, saving.expected, saving.high, first.floor)


def count_right(pairs: Sequence[tuple[Answer, Program]]) -> str:
    """Return how many answers are right, how many savings near, and how wide intervals are."""
    first = near = inside = timed = 0
    widths = []
    for answer, program in pairs:
        said = answer.as_said()
        first += programs.is_first(said, program.truth)
        if program.truth["category"] == "healthy":
            continue
        timed += 1
        near += programs.is_near(said, program.truth)
        right = programs.is_first(said, program.truth)
        inside += right and answer.low <= program.saved <= answer.high
        if answer.expect > 0:
            widths.append((answer.high - answer.low) / answer.expect)
    return (
        f"first in {first} of {len(pairs)}; saving within 25 % or inside in {near} of {timed}, inside "
        f"in {inside}; "
        f"median width of the interval {median(widths):.2f} of the saving"
    )


def make_table() -> str:
    """Return the table, and the scores under it."""
    read = read_programs()
    answers = [(judge_left_out(program, read), program) for program in read]
    lines = [
        "| program | planted | saved, ms | said first, left out | floor |",
        "|---|---|--:|---|---|",
    ]
    for answer, program in answers:
        truth = program.truth["category"]
        saved = "" if truth == "healthy" else f"{program.saved:.3g}"
        row = (program.name, truth, saved, say_answer(answer, truth), answer.floor)
        lines.append(f"| {' | '.join(row)} |")
    by_floor = [(answer, program) for answer, program in answers if answer.floor]
    own = [(answer, program) for answer, program in answers if not answer.floor]
    lines += ["", f"All: {count_right(answers)}.  "]
    lines += [f"By floors: {count_right(by_floor)}.  "]
    lines += [f"With an interval of their own, and healthy ones: {count_right(own)}.", ""]
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
