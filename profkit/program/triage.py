"""A timeline  ->  the answer: the step, where its time goes, what to do first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from profkit.errors import ProfkitError
from profkit.program import findings as rules
from profkit.program.findings.case import Case, Draft
from profkit.program.ranks import Ranks, compare_ranks
from profkit.program.replay.play import Model
from profkit.program.replay.scenario import EXPECT, SPREAD, Change, Hosts, Saving, hosts
from profkit.program.steps.cut import KernelGroup, Steps, find_steps, group
from profkit.program.steps.idle import Split, launch_place, split_period
from profkit.program.timeline import Process, Timeline

LEAST = 0.02  # of the step: a finding that saves less is not worth a line
WORTH = 0.08  # of the step: if nothing saves as much, the program is healthy
AS_GOOD = 0.6  # a special fix that saves so much of what the general one does is named before it
HINDERS = 0.25  # the same of a fix without which the general one cannot be had
SHORTEST, LONGEST = 1e-6, 1e9  # milliseconds that a step may be said to take: 1 ns, 11 days
Row = TypeVar("Row")


@dataclass(frozen=True)
class ProgramFinding:
    """Something to do."""

    category: str  # see profkit.program.findings.CATEGORIES
    say: str
    saves: Saving  # of the step without a recorder, if it alone is done
    # the same after the findings before it: mends that share an obstacle do not add up
    on_top: float
    kernels: tuple[str, ...]  # ids of the groups at fault
    advice: str
    where: str
    change: Change | None = None  # what it does to the step; None where equal parts are all of it


@dataclass(frozen=True)
class Triage:
    """All that is said of a program."""

    timeline: Timeline
    process: Process  # the process that is looked at
    steps: Steps
    split: Split  # where the typical step's time goes, as recorded
    hosts: Hosts  # the step without the recorder
    # what saves most, first; in front what saves something for sure
    findings: Sequence[ProgramFinding]
    groups: Sequence[KernelGroup]  # kernels, longest first
    notes: tuple[str, ...]  # what should be known beside it
    healthy: str  # why there is nothing to do; empty where there is
    ranks: Ranks | None = None  # what the ranks do differently; None for a single process


def triage_timeline(
    timeline: Timeline,
    step: str = "",
    plain_ms: float | None = None,
    gains: Mapping[str, float] | None = None,
) -> Triage:
    """Judge a program by the rank that others wait for.

    Args:
        timeline: Of one process or several.
        step: A range that is a step; empty finds them.
        plain_ms: Milliseconds a step without the recorder, if somebody measured it.
        gains: Expected speed-ups of groups that were counted, by id.

    Raises:
        ProfkitError: No step is in it, or the one that was measured is none.
    """
    if plain_ms is not None and not SHORTEST <= plain_ms <= LONGEST:
        raise ProfkitError(
            f"--step-ms {plain_ms:g}: is no step's time",
            f"give the milliseconds that a step takes without a profiler, {SHORTEST:g} to {LONGEST:g}",
        )
    ranks = compare_ranks(timeline.processes, step) if len(timeline.processes) > 1 else None
    process = next((p for p in timeline.processes if ranks and p.rank == ranks.slowest),
                   timeline.processes[0])  # fmt: skip
    steps = find_steps(process, step)
    typical = steps.typical
    replayed = hosts(timeline, process, typical, plain_ms)
    if plain_ms is None:
        replayed = replace(replayed, most=typical.period / 1e6)
    case = Case(
        typical, split_period(typical), replayed, group(typical.works), process.device, process.spans,
        any("ackward" in maker.top for maker in typical.makers), gains or {},
    )  # fmt: skip
    drafts = rules.drafts(case)
    found = _ranked(case, drafts)
    if ranks and (uneven := _uneven(case, ranks, sum(f.on_top for f in found))):
        found = sorted([*found, uneven], key=lambda f: -f.saves.expect)
        found = _sure_first(found, [f.saves.low for f in found])
    return Triage(
        timeline, process, steps, case.split, case.hosts, found, case.groups,
        (*timeline.notes, *steps.notes, *(ranks.notes if ranks else ()), *_doubts(timeline, case)),
        _healthy(case, found, drafts), ranks,
    )  # fmt: skip


def _uneven(case: Case, ranks: Ranks, saved: float) -> ProgramFinding | None:
    """Ranks that do unlike amounts: equal parts take what they take in the mean."""
    slow = next((r for r in ranks.rows if r.rank == ranks.slowest), None)
    if slow is None:
        return None
    mean = sum(r.computing for r in ranks.rows) / len(ranks.rows)
    expect, spread = (slow.computing - mean) / 1e6, SPREAD * slow.period / 1e6
    if expect < LEAST * slow.period / 1e6:
        return None
    waiting = max(r.waiting for r in ranks.rows) / 1e6
    longest = f", most of it more in {ranks.longer[0][:60]}" if ranks.longer else ""
    return ProgramFinding(
        "collective",
        f"rank {slow.rank} computes {slow.computing / 1e6:.3g} ms per step, {len(ranks.rows)} ranks "
        f"{mean / 1e6:.3g} in the mean{longest}; others wait for it up to {waiting:.3g} ms in "
        "collectives",
        Saving(expect, max(0.0, 0.5 * expect - spread), expect + spread).within(case.hosts.plain[0]),
        min(expect, case.hosts.plain[0] - saved), (),
        "give the ranks equal parts: rows, tokens or samples of like length", "",
    )  # fmt: skip


def _saving(case: Case, draft: Draft) -> Saving:
    """What a draft saves: at most the step; idle time at most where there is any.

    A recorder makes the host slower, never faster: what the host causes costs no more than the time
    in which the recorded GPU computes nothing.
    """
    saving = case.hosts.saving(draft.change).within(case.hosts.plain[0])
    return saving.within((case.split.period - case.split.busy) / 1e6) if draft.idle else saving


def _shown(case: Case, draft: Draft, saving: Saving) -> Saving:
    """The saving as it is said: a recorder may have made all of the idle time there is."""
    return replace(saving, low=0.0) if draft.idle and not case.hosts.checked else saving


def _ranked(case: Case, drafts: Sequence[Draft]) -> list[ProgramFinding]:
    """Findings that save something, most first; each again after those before it."""
    plain = case.hosts.plain[0]
    every = ((draft, _saving(case, draft)) for draft in drafts)
    rows = _ordered([row for row in every if row[1].expect >= LEAST * plain])
    names = {i: g.id for g in case.groups for i in g.works}
    out: list[ProgramFinding] = []
    model, shortest, left = case.hosts.usual, case.hosts.usual.period, plain
    for draft, saving in _sure_first(rows, [_shown(case, *row).low for row in rows]):
        model = draft.change.apply(model, EXPECT)
        more = max(0.0, shortest - model.period) / 1e6 if out else saving.expect
        shortest, on_top = min(shortest, model.period), min(more, left)
        left -= on_top
        kernels = tuple(dict.fromkeys(names[i] for i in draft.works if i in names))
        where = draft.where or launch_place(case.longest(draft.works))
        out.append(ProgramFinding(
            draft.category, draft.say + _cut(case, draft, saving), _shown(case, draft, saving), on_top,
            kernels, draft.advice, where, draft.change,
        ))  # fmt: skip
    return out


def _sure_first(rows: list[Row], lows: Sequence[float]) -> list[Row]:
    """Rows with one in front that saves something for sure, where there is any."""
    sure = next((i for i, low in enumerate(lows) if low > 0), 0)
    return [*rows[sure : sure + 1], *rows[:sure], *rows[sure + 1 :]]


def _ordered(rows: list[tuple[Draft, Saving]]) -> list[tuple[Draft, Saving]]:
    """By what they save; a general fix after special ones that save nearly as much."""
    special = [(saving.expect, HINDERS if draft.hinders and saving.low > 0 else AS_GOOD)
               for draft, saving in rows if not draft.general]  # fmt: skip

    def weight(row: tuple[Draft, Saving]) -> float:
        draft, saving = row
        before = [0.999 * other for other, share in special if other >= share * saving.expect]
        return min(saving.expect, *before) if draft.general and before else saving.expect

    return sorted(rows, key=lambda row: -weight(row))


def _cut(case: Case, draft: Draft, saving: Saving) -> str:
    """Says so where the works give back far more than the step saves, and what binds instead."""
    if not draft.works:
        return ""
    before, after = case.hosts.usual, draft.change.apply(case.hosts.usual, EXPECT)
    given = sum(a.duration - b.duration for a, b in zip(before.items, after.items, strict=True))
    if saving.expect * 1e6 >= 0.5 * given:
        return ""
    return f"; the step saves less, because {_binder(case, after)} next"


def _binder(case: Case, after: Model) -> str:
    """What takes longest in a step: the host, or the stream with most to do."""
    host = sum(e.gap + e.busy for e in after.events) + after.tail
    streams: defaultdict[int, float] = defaultdict(float)
    for item in after.items:
        streams[item.stream] += item.duration
    longest = max(streams, key=lambda stream: streams[stream])
    if host >= streams[longest]:
        return "the host binds"
    own = (i for i, item in enumerate(after.items) if item.stream == longest)
    kinds = {case.works[i].kind for i in own if after.items[i].duration > 0}
    return "the copies bind" if kinds <= {"copy", "set"} else "another stream binds"


def _doubts(timeline: Timeline, case: Case) -> list[str]:
    if not timeline.disturbs:
        return []
    if case.hosts.checked:
        return ["host times are scaled to the plain step that was given"]
    expect, low, high = case.hosts.plain
    if high - low < 0.05 * high:
        return []
    return [f"the profiler slows the host: without it this step takes about {expect:.3g} ms "
            f"({low:.3g} to {high:.3g}); give what a plain run takes with --step-ms"]  # fmt: skip


def _healthy(case: Case, found: Sequence[ProgramFinding], drafts: Sequence[Draft]) -> str:
    plain = case.hosts.plain[0]
    if max((f.saves.expect for f in found), default=0.0) >= WORTH * plain:
        return ""
    busy = case.split.busy / case.split.period
    kinds: Counter[str] = Counter()
    for row in case.groups:
        kinds[row.kind] += row.time
    ((most, time),) = kinds.most_common(1)
    share = time / max(1, kinds.total())
    return (f"the GPU computes in {busy:.0%} of the step, {share:.0%} of that in {most} kernels; "
            f"nothing that was looked for saves more than {WORTH:.0%} of the step"
            + _unless(case, drafts))  # fmt: skip


def _unless(case: Case, drafts: Sequence[Draft]) -> str:
    """What the idle time costs if the recorder has made less of it than is thought."""
    if case.hosts.checked:
        return ""
    most = max((_saving(case, d).high for d in drafts if d.idle), default=0.0)
    if most < WORTH * case.hosts.plain[2]:
        return ""
    return (f". If the profiler slows the host less than is thought, up to {most:.3g} ms go to waiting "
            "for the host: give what a plain run takes with --step-ms")  # fmt: skip
