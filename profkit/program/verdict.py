"""What was found in a step  ->  what is said first: a finding, healthy, or what is not known.

Healthy needs knowledge: nothing found is no proof that nothing is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.program.findings.case import StepCase, StepFinding
from profkit.program.findings.kernels import is_kernel_near_floor
from profkit.program.replay.scenario import SPREAD
from profkit.program.steps.cut import KernelGroup
from profkit.program.steps.idle import (
    CAPTURING,
    IN_GRAPH,
    Idle,
    list_launches_without_recorded_work,
    sum_busy_by_device,
)
from profkit.program.steps.lost import name_graph_node_option
from profkit.reports.figures import format_percent, format_three_figures, get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import Clause, ClauseOrEmpty, Nanoseconds, Sentence, SentenceOrEmpty, Share


WORTH = 0.05  # of the step: if nothing is expected to save as much, there is no problem to name
BUSY = 0.85  # of the step, in which a healthy program's GPU computes at least
# Of the step as it was recorded: if the GPU is idle for more than half of it, an estimate of what the
# profiler added is no proof that it is busy without.
BUSY_RECORDED = 0.5
KNOWN = 0.5  # of that time, in kernels that are known to be near their floor
START = 0.25  # of what was recorded once: if the host allocates for so long, it is a start
MANY_LAUNCHES = 1_000  # of what repeats nothing: fewer may be one step
LEAST_APART = 0.01  # of the step: shares that differ by less are not told apart
LARGE = 0.05  # of the step: an idle cause or a kernel that takes less is not what is not known
MOVING = frozenset({"layout", "convert", "concat"})  # kinds of kernels that compute nothing
REASONS = {
    "host-launch": "waiting for launches",
    "host-sync": "host synchronization",
    "copy": "copies",
    "collective": "collectives",
}
# By the cause of idle time: what is not known of it.
_SAY_IDLE = {
    "host-launch": (
        "what the host does for {share} of the step, while the GPU waits for its next launch{where}"
    ),
    "host-sync": "what the host does for {share} of the step, after it has waited for the GPU{where}",
    "copy": "whether the copies are needed that take {share} of the step alone{where}",
    "collective": (
        "whether the collectives that take {share} of the step alone{where} transfer data or wait for "
        "another rank; record every rank"
    ),
    "other": (
        "why the GPU is idle for {share} of the step{where}: no call, copy or kernel in the recording "
        "explains it"
    ),
}
NO_REASON = "is idle for a reason that was not recorded"


@dataclass(frozen=True)
class StepVerdict:
    """What is said first where no finding is."""

    category: str  # healthy or unknown; empty where the first finding is the answer
    say: str


FOUND = StepVerdict("", "")


def judge_step_health(
    case: StepCase, listed_findings: Sequence[StepFinding], all_findings: Sequence[StepFinding]
) -> StepVerdict:
    """Say whether a step has a problem, is healthy, or is not known well enough.

    Args:
        case: The step.
        listed_findings: What is worth a line, in its order.
        all_findings: All that the rules found, with what each saves.
    """
    plain = case.hosts.step_ms_without_recorder.expect
    if not case.hosts.matches_recording:
        return StepVerdict(
            "unknown", f"{_say_replay_mismatch(case)}, nor {_describe_largest_unknown(case)}"
        )
    started = _say_if_step_is_a_start(case)
    if started:
        return StepVerdict("unknown", started)
    worth = _find_finding_worth_naming(listed_findings, plain)
    if worth and _is_sure_or_large(case, worth):
        return FOUND
    busy = _find_busy_ns_of_idlest_gpu(case)
    computing = min(1.0, busy / 1e6 / _choose_step_ms_of_busy_share(case))
    unknown = _explain_why_unknown(case, busy, computing)
    if worth and unknown:
        return FOUND
    if unknown:
        return StepVerdict("unknown", f"{_say_small_findings(listed_findings)}; {unknown}")
    said = _say_how_busy(case, busy, computing)
    if worth:
        said += _say_unsure_finding(worth)
    else:
        said += (
            f"; no known fix would save more than {format_percent(WORTH)} of the step"
            f"{_say_joint_saving(listed_findings)}"
        )
    said += _say_idle_as_recorded(case)
    said += _say_idle_without_recorder(case, all_findings)
    return StepVerdict("healthy", said)


def _choose_step_ms_of_busy_share(case: StepCase) -> float:
    """Return milliseconds of the step in which a healthy GPU has to be busy.

    Where steps differ and nothing but the recorder's own time is unsure, those of a quick host: it is
    the recorder and other programs of the machine that slow it in the others.
    """
    if case.hosts.checked:
        return case.hosts.step_ms_without_recorder.low
    return case.hosts.step_ms_without_recorder.expect


def _find_busy_ns_of_idlest_gpu(case: StepCase) -> Nanoseconds:
    """Return nanoseconds in which the GPU computes; of several GPUs in one process the idlest one.

    They may take turns. What a step launched may run beyond its end, so no more than what was computed
    in it counts.
    """
    idlest = min(sum_busy_by_device(case.step).values(), default=0)
    return min(idlest, case.split.busy)


def _explain_why_unknown(
    case: StepCase, busy_ns: Nanoseconds, computing_share: Share
) -> SentenceOrEmpty:
    """Return why nobody can know that a step is healthy; empty where it is.

    Args:
        case: The step.
        busy_ns: Nanoseconds in which the GPU computes, as recorded.
        computing_share: The share of the step in which it does without the recorder.
    """
    lost = len(list_launches_without_recorded_work(case.step))
    if lost > LARGE * (lost + len(case.works)):
        return _explain_lost_kernels(lost)
    near = sum(group.time for group in case.groups if _is_known_to_be_needed(case, group))
    whole = sum(group.time for group in case.groups if _is_no_copy_nor_collective(group))
    if computing_share < BUSY or near < KNOWN * whole:
        return f"not known: {_describe_largest_unknown(case)}"
    if not case.hosts.checked and busy_ns < BUSY_RECORDED * case.split.period:
        return _say_busy_without_profiler(case, busy_ns, computing_share)
    return ""


def _say_how_busy(case: StepCase, busy_ns: Nanoseconds, computing_share: Share) -> Clause:
    """Say in how much of the step the GPU computes, and what it computes most."""
    without = ""
    if abs(computing_share - busy_ns / case.split.period) > LEAST_APART:
        without = " as it is without the profiler"
        if (
            case.hosts.step_ms_without_recorder.low
            < (1 - SPREAD) * case.hosts.step_ms_without_recorder.expect
        ):
            without = " in the quickest of the recorded steps"
    return (
        f"the GPU computes in {format_percent(computing_share)} of the step{without}, "
        f"{_say_top_kind_of_step(case)}"
    )


def _find_finding_worth_naming(
    findings: Sequence[StepFinding], plain_ms: float
) -> StepFinding | None:
    """Return the first finding, or what waits for it: a graph for which waits have to go.

    None where it is not expected to save enough.
    """
    first = next(iter(findings), None)
    if first and first.waits_before_graph:
        first = max(findings, key=lambda finding: finding.saving.expected)
    if first and first.saving.expected >= WORTH * plain_ms:
        return first
    return None


def _is_sure_or_large(case: StepCase, finding: StepFinding) -> bool:
    """Return whether a busy GPU's step has a problem: it is sure, or larger than a healthy one has.

    A saving whose low end is less than two runs of the program differ by may be none. Idle time that a
    recording without the program's own profiler shows is part of the step; a GPU that computes in the
    rest of it is busy.
    """
    plain = case.hosts.step_ms_without_recorder.expect
    if finding.saving.low >= SPREAD * plain:
        return True
    large = 2 * WORTH
    if finding.idle and case.hosts.checked:
        large = 1 - BUSY
    return finding.saving.expected >= large * plain


def _say_unsure_finding(finding: StepFinding) -> str:
    """Say what the largest finding saves where it may be nothing."""
    low, expected, high, _ = finding.saving
    return (
        "; nothing is sure to save more than two runs of a program differ by: the largest, "
        f"{finding.rule}, is expected to save {format_three_figures(expected)} ms "
        f"({format_three_figures(low)} to {format_three_figures(high)})"
    )


def _say_if_step_is_a_start(case: StepCase) -> SentenceOrEmpty:
    """Say so where what was recorded once is a start: later steps have its memory and code."""
    if not case.alone:
        return ""
    whole = f"{format_three_figures(case.split.period / 1e6)} ms"
    time = case.sum_allocation_ns()
    if time >= START * case.split.period:
        names = Counter(call.name for call in case.step.calls if call.allocates)
        most = ", ".join(f"{name} ({count:,}x)" for name, count in names.most_common(2))
        return (
            "not known: what a step does. One pass was recorded, and in "
            f"{format_three_figures(time / 1e6)} "
            "of its "
            f"{whole} the host allocates and frees memory ({most}), as a program does when it starts; "
            "record several steps after a warm-up"
        )
    launches = len({work.call for work in case.works})
    pause = max((event.gap for event in case.hosts.usual.events), default=0.0)
    if case.repeats or launches < MANY_LAUNCHES or pause < START * case.split.period:
        return ""
    return (
        "not known: what a step does. Nothing repeats in the recording, and for "
        f"{format_three_figures(pause / 1e6)} "
        f"of its {whole} at once the host launches nothing, as a program does that loads or compiles; "
        "record several steps after that"
    )


def _say_idle_as_recorded(case: StepCase) -> SentenceOrEmpty:
    """Say who is waited for in a recording whose GPU is idle, though it may not be without recorder."""
    idle = 1 - case.split.busy / case.split.period
    if idle <= 1 - BUSY:
        return ""
    largest = max(case.split.idle, key=lambda row: row.time)
    reason = REASONS.get(largest.cause)
    if reason:
        what = f"most of that goes to {reason}"
    else:
        what = "for most of that the reason was not recorded"
    where = f" ({largest.where})" if largest.where else ""
    return f". As recorded the GPU is idle for {format_percent(idle)} of it; {what}{where}"


def _say_busy_without_profiler(
    case: StepCase, busy_ns: Nanoseconds, computing_share: Share
) -> Sentence:
    """Say how much the GPU computes where that hangs on what the profiler is thought to have added."""
    return (
        f"not known: how busy the GPU is without the profiler: it computes in "
        f"{format_percent(busy_ns / case.split.period)} of the step as recorded, and in up to "
        f"{format_percent(computing_share)} if the profiler slows the host as much as it usually does; "
        "measure the step without profiler, and pass its time with --step-ms"
    )


def _say_small_findings(findings: Sequence[StepFinding]) -> Clause:
    """Say whether nothing was found, or nothing that is the answer."""
    if findings:
        saved = _say_joint_saving(findings)
        return f"nothing found that saves {format_percent(WORTH)} of the step{saved}"
    return "nothing found"


def _say_joint_saving(findings: Sequence[StepFinding]) -> ClauseOrEmpty:
    """Say what the findings below save together."""
    if not findings:
        return ""
    saved = sum(finding.on_top for finding in findings)
    return f"; what was found saves about {format_three_figures(saved)} ms together"


def _is_known_to_be_needed(case: StepCase, group: KernelGroup) -> bool:
    """Return whether a kernel computes, near its floor: a copy at the rate of memory may be needless."""
    return group.kind not in MOVING and is_kernel_near_floor(case, group)


def _is_no_copy_nor_collective(group: KernelGroup) -> bool:
    return group.kind not in {"copy", "collective"}


def _say_replay_mismatch(case: StepCase) -> Clause:
    """Say why nothing is said of savings."""
    recorded = case.split.period / 1e6
    replayed = recorded * (1 + case.hosts.error)
    return (
        f"a replay of the step takes {format_three_figures(replayed)} ms, and the recorded one "
        f"{format_three_figures(recorded)}: "
        "what a change would save is not known (the recording may lack what the step waits for)"
    )


def _explain_lost_kernels(lost_launch_count: int) -> Sentence:
    """Return why nothing is known of a step whose kernels are not all there."""
    return (
        f"not known: what {lost_launch_count:,} launches of the step ran: the recording has lost their "
        "kernels; "
        "record it again with no other profiler running"
    )


def _say_top_kind_of_step(case: StepCase) -> Clause:
    """Say which kind of kernels takes most of the GPU's time, as a share of the step."""
    times: dict[str, int] = {}
    for group in case.groups:
        if _is_no_copy_nor_collective(group):
            times[group.kind] = times.get(group.kind, 0) + group.time
    if not times:
        return "no kernel in it"
    most = max(times, key=lambda kind: times[kind])
    return f"{format_percent(min(1.0, times[most] / case.split.period))} in {most} kernels"


