"""Do the gains come true? Causes, bounds, expectations and intervals against every fix on record.

    python tools/score.py gains            # the scores, and the numbers that the code uses
    python tools/score.py gains --misses   # where the cause was not named first
    python tools/score.py gains --beside   # NVIDIA's ranking beside ours, on the same launches
    python tools/score.py gains FOLDER...  # first keeps the pairs of these folders

Probes with their twins, steps of the ladder whose header says what they fix, and other people's kernels
before and after a change (artifacts/pairs.json.xz: counters, no code). Rules were written with these in
view. artifacts/unseen.json.xz has the same of changes that nobody here had seen when they were judged
(tools/unseen.py has what was said of them then). SPREAD and COVERAGE of profkit/model/scenario.py are of
what was said then: what is said today knows what those answers missed. Each fix is held against an
interval that was made without its repository (split conformal prediction: the quantiles of the
residuals of unseen code), also those of today. Probes are left out of that: their twins remove all of a
cause.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from math import exp, isfinite, log, sqrt
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import unseen
import verdicts
from unseen import CLAIMS, FASTER

from profkit import from_raw
from profkit.diagnosis.rule import CombinedGain, Diagnosis, LaunchFinding
from profkit.diagnosis.rules import BY_ID, waits
from profkit.diagnosis.verdict import is_unexplained_wait, judge_launch
from profkit.judge import Estimate
from profkit.model import launch as model_launch
from profkit.model.launch import Launch
from profkit.model.scenario import (
    OFFSET,
    Expectation,
    Kind,
    make_bounded_expectation,
    reprice_unexplained_wait,
)
from profkit.records.ablation import read_ablations_by_rule
from profkit.reports.metrics import CATALOGUE

ARTIFACTS = verdicts.ROOT / "artifacts"
KEPT = ARTIFACTS / "pairs.json.xz"
KEPT_UNSEEN = ARTIFACTS / "unseen.json.xz"
STEPS = ARTIFACTS / "steps.json"
ENDS = (0.1, 0.9)  # the quantiles of an interval that holds four times of five
NORMAL_90 = 1.645  # standard deviations on both sides of 90 % of a normal distribution
WIDTHS = (1.25, 1.5, 2.0, 3.0, float("inf"))  # high over low up to which a launch is answered
PROBES, LADDER, PAIRS, UNSEEN = "probes", "ladder", "pairs", "unseen"
THEN = "then"  # unseen, with what was said of them when they were
OURS = frozenset({"clocks-unsteady", "replay-unsteady", "cache-resident", "operations-mismatch"})

# Rules of NVIDIA that name a cause, and what we call it; the others name none (issue slots that are not
# used, compression that is not on).
_STALLS = {
    "Long Scoreboard": "long-scoreboard",
    "Short Scoreboard": "short-scoreboard",
    "Barrier": "barrier-wait",
    "Drain": "store-drain",
    "Lg Throttle": "lg-throttle",
    "Mio Throttle": "mio-throttle",
    "Tex Throttle": "tex-throttle",
    "Membar": "membar",
    "Wait": "fixed-latency",
    "Not Selected": "issue-slots",
}
_NVIDIA: Mapping[str, tuple[str, ...]] = {
    "UncoalescedGlobalAccess": ("uncoalesced-access",),
    "MemoryCacheAccessPattern": ("uncoalesced-access",),
    "SharedMemoryConflicts": ("shared-bank-conflicts",),
    "UncoalescedSharedAccess": ("shared-bank-conflicts",),
    "TheoreticalOccupancy": ("occupancy-registers", "occupancy-shared", "occupancy-blocks"),
    "AchievedOccupancy": ("short-blocks", "workload-imbalance"),
    "ThreadDivergence": ("thread-divergence",),
    "FPInstructions": ("non-fused-math",),
    "LaunchConfiguration": ("grid-too-small", "tail-effect", "occupancy-blocks", "partial-warps"),
    "WorkloadImbalance": ("workload-imbalance", "hidden-tail", "atomics-contention"),
}


@dataclass(frozen=True)
class FixOnRecord:
    """What came of one fix, and what was said of it: speed-up factors."""

    group: str  # probes, ladder, pairs, unseen or then
    repository: str  # what is left out at once
    name: str
    kind: Kind | None
    came: float
    expected: float
    gain: float | None
    modelled: Estimate | None = None  # of a wait that counters do not explain: the model's estimate

    @property
    def residual(self) -> float:
        """Ln came - ln expected, in units of the latter."""
        return log(self.came / self.expected) / (OFFSET + log(self.expected))


@dataclass(frozen=True)
class Pair:
    """Somebody's kernel before a change, how much faster it became, and which rules name the cause."""

    name: str
    repository: str
    rules: tuple[str, ...]
    speedup: float
    before: Mapping[str, float]
    nvidia: tuple[tuple[str, str, float], ...]  # rule, title, estimated share of the time

    @cached_property
    def diagnosis(self) -> Diagnosis:
        return judge_launch(self.before)

    @property
    def causes(self) -> list[LaunchFinding]:
        """The findings that are no doubt about the measurement, the first one first."""
        return [f for f in self.diagnosis.findings if f.status == "fires" and f.rule not in OURS]

    @property
    def rank(self) -> int | None:
        """The place of the first right one, from 0; None where it is not among them."""
        names = [f.rule for f in self.causes]
        return min((names.index(rule) for rule in self.rules if rule in names), default=None)

    @property
    def nvidia_rank(self) -> int | None:
        """The same in NVIDIA's order, by estimated speed-up, of those rules that name a cause."""
        causes = list(dict.fromkeys(_nvidia_cause(rule, title) for rule, title, _ in self.nvidia))
        named = [cause for cause in causes if cause]
        return next((n for n, cause in enumerate(named) if set(cause) & set(self.rules)), None)

    def estimate_unexplained_wait(self, found: LaunchFinding) -> Estimate | None:
        """Return what the model expects of an unexplained wait that leads; None of others."""
        if found is not self.causes[0] or not is_unexplained_wait(found):
            return None
        asked = BY_ID[found.rule].evaluate_launch(Launch(self.before))
        return asked[1] if asked else None

    @property
    def became_faster(self) -> bool:
        return self.speedup >= FASTER and bool(self.rules)


