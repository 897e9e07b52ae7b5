"""A timeline  ->  the answer: the step, where its time goes, what to do first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.judge import Estimate
from profkit.program.findings import draft_findings
from profkit.program.findings.case import (
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    is_launched_by_autograd,
)
from profkit.program.findings.floors import SHARES, estimate_saving_of_floor
from profkit.program.findings.host import make_graph_of_longest_stretch, say_how_often
from profkit.program.ranks import Ranks, compare_ranks
from profkit.program.replay.play import LONG, SEEN, ReplayModel
from profkit.program.replay.scenario import (
    EXPECT,
    LONGER,
    NOTHING,
    SPREAD,
    CallShare,
    HostModels,
    Range,
    StepChange,
    add_host_of_quick_steps,
    make_host_models,
)
from profkit.program.steps.cut import KernelGroup, Steps, find_steps, group_works_by_kernel
from profkit.program.steps.idle import (
    CAPTURING,
    IN_GRAPH,
    LATE,
    PeriodSplit,
    split_period_by_idle_cause,
    sum_busy_by_device,
)
from profkit.program.timeline import UNIFIED_MEMORY, Process, Timeline
from profkit.program.verdict import (
    NO_REASON,
    REASONS,
    WORTH,
    StepVerdict,
    judge_step_health,
    say_busy_share_by_gpu,
)
from profkit.reports.figures import format_percent, format_three_figures

if TYPE_CHECKING:
    from profkit.units import (
        Clause,
        ClauseOrEmpty,
        Factor,
        Milliseconds,
        NanosecondsOfModel,
        RangeName,
        Sentence,
        SentenceOrEmpty,
        Share,
    )


LEAST = 0.02  # of the step: a finding that saves less is not worth a line
DOUBT = 0.05  # of the step, from which on time that is no finding is worth a note
SHOWN = 0.015  # of the step, from which on the bar shows a cause as more than 1 %
IDLE_CAUSES = ("host-launch", "host-sync", "copy", "collective")
HALF = 0.5  # of what the largest saves: what saves less is not named before it
AFTER_WAITS = (
    "; {graph} while the host waits for the GPU {waits} per step{place}: remove those waits first, "
    "which alone saves about {first} ms; both together save about {both}"
)
OTHER_CAUSES = (
    "; as recorded, {own} of idle time goes to this cause and {other} to {name}, part of which this "
    "fix also removes"
)
STACKS = (
    "; the recording holds Python stacks, which take about {traced} ms of the host's time per step"
)
OTHER_KIND = 0.02  # of the time of all steps: what takes less is not worth a line
PLACE_MOST = 80  # characters of a place in a note: a longer one is a kernel's name with arguments
# Of what was expected of a fix, how much came: the tenth of kernels and of idle time, for which often a
# smaller fix was made; and nine tenths where layouts, precisions or whole parts of a model changed, and
# other kernels than those named gained, too: 87 programs, timed before and after (decision 910).
CAME_OF_KERNELS = 0.88
CAME_OF_IDLE = 0.6
CAME_WITH_OTHERS = 1.25
LEAST_SHOWN = 1e-6  # of what kernels take: a smaller difference is of rounding
QUICK_STEPS = (
    0.1  # quantile of the steps: a host that was quick so often is quick without a recorder
)
SHORTEST, LONGEST = 1e-6, 1e9  # milliseconds that a step may be said to take: 1 ns, 11 days


@dataclass(frozen=True)
class Triage:
    """All that is said of a program."""

    timeline: Timeline
    process: Process  # the process that is looked at
    steps: Steps
    split: PeriodSplit  # where the typical step's time goes, as recorded
    hosts: HostModels  # the step without the recorder
    # what saves most, first; in front what saves something for sure
    findings: Sequence[StepFinding]
    groups: Sequence[KernelGroup]  # kernels, longest first
    notes: tuple[str, ...]  # what should be known beside it
    verdict: StepVerdict  # what is said first; empty where the first finding is
    ranks: Ranks | None = None  # what the ranks do differently; None for a single process

    @property
    def why_healthy(self) -> SentenceOrEmpty:
        """Return why there is nothing to do; empty where there is, or nobody knows."""
        return self.verdict.say if self.verdict.category == "healthy" else ""


def triage_timeline(
    timeline: Timeline,
    range_name: RangeName = "",
    unprofiled_step_ms: Milliseconds | None = None,
    gain_by_kernel_group: Mapping[str, Factor] | None = None,
) -> Triage:
    """Judge a program by the rank that others wait for.

    Args:
        timeline: Of one process or several.
        range_name: A range that is a step; empty finds them.
        unprofiled_step_ms: Milliseconds a step without the recorder, if somebody measured it.
        gain_by_kernel_group: Expected speed-ups of groups that were counted, by id.

    Raises:
        ProfkitError: No step is in it, or the one that was measured is none.
    """
    if unprofiled_step_ms is not None and not SHORTEST <= unprofiled_step_ms <= LONGEST:
        raise ProfkitError(
            f"--step-ms {unprofiled_step_ms:g}: not a possible step time",
            f"give the milliseconds that a step takes without a profiler, {SHORTEST:g} to {LONGEST:g}",
        )
    process = timeline.processes[0]
    ranks = None
    if len(timeline.processes) > 1:
        ranks = compare_ranks(timeline.processes, range_name)
        process = next((p for p in timeline.processes if p.rank == ranks.slowest), process)
    return _judge_steps(
        timeline,
        process,
        find_steps(process, range_name),
        ranks,
        unprofiled_step_ms,
        gain_by_kernel_group,
    )


def _judge_steps(
    timeline: Timeline,
    process: Process,
    steps: Steps,
    ranks: Ranks | None = None,
    plain_ms: Milliseconds | None = None,
    gains: Mapping[str, Factor] | None = None,
) -> Triage:
    """Judge one kind of step of a process, and say beside it what the others would be told."""
    typical = steps.typical
    replayed = make_host_models(timeline, process, typical, plain_ms)
    if plain_ms is None:
        differing = _measure_median_difference(steps)
        replayed = replace(replayed, most=typical.period / 1e6, differing=differing)
        replayed = add_host_of_quick_steps(replayed, _find_quick_period(steps))
    case = make_step_case(process, steps, replayed, gains)
    drafts = copy_findings_with_savings(case, draft_findings(case))
    found: list[StepFinding] = []
    if replayed.matches_recording:
        found = rank_findings_that_save(case, drafts)
        found = _add_finding_of_uneven_ranks(case, found, ranks)
    found = [widen_saving(case, row) for row in _add_reason_for_first_finding(found, case)]
    notes = [*timeline.notes, *steps.notes]
    if ranks:
        notes += ranks.notes
    notes += _list_doubts(timeline, case, found)
    notes += _note_other_kinds_of_steps(timeline, process, steps)
    return Triage(
        timeline=timeline,
        process=process,
        steps=steps,
        split=case.split,
        hosts=replayed,
        findings=found,
        groups=case.groups,
        notes=tuple(notes),
        verdict=judge_step_health(case, found, drafts),
        ranks=ranks,
    )


def _find_quick_period(steps: Steps) -> int:
    """Return nanoseconds of the step that a tenth of the others are quicker than."""
    periods = sorted(steps.periods)
    return periods[int(QUICK_STEPS * len(periods))]


def _measure_median_difference(steps: Steps) -> Share:
    """Measure how far half of the steps are from the typical one, as a share of its time."""
    typical = steps.typical.period
    return median(abs(period - typical) for period in steps.periods) / max(1, typical)


def _add_finding_of_uneven_ranks(
    case: StepCase, findings: list[StepFinding], ranks: Ranks | None
) -> list[StepFinding]:
    """Return findings with the one that ranks do unlike amounts, where they do."""
    if ranks is None:
        return findings
    saved = sum(finding.on_top for finding in findings)
    uneven = _find_uneven_ranks(case, ranks, saved)
    if uneven is None:
        return findings
    return _order_findings([*findings, uneven], case)


def make_step_case(
    process: Process,
    steps: Steps,
    replayed: HostModels,
    gain_by_kernel_group: Mapping[str, Factor] | None = None,
) -> StepCase:
    """Return the typical step with all that rules look at."""
    typical = steps.typical
    trains = any(is_launched_by_autograd(work) for work in typical.works)
    trains = trains or any("ackward" in maker.top for maker in typical.makers)
    return StepCase(
        step=typical,
        split=split_period_by_idle_cause(typical),
        hosts=replayed,
        groups=group_works_by_kernel(typical.works),
        device=process.device,
        spans=process.spans,
        trains=trains,
        captures=steps.captures,
        alone=len(steps.steps) == 1,
        repeats=steps.repeats,
        gains=gain_by_kernel_group or {},
        page_moves=[a for a in process.activities if a.name.startswith(UNIFIED_MEMORY)],
    )


def _note_other_kinds_of_steps(
    timeline: Timeline, process: Process, steps: Steps
) -> Iterator[Sentence]:
    """Say what steps of other kinds take, and what is to be done first in each."""
    whole = sum(step.period for kind in (steps, *steps.others) for step in kind.steps)
    for kind in steps.others:
        share = sum(step.period for step in kind.steps) / whole
        if share < OTHER_KIND:
            continue
        of = _judge_steps(timeline, process, kind)
        first = of.verdict.category
        if not first:
            saves = of.findings[0].saving.expected
            first = f"{of.findings[0].rule} first, saves about {format_three_figures(saves)} ms"
        ask = f"; --range {quote(kind.pattern)} analyses them" if kind.pattern else ""
        yield (
            f"another kind of step: {len(kind.steps):,} x {kind.typical.name}, "
            f"{format_three_figures(kind.typical.period / 1e6)} ms each, {format_percent(share)} of the "
            "time; the "
            f"GPU computes in {format_percent(of.split.busy / of.split.period)} of it: {first}{ask}"
        )


UNEVEN = RuleTexts(
    rule="collective",
    says=(
        "rank {rank} computes for {slow:figures} ms per step, against a mean of {mean:figures} over "
        "{ranks} ranks{longest}; {others} up to {waiting:figures} ms for it in collectives"
    ),
    advice=Advice(others="give the ranks equal work: rows, tokens or samples of similar length"),
)


def _find_uneven_ranks(case: StepCase, ranks: Ranks, saved: Milliseconds) -> StepFinding | None:
    """Return ranks that do unlike amounts: equal parts take what they take in the mean."""
    slow = next((r for r in ranks.rows if r.rank == ranks.slowest), None)
    if slow is None:
        return None
    mean = sum(r.computing for r in ranks.rows) / len(ranks.rows)
    expect = (slow.computing - mean) / 1e6
    spread = SPREAD * slow.period / 1e6
    if expect < LEAST * slow.period / 1e6:
        return None
    finding = case.make_finding(
        UNEVEN,
        (),
        StepChange(),
        rank=slow.rank,
        slow=slow.computing / 1e6,
        ranks=len(ranks.rows),
        others="the other rank waits" if len(ranks.rows) == 2 else "other ranks wait",
        mean=mean / 1e6,
        longest=f"; most of the difference is in {ranks.longer[0][:60]}" if ranks.longer else "",
        waiting=max(r.waiting_idle for r in ranks.rows) / 1e6,
    )
    plain = case.hosts.step_ms_without_recorder.expect
    low = max(0.0, 0.5 * expect - spread)
    saving = Estimate(low=low, expected=expect, high=expect + spread).limit_to(plain)
    return replace(finding, saving=saving, on_top=min(expect, plain - saved))


def copy_findings_with_savings(
    case: StepCase, drafts: Sequence[StepFinding], shares: Mapping[str, Range] = SHARES
) -> list[StepFinding]:
    """Return drafts with what they save.

    A graph's saving is counted after that without which it cannot be.
    """
    hindering = next((draft for draft in drafts if draft.waits_before_graph), None)
    stacks = _note_cost_of_stacks(case)
    priced = []
    for own in drafts:
        draft = replace(own, cause=own.cause + stacks) if own.idle else own
        if hindering and draft.general:
            saving = _estimate_draft_saving(case, draft, shares, after=hindering.change)
            saving = saving._replace(low=0.0)  # alone it cannot be had
            waits = _estimate_draft_saving(case, hindering, shares).expected
            cause = draft.cause + _say_waits_before_graph(case, hindering, waits, saving.expected)
            stretch = make_graph_of_longest_stretch(
                case, hindering.waits_before_graph, draft.change.launches
            )
            now = case.hosts.estimate_saving(stretch).expect
            priced.append(replace(draft, cause=cause, saving=saving, before_waits_go=now))
        else:
            priced.append(replace(draft, saving=_estimate_draft_saving(case, draft, shares)))
    return [
        _add_reason_for_larger_saving(case, _add_other_idle_causes(case, draft)) for draft in priced
    ]


def _add_other_idle_causes(case: StepCase, draft: StepFinding) -> StepFinding:
    """Say so where idle time is saved that the bar gives another cause.

    The bar names what the GPU waited for last; a fix may remove what came before that, too.
    """
    own = case.sum_idle_ns(draft.rule) / 1e6
    if not draft.idle or draft.rule not in IDLE_CAUSES or draft.saving.expected <= own:
        return draft
    others = [row for row in case.split.idle if row.cause != draft.rule and row.cause in REASONS]
    other = max(others, key=lambda row: row.time, default=None)
    if (
        other is None
        or draft.saving.expected - own < LEAST * case.hosts.step_ms_without_recorder.expect
    ):
        return draft
    said = OTHER_CAUSES.format(
        own=f"{format_three_figures(own)} ms",
        other=f"{format_three_figures(other.time / 1e6)} ms",
        name=REASONS[other.cause],
    )
    return replace(draft, cause=draft.cause + said)


def _say_waits_before_graph(
    case: StepCase, hindering: StepFinding, alone: Milliseconds, more: Milliseconds
) -> Clause:
    """Say which waits have to go before a graph can be captured: most of them may be no finding.

    Args:
        case: The step.
        hindering: The waits.
        alone: Milliseconds that the step saves without them.
        more: Milliseconds that a graph saves then.
    """
    waits = say_how_often(len(hindering.waits_before_graph))
    place = ""
    if hindering.where:
        where = hindering.where[0]
        at = "" if where.startswith("in ") else "at "
        place = f" (most often {at}{where})"
    graph = "no graph can be captured"
    if any(call.launches_graph for call in case.step.calls):
        graph = "no more launches can be moved into graphs"
    both = min(alone + more, case.hosts.step_ms_without_recorder.expect)
    return AFTER_WAITS.format(
        graph=graph,
        waits=waits,
        place=place,
        first=format_three_figures(alone),
        both=format_three_figures(both),
    )


def _note_cost_of_stacks(case: StepCase) -> ClauseOrEmpty:
    """Return what recording Python frames costs the host, where that is worth a word."""
    traced = sum(call.traced for call in case.step.calls)
    if case.hosts.checked or traced < LEAST * case.split.period:
        return ""
    return STACKS.format(traced=format_three_figures(traced / 1e6))


def _estimate_draft_saving(
    case: StepCase,
    draft: StepFinding,
    shares: Mapping[str, Range],
    after: StepChange | None = None,
) -> Estimate:
    """Return what a draft saves: no more than there is of what it takes away.

    At most the step; of kernels at most what the step spends on them; of idle time at most all of it.
    """
    if draft.floor:
        saving = estimate_saving_of_floor(case, draft.floor, draft.change, shares)
    else:
        low, expected, high = case.hosts.estimate_saving(draft.change, after)
        saving = Estimate(low=low, expected=expected, high=high)
    if draft.idle and not case.hosts.checked:
        saving = saving._replace(
            high=saving.high + LONGER * case.hosts.step_ms_without_recorder.expect
        )
    saving = saving.limit_to(case.hosts.step_ms_without_recorder.expect)
    if draft.optional:
        saving = saving._replace(low=0.0)
    if draft.works:
        saving = saving.limit_to(_estimate_most_ms_that_kernels_can_save(case, draft))
    if draft.idle:
        most = max(_estimate_most_idle_ms(case, draft), saving.expected)
        most = min(most, _estimate_most_idle_ms(case))
        if saving.low > most:  # the replay is contradicted: nothing is sure
            saving = saving._replace(low=0.0)
        saving = saving.limit_to(most)
    return saving


def _estimate_most_ms_that_kernels_can_save(case: StepCase, draft: StepFinding) -> Milliseconds:
    """Return milliseconds that the step spends on a draft's kernels: more cannot be saved.

    What the kernels take, and beyond that what the step is shorter by if neither they nor what the
    fix changes of the host's time were there. How much later than it could a kernel begins is no part
    of it, but in a graph: where only the GPU binds, kernels give back what they take.
    """
    change = draft.change
    gone = _make_full_removal(change)
    models = (case.hosts.usual, *case.hosts.others)
    slowest = max(models, key=lambda model: model.period)
    host = _sum_host_ns_of_changed_calls(case, change, slowest)
    taken = sum(slowest.items[i].duration + slowest.items[i].launch_lag for i in draft.works)
    launched = [i for i in change.merge if not case.works[i].activity.graph]
    most = 0.0
    for model in models:
        kernels = sum(model.items[i].duration for i in draft.works)
        late = sum(model.items[i].launch_lag for i in launched)
        shorter = model.period - gone.apply_to_model(model, EXPECT).period
        most = max(most, min(kernels, shorter), shorter - late)
    return min(most, taken + host) / 1e6


def _make_full_removal(change: StepChange) -> StepChange:
    """Return the fix that leaves nothing of any kernel, launch or call that a fix changes."""
    return replace(
        change,
        scale=dict.fromkeys([*change.scale, *change.stream], NOTHING),
        merge=dict.fromkeys(change.merge, NOTHING),
        host=dict.fromkeys(change.host, CallShare(NOTHING, NOTHING)),
        stream={},
    )


def _sum_host_ns_of_changed_calls(
    case: StepCase, change: StepChange, model: ReplayModel
) -> NanosecondsOfModel:
    """Return nanoseconds of the host in the calls that a fix changes, and before each."""
    calls = {*change.host, *(case.works[i].call for i in change.merge)}
    time = 0.0
    for index in calls:
        event = model.events[index]
        call = case.step.calls[index]
        time += event.gap + max(event.busy, call.end - call.start)
    return time


def _estimate_most_idle_ms(case: StepCase, draft: StepFinding | None = None) -> Milliseconds:
    """Return milliseconds that the GPU is idle without the recorder: what it computes for stays.

    Idle time without a known reason (a graph is captured, kernels are lost) is nobody's, but for the
    usual delay of a launch. What copies and collectives run alone stays, too, with a draft that does
    nothing about them.
    """
    model = case.hosts.usual
    recorded = sum(work.activity.duration for work in case.works)
    played = sum(item.duration for item in model.items)
    pace = played / max(1, recorded)  # of a step that was measured as slower or faster
    busy = case.split.busy / 1e6 * pace
    slower = case.hosts.step_ms_without_recorder.expect / (case.split.period / 1e6)
    nobodys = max(0, case.sum_idle_ns("other") - SEEN * len(case.works))
    if draft is not None and draft.change == StepChange(launches=draft.change.launches):
        nobodys += case.sum_idle_ns("copy") + case.sum_idle_ns("collective")
    idle = (case.split.period - case.split.busy - nobodys) / 1e6
    longest = case.hosts.step_ms_without_recorder.expect
    if not case.hosts.checked:  # a recorder makes the host slower, never faster
        longest = max(longest, min(longest * (1 + LONGER), case.hosts.most))
    return max(0.0, min(idle * max(1.0, slower), longest - busy))


def widen_saving(case: StepCase, finding: StepFinding) -> StepFinding:
    """Return a finding whose interval reaches as far as fixes differed from what was expected of them.

    Kernels that a finding does not name may get faster with its fix: no more than that is beyond what
    its kernels take, and it is said.
    """
    saving = finding.saving
    least = CAME_OF_IDLE if finding.idle else CAME_OF_KERNELS
    low = min(saving.low, least * saving.expected)
    high = saving.high
    if finding.spreads:
        after = finding.change.apply_to_model(case.hosts.usual, EXPECT)
        most = (
            case.hosts.step_ms_without_recorder.expect - _sum_host_ns(after) / 1e6
        )  # then the host limits the step
        high = max(high, min(CAME_WITH_OTHERS * saving.expected, most))
    bound = saving.bound
    if bound is not None:
        bound = max(bound, high)
    saving = Estimate(low=low, expected=saving.expected, high=high, bound=bound)
    more = high - finding.saving.high
    if more <= LEAST_SHOWN * high:
        return replace(finding, saving=saving)
    said = f"; other kernels may gain another {format_three_figures(_round_up_to_three_digits(more))} ms"
    evidence = {**finding.evidence, "others_ms": more}
    return replace(finding, saving=saving, cause=finding.cause + said, evidence=evidence)


def _add_reason_for_larger_saving(case: StepCase, draft: StepFinding) -> StepFinding:
    """Say so where a draft may save more than its kernels take: starting them takes time, too."""
    kernels = case.sum_work_ms(draft.works)
    more = draft.saving.high - kernels - draft.evidence.get("work", 0.0)
    if not draft.works or more <= LEAST_SHOWN * kernels:
        return draft
    evidence = {**draft.evidence, "start_ms": more}
    started = "issuing the copies"
    if any(case.works[i].kind not in {"copy", "set"} for i in draft.works):
        started = "launching them"
    said = (
        f"; {started} costs the host up to {format_three_figures(_round_up_to_three_digits(more))} ms "
        "more"
    )
    return replace(draft, cause=draft.cause + said, evidence=evidence)


def _round_up_to_three_digits(value: float) -> float:
    """Return a number with three digits that is not below it."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (floor(log10(value)) - 2)
    return ceil(value / unit - 1e-9) * unit