def _describe_largest_unknown(case: StepCase) -> Clause:
    """Return the largest of what is not known: an idle cause or a kernel, and what to record."""
    devices = sum_busy_by_device(case.step)
    if len(devices) > 1 and min(devices.values()) < BUSY * case.split.busy:
        return (
            "why the GPUs of this process compute only in parts of the step: "
            f"{say_busy_share_by_gpu(case, devices)}; where one waits for another, let each have work "
            "of "
            "another batch, or a process of its own"
        )
    least = LARGE * case.split.period
    idle = max(case.split.idle, key=lambda row: row.time, default=None)
    kernels = [
        g
        for g in case.groups
        if _is_no_copy_nor_collective(g) and not _is_known_to_be_needed(case, g)
    ]
    longest = max((group.time for group in kernels), default=0)
    if idle and idle.time >= max(least, longest):
        return _explain_idle(case, idle)
    if kernels and longest >= least:
        return _describe_unknown_kernel(case, max(kernels, key=lambda group: group.time))
    if kernels:
        return _say_that_many_kernels_are_unknown(case, kernels)
    if any(_is_no_copy_nor_collective(group) for group in case.groups):
        idle_share = format_percent(1 - case.split.busy / case.split.period)
        return f"why the GPU is idle for {idle_share} of the step: no cause alone takes a twentieth"
    return (
        "what the GPU runs in the step, because no kernel of it is in the recording; "
        f"{_write_record_command(case)} records them"
    )