def _nvidia_cause(rule: str, title: str) -> tuple[str, ...]:
    if rule == "CPIStall":
        stall = _STALLS.get(title.removesuffix(" Stalls"))
        return (stall,) if stall else ()
    return ("local-memory", "register-spills") if "Local" in title else _NVIDIA.get(rule, ())


def _kind(rule: str) -> Kind | None:
    fix = BY_ID[rule].fix if rule in BY_ID else None
    return fix.kind if fix else None


def probes() -> Iterator[FixOnRecord]:
    """Probes with their twins."""
    for row in verdicts.rows():
        if row.gain and row.gain >= FASTER and row.expect and (kind := _kind(str(row.said[2]))):
            yield FixOnRecord(
                PROBES, PROBES, row.probe, kind, row.gain, row.expect.gain, row.estimate
            )


def ladder() -> Iterator[FixOnRecord]:
    """Steps that removed what their header says, with what was expected of each when it was tried."""
    for step in json.loads(STEPS.read_text("utf-8"))["steps"]:
        if step["speedup"] >= FASTER:
            yield FixOnRecord(
                group=LADDER,
                repository=LADDER,
                name=f"{step['variant']} > {step['child']}",
                kind=_kind(step["rules"][0]),
                came=step["speedup"],
                expected=step["expect"],
                gain=step["gain"],
            )


def pairs(path: Path = KEPT) -> list[Pair]:
    """What is kept of other people's kernels."""
    with lzma.open(path, "rt") as file:
        kept = json.load(file)
    return [
        Pair(
            name=one["pair"],
            repository=one["repository"],
            rules=tuple(one["rules"]),
            speedup=one["speedup"],
            before=one["before"],
            nvidia=tuple((rule, title, part) for rule, title, part in one["nvidia"]),
        )
        for one in kept
    ]