def rank_findings_that_save(case: StepCase, drafts: Sequence[StepFinding]) -> list[StepFinding]:
    """Return findings that save something, most first; each again after those before it."""
    names: dict[int, str] = {}
    for group in case.groups:
        names |= dict.fromkeys(group.works, group.id)
    out: list[StepFinding] = []
    model = case.hosts.usual
    shortest = model.period
    left = case.hosts.step_ms_without_recorder.expect
    for found in _order_findings(_keep_drafts_that_save(case, drafts), case):
        model = found.change.apply_to_model(model, EXPECT)
        more = found.saving.expected
        if out:
            more = min(more, max(0.0, shortest - model.period) / 1e6)
        shortest = min(shortest, model.period)
        on_top = min(more, left)
        left -= on_top
        kernels = tuple(dict.fromkeys(names[i] for i in found.works if i in names))
        where = found.where or (case.describe_origin_of_works(found.works),)
        cause = found.cause + _explain_smaller_saving(case, found)
        out.append(replace(found, cause=cause, on_top=on_top, kernels=kernels, where=where))
    return out


def _keep_drafts_that_save(case: StepCase, drafts: Sequence[StepFinding]) -> list[StepFinding]:
    """Return drafts that save enough for a line, and waits that have to go before a graph is of use."""
    kept = []
    for draft in drafts:
        is_enough = draft.saving.expected >= LEAST * case.hosts.step_ms_without_recorder.expect
        if not is_enough and not _must_waits_go_first(draft, drafts):
            continue
        if draft.idle and not case.hosts.checked:
            # A recorder may have made all of the idle time there is.
            draft = replace(draft, saving=draft.saving._replace(low=0.0))  # noqa: PLW2901
        kept.append(draft)
    return kept