def _say_that_many_kernels_are_unknown(case: StepCase, kernels: Sequence[KernelGroup]) -> Clause:
    """Say of kernels that nobody knows what limits them, and that none of them takes much."""
    share = format_percent(sum(group.time for group in kernels) / case.split.period)
    together = f"{len(kernels)} kernels, which together take {share} of the step"
    return f"what limits {together}, {_say_not_counted(case)}"


def _say_single_run(case: StepCase) -> Clause:
    """Say what a recording of one run does not tell: whether what it waits for comes again."""
    launches = len({work.call for work in case.works})
    count = "one launch" if launches == 1 else f"{launches:,} launches"
    busy = format_percent(case.split.busy / case.split.period)
    return (
        f"whether this work runs again. The recording has it once ({count} in "
        f"{format_three_figures(case.split.period / 1e6)} ms, in {busy} of which the GPU computes), "
        "and first "
        "launches take longer than later ones; if it repeats, record several runs after a warm-up"
    )


def _write_record_command(case: StepCase) -> str:
    """Name the command that records a program with all that is needed."""
    if case.is_amd:
        return "rocprofv3 --sys-trace -- COMMAND"
    return "profkit triage -- COMMAND"


def _say_not_counted(case: StepCase, pronoun: str = "their") -> Clause:
    """Say that a kernel's counters are missing, and what reads them."""
    tool = "profkit triage -- COMMAND"
    if case.is_amd:
        tool = "rocprof-compute profile"
    return f"because {pronoun} hardware counters were not read; {tool} reads them"