def of_pairs(kept: Sequence[Pair], group: str = PAIRS) -> Iterator[FixOnRecord]:
    """Pairs that became faster and whose cause has a price."""
    for pair in kept:
        if not pair.became_faster or pair.rank is None:
            continue
        found = pair.causes[pair.rank]
        kind = _kind(found.rule)
        said: LaunchFinding | CombinedGain = found
        both = pair.diagnosis.together
        if both and set(both.rules) <= set(pair.rules):
            said = both  # the change took both away, and this is what is said of both
        if said.expect and kind:
            yield FixOnRecord(
                group,
                pair.repository,
                pair.name,
                kind,
                pair.speedup,
                said.expect.gain,
                said.gain,
                pair.estimate_unexplained_wait(found),
            )


def fixes_on_record(kept: Sequence[Pair]) -> list[FixOnRecord]:
    """Return every fix: of probes, the ladder, these pairs, and the unseen ones."""
    return [*probes(), *ladder(), *of_pairs(kept), *of_pairs(pairs(KEPT_UNSEEN), UNSEEN)]


@dataclass(frozen=True)
class NothingCame:
    """Pairs that brought nothing: all, and those to which the first finding promised much."""

    pairs: int
    promised: int
    refuted: int  # of the promised: the change was against the very cause that the promise is for


def count_nothing_came(kept: Sequence[Pair]) -> NothingCame:
    """Count what was promised to pairs that brought nothing."""
    slow = [pair for pair in kept if pair.speedup < FASTER]
    promised = 0
    refuted = 0
    for pair in slow:
        top = pair.causes[0] if pair.causes else None
        if top and top.expect and top.expect.gain > CLAIMS:
            promised += 1
            refuted += top.rule in pair.rules
    return NothingCame(len(slow), promised, refuted)


@dataclass(frozen=True)
class Tuned:
    """A number that pairs on record say, and what else it could be."""

    module: ModuleType
    name: str
    values: tuple[float, ...]


# The other numbers that decide come from probes, the ladder, or the hardware.
TUNED = (
    Tuned(waits, "LOADS_WAIT", (0.2, 0.3, 0.4, 0.5, 0.6)),
    Tuned(model_launch, "READ_AGAIN", (0.2, 0.35, 0.5, 0.65, 0.8)),
    Tuned(model_launch, "AT_WORK", (0.65, 0.7, 0.75, 0.8, 0.85, 0.9)),
    Tuned(model_launch, "STEP", (16.0, 24.0, 32.0, 48.0, 64.0)),
)


@dataclass(frozen=True)
class Answer:
    """What is said of a pair: is its cause first, among three, and what the first finding promises."""

    first: bool
    three: bool
    promised: float
    off: float  # by what factor that is off what came, as a logarithm


Tried = Mapping[tuple[str, float], Mapping[str, Answer]]  # number and value -> pair -> answer


def answer_pairs(kept: Sequence[Pair]) -> dict[str, Answer]:
    """Judge the pairs with the numbers as they are set now."""
    answers = {}
    for pair in kept:
        fresh = replace(pair)  # a pair keeps its diagnosis
        top = fresh.causes[0] if fresh.causes else None
        promised = top.expect.gain if top and top.expect else 1.0
        answers[pair.name] = Answer(
            first=fresh.rank == 0,
            three=fresh.rank is not None and fresh.rank < 3,
            promised=promised,
            off=abs(log(promised / pair.speedup)),
        )
    return answers


def answer_with(kept: Sequence[Pair], values: Sequence[float]) -> dict[str, Answer]:
    """Judge pairs with other values of the tuned numbers, which are as they were afterwards."""
    before = [getattr(number.module, number.name) for number in TUNED]
    try:
        for number, value in zip(TUNED, values, strict=True):
            setattr(number.module, number.name, value)
        return answer_pairs(kept)
    finally:
        for number, value in zip(TUNED, before, strict=True):
            setattr(number.module, number.name, value)