def _order_findings(findings: Sequence[StepFinding], case: StepCase) -> list[StepFinding]:
    """Order by what they are expected to save; in front the one that is to be done first.

    What the bar shows as next to nothing of the step is never in front. A smaller one is before the
    largest only if it is sure, so that its low end is above the larger one's, if it saves at least half
    as much, and for a reason: the largest may save nothing, or fixes whatever the cause (a captured
    graph) where a special fix is as good. What takes launches away needs no graph that makes them
    shorter, so it need not be surer.
    """
    rows = sorted(
        findings, key=lambda row: (not _is_visible_in_bar(row, case), -row.saving.expected)
    )
    if not rows:
        return []
    largest = rows[0]
    if largest.saving.low > 0 and not largest.general:
        return rows
    for row in rows:
        if _must_waits_go_first(row, [largest]):
            return [row, *(other for other in rows if other is not row)]
    for row in rows[1:]:
        enough = row.saving.expected >= HALF * largest.saving.expected and _is_visible_in_bar(
            row, case
        )
        surer = row.saving.low > largest.saving.low or (largest.general and row.launches)
        if enough and not row.general and surer:
            return [row, *(other for other in rows if other is not row)]
    return rows


def _must_waits_go_first(row: StepFinding, others: Sequence[StepFinding]) -> bool:
    """Return whether waits have to go before a graph is of use.

    While they are there, a graph holds no more than what is launched between two of them. Where that
    saves less than twice what the step gains if the waits go, these are first.
    """
    if not row.waits_before_graph:
        return False
    for other in others:
        now = other.before_waits_go
        if now is not None and row.saving.expected >= HALF * now:
            return True
    return False