def say_busy_share_by_gpu(case: StepCase, computing_ns_by_gpu: Mapping[int, Nanoseconds]) -> Clause:
    """Say in how much of the step each GPU computes."""
    shares = []
    for number, time in computing_ns_by_gpu.items():
        shares.append(f"GPU {number} in {format_percent(time / case.split.period)}")
    return ", ".join(shares)


def _explain_idle(case: StepCase, idle: Idle) -> Clause:
    """Return what is not known of idle time, as far as it was recorded, and what to record."""
    share = format_percent(idle.time / case.split.period)
    where = f" ({idle.where})" if idle.where else ""
    if idle.where == CAPTURING:
        return (
            f"what a step does, because for {share} of the recording a graph is captured, and the GPU "
            "has nothing to run; record its replays: begin after the warm-up"
        )
    if not case.repeats and case.sum_idle_ns("host-launch") >= LARGE * case.split.period:
        return _say_single_run(case)
    if idle.where == IN_GRAPH:
        return (
            f"what happens in {share} of the step, in which the GPU is idle between kernels of one "
            f"graph launch; {name_graph_node_option(case.is_amd)} records each of its kernels"
        )
    said = _SAY_IDLE[idle.cause].format(share=share, where=where)
    if idle.cause in {"host-launch", "host-sync"}:
        return f"{said}; {_suggest_host_recorder(case)}"
    if idle.cause == "other":
        return f"{said}; {_write_record_command(case)} records all streams, waits and kernels of graphs"
    return said