def choose_values(kept: Sequence[Pair], tried: Tried) -> list[float]:
    """Return for each tuned number the value with which these pairs are answered best.

    That is the most causes named first, then the promises nearest to what came.
    """
    chosen = []
    for number in TUNED:
        scores = {}
        for value in number.values:
            answers = tried[number.name, value]
            first = sum(answers[pair.name].first for pair in kept if pair.became_faster)
            off = sum(answers[pair.name].off for pair in kept)
            scores[value] = (first, -off)
        chosen.append(max(number.values, key=lambda value: scores[value]))
    return chosen


def report_left_out(kept: Sequence[Pair], say: Callable[[str], object] = print) -> None:
    """Say how often the cause is first where what pairs say is chosen without their repository."""
    today = [float(getattr(number.module, number.name)) for number in TUNED]
    of_today = answer_pairs(kept)
    tried = {}
    for place, number in enumerate(TUNED):
        for value in number.values:
            values = [*today[:place], value, *today[place + 1 :]]
            same = value == today[place]
            tried[number.name, value] = of_today if same else answer_with(kept, values)
    left_out: dict[str, Answer] = {}
    for repository in dict.fromkeys(pair.repository for pair in kept):
        others = [pair for pair in kept if pair.repository != repository]
        own = [pair for pair in kept if pair.repository == repository]
        chosen = choose_values(others, tried)
        if chosen == today:
            left_out |= {pair.name: of_today[pair.name] for pair in own}
        else:
            left_out |= answer_with(own, chosen)
    say_answers("in sample", kept, of_today, say)
    say_answers("left out", kept, left_out, say)


def say_answers(
    what: str, kept: Sequence[Pair], answers: Mapping[str, Answer], say: Callable[[str], object]
) -> None:
    """Say the score of these answers."""
    faster = [answers[pair.name] for pair in kept if pair.became_faster]
    slow = [answers[pair.name] for pair in kept if pair.speedup < FASTER]
    first = sum(answer.first for answer in faster)
    three = sum(answer.three for answer in faster)
    claimed = sum(answer.promised > CLAIMS for answer in slow)
    off = exp(sum(answer.off for answer in answers.values()) / len(answers))
    say(
        f"{what}: cause first in {first} of {len(faster)}, among three in {three}; of {len(slow)} that "
        f"brought nothing {claimed} were promised more than {CLAIMS:g}x; first promise off by {off:.2f}"
    )


def keep(folder: Path) -> Iterator[dict[str, Any]]:
    """The numbers of a folder's pairs: no name of a kernel, no code."""
    with lzma.open(folder / "raw.json.xz", "rt") as file:
        raw = json.load(file)
    launches = {run: _launch(counters) for run, counters in raw.items()}
    for pair in json.loads((folder / "pairs.json").read_text("utf-8")):
        before = launches[pair["before"]]
        if pair.get("before_us") and pair.get("after_us"):
            came = pair["before_us"] / pair["after_us"]
        else:
            came = before["time"] / launches[pair["after"]]["time"]
        yield {
            "pair": pair["id"],
            "repository": pair["repo"].split()[0],
            "rules": pair["expected_rules"],
            "speedup": float(f"{came:.6g}"),
            "before": {name: float(f"{value:.6g}") for name, value in before.items()},
            "nvidia": _nvidia_results(raw[pair["before"]]),
        }