def _add_reason_for_first_finding(
    findings: Sequence[StepFinding], case: StepCase
) -> list[StepFinding]:
    """Say why the first finding is first, where another one is expected to save more."""
    if not findings:
        return []
    first, *others = findings
    largest = max(findings, key=lambda row: row.saving.expected)
    if largest.saving.expected <= first.saving.expected:
        return list(findings)
    if not _is_visible_in_bar(largest, case):
        why = "the recording shows hardly any idle time of that cause"
    elif _must_waits_go_first(first, [largest]):
        why = "no graph can be captured until these waits are removed"
    elif largest.general:
        why = "a graph helps whatever the cause, and this removes the cause"
    else:
        why = "this saving is surer"
    cause = f"{first.cause}; named before {largest.rule}, which may save more, because {why}"
    return [replace(first, cause=cause), *others]


def _is_visible_in_bar(row: StepFinding, case: StepCase) -> bool:
    """Return whether the bar shows more than 1 % of the step for a cause of idle time.

    Others are kernels.
    """
    if row.rule not in IDLE_CAUSES or row.change == StepChange():
        return True  # what ranks do differently is in no bar of one rank
    if any(case.works[i].kind not in {"copy", "collective"} for i in row.change.scale):
        return True  # it shortens kernels, which the bar shows as computing
    return case.sum_idle_ns(row.rule) >= SHOWN * case.split.period