def _suggest_host_recorder(case: StepCase) -> str:
    """Name what tells how the host spends its time."""
    for maker in case.step.makers:
        if (
            maker.top or maker.range or maker.place
        ):  # of places all operators are known that there are
            return "py-spy record -o host.svg -- COMMAND, or perf, shows it"
    return f"{_write_record_command(case)} records its operators and lines"


def _describe_unknown_kernel(case: StepCase, group: KernelGroup) -> Clause:
    """Return a kernel of which nobody knows what limits it."""
    share = format_percent(min(1.0, group.time / case.split.period))
    if group.kind == "graph":
        said = (
            f"what runs in {share} of the step, because it is a CUDA graph that was recorded as one; "
            f"{name_graph_node_option(case.is_amd)} records its kernels"
        )
        return case.adapt_graph_name_to_gpu(said)
    name = get_base_name_of_kernel(group.name)[:60] or group.name[:60]
    if group.kind in MOVING:
        where = case.describe_origin_of_works(group.works)
        return (
            f"whether the copies by {name} are needed ({where}), which take {share} of the step: they "
            "only change the layout, type or place of tensors"
        )
    return f"what limits {name}, which takes {share} of the step, {_say_not_counted(case, 'its')}"


def _say_idle_without_recorder(case: StepCase, drafts: Sequence[StepFinding]) -> SentenceOrEmpty:
    """Say what the idle time costs if the recorder has made less of it than is thought."""
    if case.hosts.checked:
        return ""
    waits = (case.sum_idle_ns("host-launch") + case.sum_idle_ns("host-sync")) / 1e6
    most = min(waits, case.hosts.step_ms_without_recorder.high - case.split.busy / 1e6)
    if most < WORTH * case.hosts.step_ms_without_recorder.high or not any(
        draft.idle for draft in drafts
    ):
        return ""
    return (
        ". If the profiler slows the host less than estimated, the GPU waits for the host for up "
        f"to {format_three_figures(most)} ms: pass the step time of a run without profiler with "
        "--step-ms"
    )