def _nvidia_results(counters: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """NVIDIA's rules that gave an estimate, the largest first."""
    found = []
    for result in counters.get("r", []):
        if result["speedup"]:
            part = float(result["speedup"]["speedup"]) / 100
            found.append((result["id"], result["message"]["title"], round(part, 4)))
    return sorted(found, key=lambda result: -result[2])


def _launch(counters: Mapping[str, Any]) -> dict[str, float]:
    row = {"kernel": counters["name"]}
    for name, found in counters["m"].items():
        row |= {name: found["v"]} if "v" in found else {}
        row |= {f"{name}[{key}]": value for key, value in found.get("i", {}).items()}
    frame = from_raw([row]).iloc[0]
    return {name: float(frame[name]) for name in CATALOGUE if isfinite(frame[name])}


@dataclass(frozen=True)
class UnexplainedWait:
    """A change against a wait without a cause that leads: how far what came is from the model."""

    repository: str
    came: float
    residual: float


@cache
def read_unexplained_waits() -> tuple[UnexplainedWait, ...]:
    """Return every change against such a wait on record, whether or not it brought anything.

    A change against something else (bank conflicts, registers, nothing) leaves the wait as it is: what
    it brought says nothing of loads in flight.
    """
    waits = []
    for pair in [*pairs(), *pairs(KEPT_UNSEEN)]:
        if not pair.causes or pair.causes[0].rule not in pair.rules:
            continue
        saving = pair.estimate_unexplained_wait(pair.causes[0])
        if saving and saving.is_known:
            size = log(saving.expected)
            residual = (log(pair.speedup) - size) / (OFFSET + size)
            waits.append(UnexplainedWait(pair.repository, pair.speedup, residual))
    return tuple(waits)


def spread_of_unexplained(without: str = "") -> tuple[float, float, float]:
    """Return the quantiles of these residuals, those of a repository left out."""
    kept = [wait.residual for wait in read_unexplained_waits() if wait.repository != without]
    low, middle, high = np.quantile(kept, (ENDS[0], 0.5, ENDS[1]), method="weibull")
    return round(float(low), 2), round(float(middle), 2), round(float(high), 2)


@cache
def read_unseen_fixes() -> tuple[FixOnRecord, ...]:
    """Return the unseen changes that brought something, with what was expected of them then."""
    fixes = []
    for change in chain.from_iterable(unseen.read_changes().values()):
        if change.came < FASTER or change.place is None or change.expected is None:
            continue
        rule = change.said[change.place - 1]
        fixes.append(
            FixOnRecord(
                THEN,
                change.repository,
                change.id,
                _kind(rule),
                change.came,
                change.expected,
                change.bound,
            )
        )
    return tuple(fixes)


def spread(without: str = "") -> tuple[float, float]:
    """Return the quantiles that a further residual of unseen code has: of n, ranks over n + 1.

    Residuals are those of the answers when nobody had seen the code, those of a repository left out.
    """
    kept = [fix.residual for fix in read_unseen_fixes() if fix.repository != without]
    low, high = np.quantile(kept, ENDS, method="weibull")
    return round(float(low), 2), round(float(high), 2)


def hold_answers_of_then() -> list[tuple[FixOnRecord, Expectation]]:
    """Return each unseen fix with an interval around what was expected then, its repository left out."""
    return [
        (fix, make_bounded_expectation(fix.expected, spread(fix.repository), fix.gain))
        for fix in read_unseen_fixes()
    ]


def left_out(fixes: Sequence[FixOnRecord]) -> dict[str, list[tuple[FixOnRecord, Expectation]]]:
    """Repository -> each of its fixes, with an interval made without all of them."""
    held: dict[str, list[tuple[FixOnRecord, Expectation]]] = {}
    for name in Counter(fix.repository for fix in fixes):
        rest = spread(name)
        held[name] = []
        for fix in fixes:
            if fix.repository == name:
                held[name].append((fix, make_interval(fix, rest, spread_of_unexplained(name))))
    return held


def make_interval(
    fix: FixOnRecord, rest: tuple[float, float], unexplained: tuple[float, float, float]
) -> Expectation:
    """Return the interval of a fix, made of these quantiles."""
    if fix.modelled is None:
        return make_bounded_expectation(fix.expected, rest, fix.gain)
    saving = reprice_unexplained_wait(fix.modelled, unexplained)
    return Expectation(saving.expected, saving.low, saving.high)


def holds(fix: FixOnRecord, hope: Expectation) -> bool:
    return hope.low <= fix.came <= hope.high


def uncertainty(held: int, of: int) -> tuple[float, float]:
    """Where the true share is nine times of ten (Wilson's interval)."""
    share, z2 = held / of, NORMAL_90**2
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = NORMAL_90 * sqrt(share * (1 - share) / of + z2 / (4 * of * of)) / (1 + z2 / of)
    return middle - half, middle + half


def error(of: Sequence[FixOnRecord]) -> float:
    """By what factor the expected speed-up is off, in the mean of the logarithms."""
    return exp(sum(abs(log(f.expected / f.came)) for f in of) / max(len(of), 1))


def report(
    fixes: Sequence[FixOnRecord], kept: Sequence[Pair], say: Callable[[str], object] = print
) -> None:
    """Say the scores: causes, bounds and expectations, intervals, then the misses."""
    report_causes(kept, say)
    report_bounds(fixes, say)
    own = [fix for fix in fixes if fix.group != PROBES]
    report_intervals(own, say)
    report_answers_of_then(say)
    low, high = spread()
    say(
        f"an interval is from {low:+.2f} to {high:+.2f}, from {len(read_unseen_fixes())} unseen fixes"
    )
    low, middle, high = spread_of_unexplained()
    say(
        f"of a wait without a cause it is from {low:+.2f} to {high:+.2f}, median {middle:+.2f}, from "
        f"{len(read_unexplained_waits())} changes"
    )


def report_answers_of_then(say: Callable[[str], object]) -> None:
    """Say how often such an interval around what was expected held when nobody had seen the code."""
    held = hold_answers_of_then()
    inside = sum(holds(fix, hope) for fix, hope in held)
    low, high = uncertainty(inside, len(held))
    say(
        f"around what was expected before it was seen: {inside} of {len(held)} ({100 * low:.0f} to "
        f"{100 * high:.0f} %), median width {median(hope.high / hope.low for _, hope in held):.2f}"
    )


def report_causes(kept: Sequence[Pair], say: Callable[[str], object]) -> None:
    """Say how often the cause was named first, beside NVIDIA's ranking of the same launches."""
    faster = [pair for pair in kept if pair.became_faster]
    say(
        f"{len(kept)} pairs of {len({p.repository for p in kept})} repositories, "
        f"{len(faster)} of them 5 % and more faster"
    )
    for who, ranks in (
        ("profkit", [pair.rank for pair in faster]),
        ("NVIDIA's rules, by their estimate", [pair.nvidia_rank for pair in faster]),
    ):
        first = sum(rank == 0 for rank in ranks)
        three = sum(rank is not None and rank < 3 for rank in ranks)
        say(f"{who}: cause named first in {first} of {len(ranks)}, among three in {three}")
    nothing = count_nothing_came(kept)
    say(
        f"pairs that brought nothing: {nothing.promised} of {nothing.pairs} were promised more than "
        f"{CLAIMS:g}x, {nothing.refuted} of them for what the change was against"
    )


def report_bounds(fixes: Sequence[FixOnRecord], say: Callable[[str], object]) -> None:
    """Say how often bounds held and how near the expectations were, a line per group."""
    for group in dict.fromkeys(fix.group for fix in fixes):
        own = [fix for fix in fixes if fix.group == group]
        bounded = [fix for fix in own if fix.gain is not None]
        held = sum(fix.came <= FASTER * (fix.gain or 0.0) for fix in bounded)
        near = sum(1 / 1.5 <= fix.expected / fix.came <= 1.5 for fix in own)
        ratios = [(fix.expected - 1) / (fix.came - 1) for fix in own if fix.expected > 1]
        within = sum(0.5 <= ratio <= 2 for ratio in ratios)
        say(
            f"{group}: bound held {held} of {len(bounded)}; expected within 1.5x {near} of "
            f"{len(own)}, its gain within 2x {within}; factor error {error(own):.2f}"
        )


def report_intervals(own: Sequence[FixOnRecord], say: Callable[[str], object]) -> None:
    """Say how often an interval held that was made without its repository, and the selective curve."""
    of = left_out(own)
    every = [made for several in of.values() for made in several]
    inside = sum(holds(fix, hope) for fix, hope in every)
    low, high = uncertainty(inside, len(every))
    widths = [hope.high / hope.low for _, hope in every]
    say(
        f"in an interval made without its repository: {inside} of {len(every)} "
        f"({100 * low:.0f} to {100 * high:.0f} %), median width {median(widths):.2f}"
    )
    for group in dict.fromkeys(fix.group for fix in own):
        some = [made for made in every if made[0].group == group]
        say(f"  {group}: {sum(holds(*made) for made in some)} of {len(some)}")
    for name, several in of.items():
        say(f"  {name}: {sum(holds(*made) for made in several)} of {len(several)}")
    for most in WIDTHS:
        answered = [fix for fix, hope in every if hope.high / hope.low <= most]
        if answered:
            limit = f"up to {most:g} wide" if isfinite(most) else "all"
            say(
                f"answered {limit}: {len(answered)} of {len(every)}, factor error {error(answered):.2f}"
            )


# How `profkit ablate` measures a cause, by the group of causes.toml that it is in.
MEASURES = {
    "measured": "removes it",
    "bound": "removes more than a fix can",
    "launch": "sees it in how the launch runs",
    "counted": "counts its instructions",
}


def say_measured(rule: str) -> str:
    """Return how ablation measures a rule's cause, or why nobody does."""
    causes = read_ablations_by_rule()
    for group, what in MEASURES.items():
        by = causes[group].get(rule)
        if by is not None:
            return f"{what} ({by if isinstance(by, str) else ', '.join(by)})"
    return f"does not tell: {causes['why'].get(rule, 'no ablation is of it')}"


def report_misses(kept: Sequence[Pair], say: Callable[[str], object] = print) -> None:
    """Say where the cause was not named first: what was, the counters that decided, and who tells it."""
    groups: Counter[str] = Counter()
    for pair in kept:
        if not pair.became_faster or pair.rank == 0:
            continue
        place = "not named" if pair.rank is None else f"place {pair.rank + 1}"
        theirs = "not named" if pair.nvidia_rank is None else f"place {pair.nvidia_rank + 1}"
        causes = [f.rule for f in pair.causes]
        right = pair.rules[0] if pair.rank is None else causes[pair.rank]
        said = causes[0] if causes else "nothing"
        why = pair.diagnosis.because.partition("; near ")[0]
        say(
            f"{pair.name} ({pair.repository}), {pair.speedup:.2f}x: {right} {place}; NVIDIA's {theirs}"
        )
        say(f"    {said} first: {why}")
        measured = say_measured(right)
        say(f"    profkit ablate {measured}")
        groups[measured.partition(" (")[0].partition(":")[0]] += 1
    for how, count in groups.most_common():
        say(f"of {groups.total()} causes not named first, profkit ablate {how}: {count}")


def report_beside(kept: Sequence[Pair], say: Callable[[str], object] = print) -> None:
    """Say for each repository how often each of two rankings of the same launches has the cause."""
    faster = [pair for pair in kept if pair.became_faster]
    say(f"{'cause named':46}        first  among three")
    say(f"{'by profkit (p) or NVIDIA (n)':46} of    p   n       p   n")
    for name in dict.fromkeys(pair.repository for pair in faster):
        own = [pair for pair in faster if pair.repository == name]
        say(_describe_ranks(name, own))
    say(_describe_ranks("all", faster))


def _describe_ranks(name: str, pairs: Sequence[Pair]) -> str:
    ours = [pair.rank for pair in pairs if pair.rank is not None]
    theirs = [pair.nvidia_rank for pair in pairs if pair.nvidia_rank is not None]
    first = sum(rank == 0 for rank in ours), sum(rank == 0 for rank in theirs)
    three = sum(rank < 3 for rank in ours), sum(rank < 3 for rank in theirs)
    return f"{name:46} {len(pairs):3} {first[0]:3} {first[1]:3} {three[0]:7} {three[1]:3}"


def main(words: Sequence[str]) -> int:
    """Keep the pairs of folders, if any are named. Then report."""
    folders = [Path(word) for word in words if not word.startswith("--")]
    if folders:
        kept = [one for folder in folders for one in keep(folder)]
        KEPT.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))
    known = pairs()
    if "--left-out" in words:
        report_left_out(known)
        return 0
    if "--beside" in words:
        report_beside(known)
        return 0
    if "--misses" in words:
        report_misses(known)
        return 0
    report(fixes_on_record(known), known)
    return 0