def _explain_smaller_saving(case: StepCase, finding: StepFinding) -> ClauseOrEmpty:
    """Say so where the works give back far more than the step saves, and what binds instead."""
    if not finding.works:
        return ""
    before = case.hosts.usual
    after = finding.change.apply_to_model(case.hosts.usual, EXPECT)
    given = sum(a.duration - b.duration for a, b in zip(before.items, after.items, strict=True))
    if finding.saving.expected * 1e6 >= 0.5 * given:
        return ""
    return f"; the step gains less, because {_name_bottleneck(case, after)} next"


def _name_bottleneck(case: StepCase, after: ReplayModel) -> Clause:
    """Return what takes longest in a step: the host, or the stream with most to do."""
    host = _sum_host_ns(after)
    streams: defaultdict[int, float] = defaultdict(float)
    for item in after.items:
        streams[item.stream] += item.duration
    longest = max(streams, key=lambda stream: streams[stream])
    if host >= streams[longest]:
        return "the host limits it"
    own = (i for i, item in enumerate(after.items) if item.stream == longest)
    kinds = {case.works[i].kind for i in own if after.items[i].duration > 0}
    return "the copies limit it" if kinds <= {"copy", "set"} else "another stream limits it"


def _sum_host_ns(model: ReplayModel) -> NanosecondsOfModel:
    """Return nanoseconds that the host needs for a step if it never waits."""
    return sum(event.gap + event.busy for event in model.events) + model.tail


def _list_doubts(
    timeline: Timeline, case: StepCase, findings: Sequence[StepFinding]
) -> list[Sentence]:
    """Return what makes the answer less sure than it looks."""
    return [*_list_doubts_of_host(timeline, case), *_list_unexplained_time(case, findings)]


def _list_unexplained_time(case: StepCase, findings: Sequence[StepFinding]) -> Iterator[Sentence]:
    """Yield what the step spends its time on that is no finding: first launches, collectives alone."""
    whole = case.split.period
    cold = sum(event.busy for event in case.hosts.usual.events if event.items and event.busy > LONG)
    if cold >= DOUBT * whole:
        yield (
            f"{format_three_figures(cold / 1e6)} ms of the step are launches that load code or allocate "
            "memory "
            "first, as in a first step: record steps after a warm-up"
        )
    yield from _note_unexplained_idle(case, findings)
    devices = sum_busy_by_device(case.step)
    if len(devices) > 1:
        yield (
            f"the step runs on {len(devices)} GPUs, which compute in parts of it: "
            f"{say_busy_share_by_gpu(case, devices)}; the answer is for all of them together"
        )
    exposed = case.sum_idle_ns("collective")
    if exposed >= DOUBT * whole and not any(row.rule == "collective" for row in findings):
        yield (
            f"for {format_three_figures(exposed / 1e6)} ms of the step only collectives run: whether "
            "they "
            "transfer "
            "or wait for another rank is not known; record every rank"
        )


def _note_unexplained_idle(case: StepCase, findings: Sequence[StepFinding]) -> Iterator[Sentence]:
    """Say so where much of the step is idle for no recorded reason, and a finding stands first."""
    if (
        not findings
        or findings[0].saving.expected < WORTH * case.hosts.step_ms_without_recorder.expect
    ):
        return
    places = {row.cause: row.where for row in case.split.idle}
    place = places.get("other", "")
    if place in {IN_GRAPH, CAPTURING}:  # these have notes of their own
        return
    unexplained = 0
    for low, high, cause in case.split.gaps:
        if cause == "other" and high - low > LATE:  # a shorter one is what a launch takes to arrive
            unexplained += high - low
    if unexplained >= DOUBT * case.split.period:
        where = f" ({place})" if 0 < len(place) <= PLACE_MOST else ""
        yield (
            f"{format_percent(unexplained / case.split.period)} of the step {NO_REASON}{where}: no "
            "finding counts it as saved; record all streams, ranks and graph nodes"
        )


def _list_doubts_of_host(timeline: Timeline, case: StepCase) -> list[Sentence]:
    if case.hosts.given:
        return ["host times are scaled to the step time given with --step-ms"]
    if not timeline.is_host_slowed or not case.hosts.matches_recording:
        return []
    low, _, high = case.hosts.step_ms_without_recorder
    if high - low < 0.05 * high:
        return []
    return [
        "the profiler slows the host, so the step's time without it is an estimate: measure it, and "
        "pass it with --step-ms"
    ]
