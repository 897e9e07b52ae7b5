"""The GPU waits for the host: launches that come too slowly, waits, the host's own work."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise, product, takewhile
from statistics import median
from typing import TYPE_CHECKING

from profkit.program.findings.case import (
    MANY_COPIES,
    REACH,
    SMALL_COPY,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    find_calls_waiting_for_works,
    find_too_many_small_uploads,
)
from profkit.program.replay.play import LONG
from profkit.program.replay.scenario import ALL, CallShare, Range, StepChange
from profkit.program.steps.attribution import describe_frame, is_informative_frame
from profkit.program.steps.idle import (
    describe_call_origin,
    describe_caller,
    describe_time_before_launch,
)
from profkit.program.timeline import HostSpan

if TYPE_CHECKING:
    from profkit.units import (
        AdviceKey,
        CallIndex,
        ClaimedWorks,
        Clause,
        ClauseOrEmpty,
        Nanoseconds,
        TextOrEmpty,
        WorkIndex,
    )


PARTS = 8  # waits at one line, from which on it is a loop over parts of the input
SAME_TURN = 2  # times the calls of the usual turn of a loop: what has more holds what is outside
FEW_WAITS = 4  # a step: fewer may lie at its end, behind what a graph would hold
MAKERS = 6  # works before a copy to the host that may have made the value
MADE_OF = frozenset({"reduce", "elementwise", "set"})  # kinds of works that make such a value
# Operators whose result has as many rows as the data says: the host has to wait for the number, no
# graph can be captured round them, and what follows is launched piece by piece.
# `where` of one tensor is nonzero; that of three waits for nothing.
SIZED = re.compile(r"aten::(nonzero|where|masked_select|_?unique\w*|repeat_interleave)\b")
SIZING = re.compile(r"(?i)nonzero|DeviceSelect|unique_by|NumUnique")  # kernels that count for them
# Calls that no operator makes: the program asks for them itself.
SYNCHRONIZES = frozenset({"cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize"})


BETWEEN = "between steps"
ENDS_AT_WAITS = "; {what} cannot contain a host wait: {places}"
PLACES = 3  # that a sentence names

SLOW_LAUNCHES = RuleTexts(
    rule="host-launch",
    says=(
        "the GPU is idle for {share:.0%} of the recorded step because the next launch comes too "
        "late ({launches:,} launches{of_them}, {mean:figures} µs per kernel on average)"
    ),
    advice=Advice(
        torch="capture the step in a CUDA graph, or torch.compile(mode='reduce-overhead')",
        jax="jax.jit the whole step, so that one call launches it",
        others="capture the step in a CUDA graph",
    ),
    instead={
        "captured": Advice(
            others=(
                "record the replays of the graph captured here: launches before and during "
                "capture happen only once"
            )
        ),
        "replayed": Advice(
            others=(
                "move the remaining launches into the graphs, or launch one graph instead of "
                "several"
            )
        ),
        "compiled": Advice(
            others=(
                "compile with mode='reduce-overhead', which captures what is compiled in CUDA graphs; "
                "graph breaks (TORCH_LOGS=graph_breaks) and sizes that change "
                "(TORCH_LOGS=recompiles) leave launches outside of them"
            )
        ),
    },
    general=True,
    idle=True,
)


def find_slow_launches(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:  # noqa: ARG001
    """Find a host that launches more slowly than the GPU works."""
    if not case.repeats:
        return  # a graph has nothing to replay
    count = len(case.works)
    idle = case.sum_idle_ns("host-launch") - _sum_idle_ns_in_host_pauses(case)
    if idle < 0.02 * case.split.period or count < 2:
        return
    kernels = _list_kernels(case)
    mean = 1e3 * case.sum_work_ms(kernels) / max(1, len(kernels))
    where = next(row.where for row in case.split.idle if row.cause == "host-launch")
    if where == BETWEEN:
        where = _describe_gap_between_steps(case)
    advice = _choose_launch_advice(case)
    finding = case.make_finding(
        SLOW_LAUNCHES,
        (),
        StepChange(launches=REACH["launches in a graph"]),
        where,
        advice,
        share=idle / case.split.period,
        launches=count,
        kernels=len(kernels),
        mean=mean,
        of_them="" if len(kernels) == count else f", {len(kernels):,} of them kernels",
    )
    if advice != "captured":
        finding = replace(finding, cause=finding.cause + _say_where_graphs_end(case))
    yield finding


def _choose_launch_advice(case: StepCase) -> AdviceKey:
    """Return the key of what makes launches fewer: by what the program does already."""
    in_graphs = sum(case.step.calls[work.call].launches_graph for work in case.works)
    if 2 * in_graphs > len(case.works):
        return "replayed"
    if case.captures:
        return "captured"
    if case.is_mostly_compiled(range(len(case.works))):
        return "compiled"
    return ""


def _list_kernels(case: StepCase) -> list[WorkIndex]:
    """List the kernels of the step: all that the host launches but copies and memory that is set."""
    return case.list_unclaimed_works(lambda work: work.kind not in {"copy", "set"})


def _say_where_graphs_end(case: StepCase) -> ClauseOrEmpty:
    """Name the lines at which a graph has to end; nothing where waits are said to come before it."""
    waits = _list_waits_but_for_large_copies(case)
    if not waits or _choose_waits_said_before_graph(case, waits):
        return ""
    places = _count_calls_by_place(case, waits)
    if not places:
        places = Counter(case.step.calls[index].name for index in waits)
    what = "a jitted function" if case.program_framework == "jax" else "a graph"
    return ENDS_AT_WAITS.format(what=what, places=_format_places(places))


def _format_places(places: Counter[str]) -> Clause:
    """List the most common places, each with how often it comes where that is more than once."""
    said = []
    for place, count in places.most_common(PLACES):
        said.append(f"{place} ({count}x)" if count > 1 else place)
    more = len(places) - len(said)
    if more:
        said.append(f"and {more} more {'lines' if more > 1 else 'line'}")
    return ", ".join(said)


def _describe_gap_between_steps(case: StepCase) -> Clause:
    """Name the end of a step by what begins the next one, which begins as this one does."""
    before = ""
    if not case.alone:
        before = describe_call_origin(case.step, min(work.call for work in case.works))
    if before:
        return f"{BETWEEN}, {describe_time_before_launch(before)}"
    return BETWEEN


def _sum_idle_ns_in_host_pauses(case: StepCase) -> Nanoseconds:
    """Return nanoseconds in which the GPU is idle while the host pauses: that is no slow launching."""
    step = case.step
    starts = [*(call.start for call in step.calls), step.end]
    ends = [step.begin, *(call.end for call in step.calls)]
    between = zip(ends, starts, strict=True)
    pauses = [(low, high) for low, high in between if high - low > case.hosts.usual.pause]
    turn = step.end - step.begin  # what lies behind the host's step is the pause of the next
    pauses += [(low + turn, high + turn) for low, high in pauses]
    gaps = [(low, high) for low, high, cause in case.split.gaps if cause == "host-launch"]
    pairs = product(gaps, pauses)
    return sum(max(0, min(a[1], b[1]) - max(a[0], b[0])) for a, b in pairs)


OWN_WORK = RuleTexts(
    rule="host-launch",
    says=(
        "for {total:figures} ms per step{plain} the host launches nothing, because it is busy with "
        "other work or waits for something{after}"
    ),
    advice=Advice(
        others=("do that work ahead of time in another thread or process, or move it to the GPU")
    ),
    instead={
        "loader": Advice(
            others=(
                "load data in advance in other processes (DataLoader's num_workers, prefetching), "
                "or move the loading to the GPU"
            )
        ),
        "waited": Advice(
            others=(
                "do that work ahead of time in another thread or process, move it to the GPU, or "
                "launch the next kernels before that wait"
            )
        ),
    },
    idle=True,
)


def find_long_host_work(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:  # noqa: ARG001
    """Find something long of the host's own that it does while the GPU waits."""
    model = case.hosts.usual
    gaps = []
    for i, e in enumerate(model.events):
        if e.gap > model.pause:
            gaps.append((e.gap, i))
    total = sum(gap for gap, _ in gaps) + (model.tail if model.tail > model.pause else 0)
    if not total:
        return

    call_count = len(case.step.calls)
    longest = max(gaps, default=(0.0, call_count))[1]
    inside = _describe_work_in_pause(case, longest)
    where = inside or _describe_place_of_pause(case, longest)
    # Before the first call is the step before.
    wait = _find_wait_returning_before_call(case, longest or call_count)
    after = ""
    if wait:
        after = f"; the GPU runs out of work at {wait}"
    advice = _choose_pause_advice(inside, wait)
    # Where that work makes what is copied to the GPU, it can be done there, and no copy is left at best.
    copies = case.list_unclaimed_works(lambda w: w.activity.direction == "HtoD")
    change = StepChange(
        scale=dict.fromkeys(copies, REACH["copies of that work"]),
        pauses=REACH["pauses done ahead"],
    )
    plain = ""
    if case.hosts.others:  # the usual model is of a step without the recorder
        plain = " (estimated without the profiler)"
    yield case.make_finding(
        OWN_WORK, (), change, where, advice, total=total / 1e6, after=after, plain=plain
    )


def _describe_work_in_pause(case: StepCase, call: CallIndex) -> ClauseOrEmpty:
    """Return what the host does before a call, or behind the last one; empty where nothing names it."""
    calls = case.step.calls
    if call:
        low = calls[call - 1].end
    else:
        low = case.step.begin
    if call < len(calls):
        high = calls[call].start
    else:
        high = case.step.end
    return find_name_of_enclosing_span(case.spans, low, high)


def _describe_place_of_pause(case: StepCase, call: CallIndex) -> Clause:
    """Say where a pause is that nothing names: between two steps, or before what a call launches."""
    if call == len(case.step.calls):
        return _describe_gap_between_steps(case)
    origin = describe_call_origin(case.step, call)
    if origin:
        return describe_time_before_launch(origin)
    return BETWEEN


def _choose_pause_advice(inside: str, wait: str) -> AdviceKey:
    """Return the key of what takes the place of the host's own work."""
    if "DataLoader" in inside:
        return "loader"
    if wait:
        return "waited"
    return ""


def _find_wait_returning_before_call(case: StepCase, call: CallIndex) -> TextOrEmpty:
    """Return the wait that returns before a call, with no launch between them; empty without one.

    Until it returns nothing can be launched: the GPU has nothing left to do while the host then works.
    """
    calls = case.step.calls
    for earlier in reversed(range(call)):
        if calls[earlier].waits and not calls[earlier].allocates:
            return calls[earlier].name
        if calls[earlier].launches_kernels:
            return ""
    return ""


def find_name_of_enclosing_span(
    spans: Sequence[HostSpan], begin_ns: Nanoseconds, end_ns: Nanoseconds
) -> TextOrEmpty:
    """Return the shortest named thing that most of some host time lies in.

    A function before an operator.
    """
    best: dict[bool, tuple[int, str]] = {}
    for span in spans:
        if span.start >= end_ns:
            break
        inside = min(span.end, end_ns) - max(span.start, begin_ns)
        if span.kind == "step" or inside < 0.6 * (end_ns - begin_ns):
            continue
        if span.kind == "python" and not is_informative_frame(span.name):
            continue
        length = span.end - span.start
        is_line = span.kind == "python"
        if is_line not in best or length < best[is_line][0]:
            best[is_line] = length, describe_frame(span.name) if is_line else span.name
    return ", ".join(best[key][1] for key in (True, False) if key in best)


ALLOCATIONS = RuleTexts(
    rule="host-sync",
    says="the step allocates memory ({names}): the host launches nothing for {time:figures} ms",
    advice=Advice(
        torch="reuse buffers, and keep torch.cuda.empty_cache() out of the loop",
        others="reuse buffers from step to step",
    ),
    idle=True,
)


def find_repeated_allocations(
    case: StepCase,
    claimed_works: ClaimedWorks,  # noqa: ARG001
) -> Iterator[StepFinding]:
    """Find memory that every step takes from the driver and gives back: both stop the host."""
    calls = case.step.calls
    chosen = [i for i, call in enumerate(calls) if call.allocates]
    time = case.sum_allocation_ns()
    # What is recorded once allocates what later steps find.
    if case.alone or time < 0.01 * case.split.period:
        return

    share = CallShare(busy=REACH["allocations kept"])  # it is there from the step before
    names = Counter(calls[i].name for i in chosen)
    said = ", ".join(f"{name} ({n}x)" for name, n in names.most_common(3))
    where = describe_call_origin(case.step, min(chosen)) or BETWEEN
    change = StepChange(host=dict.fromkeys(chosen, share))
    yield case.make_finding(ALLOCATIONS, (), change, where, names=said, time=time / 1e6)


WAITS = RuleTexts(
    rule="host-sync",
    says=(
        "the host waits for the GPU {stops} per step{elsewhere}: {what}; after those waits the GPU "
        "is idle for {after:figures} of {step:figures} ms recorded{pieces}{graph}"
    ),
    advice=Advice(
        torch=(
            "keep the value on the GPU, or read it one step later (a non_blocking copy and an "
            "event)"
        ),
        others=(
            "keep the value on the GPU, or read it one step later (an asynchronous copy and an "
            "event)"
        ),
    ),
    instead={
        "sizes": Advice(
            others=(
                "use fixed sizes (padded batches, multiplication by a mask) so that the host need "
                "not wait for a size"
            )
        ),
        "parts": Advice(
            torch=(
                "the same code waits {repeated} times per step, for one part after another (graphs, "
                "experts, sequences): where none needs the one before it, run it once for all of them "
                "(one batch, rows sorted by part, grouped products), or use fixed sizes (padding, a "
                "mask)"
            ),
            others=(
                "the same code waits {repeated} times per step, for one part after another: where none "
                "needs the one before it, run it once for all of them (one batch, rows sorted by part), "
                "or use fixed sizes (padding, a mask)"
            ),
        ),
        "device": Advice(
            others=(
                "synchronize the device only outside the loop; measure time with events and "
                "read them later"
            )
        ),
        "uploads": Advice(
            torch=(
                "pin the host memory and copy with non_blocking=True: then the host does not wait "
                "for what it sends"
            ),
            others=(
                "copy asynchronously from pinned memory: then the host does not wait for what it "
                "sends"
            ),
        ),
        "values": Advice(
            torch=(
                "collect the values in one tensor (torch.stack, torch._foreach_norm), and read it "
                "once, or one step later"
            ),
            others="collect the values in one array, and read it once, or one step later",
        ),
    },
    idle=True,
)


def find_host_waits(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:  # noqa: ARG001
    """Find waits of the host for the GPU, which is then idle until the next launch reaches it."""
    held = _list_waits_but_for_large_copies(case)
    if not held or not _is_idle_after_waits(case):
        return
    is_sized = _do_most_calls_wait_for_row_count(case, held)
    parts = {} if is_sized else _estimate_calls_left_by_batching_loops(case, held)
    values = _find_works_of_values_read_by_host(case, held)
    looped = _find_values_read_in_loops(case, values)
    repeated = max(map(len, _group_waits_by_line(case, held)), default=0)
    advice = _choose_wait_advice(case, held, is_sized, looped)
    if repeated >= PARTS and (parts or advice == "sizes"):
        advice = "parts"
    places = _count_calls_by_place(case, held)
    names = _count_calls_by_operator(case, held)
    before_graph = _choose_waits_said_before_graph(case, held)
    finding = case.make_finding(
        WAITS,
        (),
        _make_change_without_waits(held, values, looped, parts, is_sized),
        advice=advice,
        repeated=repeated,
        stops=say_how_often(len(held)),
        elsewhere=_say_other_places(places),
        what=_say_two_most_common(names),
        after=_sum_idle_ns_after_waits(case, held) / 1e6,
        step=case.split.period / 1e6,
        pieces=", and the work after them is launched piece by piece" if is_sized else "",
        graph="; such waits also prevent the capture of a CUDA graph" if before_graph else "",
    )
    where = [place for place, _ in (places or names).most_common()]
    yield replace(finding, where=tuple(where), waits_before_graph=before_graph)


def say_how_often(count: int) -> Clause:
    """Say how often something comes."""
    if count == 1:
        return "once"
    return f"{count:,} times"


def _count_calls_by_operator(case: StepCase, calls: Iterable[CallIndex]) -> Counter[str]:
    """Count calls by their operators, or by their own names where none is known."""
    return Counter(case.step.makers[i].op or case.step.calls[i].name for i in calls)


def _say_two_most_common(names: Counter[str]) -> Clause:
    """Name the two most common."""
    return ", ".join(f"{name} ({count}x)" for name, count in names.most_common(2))


def _make_change_without_waits(
    waits: Sequence[CallIndex],
    values: Collection[WorkIndex],
    looped: Collection[WorkIndex],
    loop_shares: Mapping[CallIndex, CallShare],
    do_waits_size_tensors: bool,
) -> StepChange:
    """Return the change of a host that goes on instead of waiting; what it wanted to know comes later.

    Args:
        waits: Calls that wait.
        values: What makes the values that the host waits for, and copies them: at best nobody wants
            them, and it goes.
        looped: Those of the values that a loop reads one after another: one launch computes them.
        loop_shares: What is left of calls in loops that wait in each turn.
        do_waits_size_tensors: Whether it waits for sizes: fixed ones take their place, and what is
            launched for each size is one batch at best.
    """
    merge = dict.fromkeys(values, REACH["values not wanted"])
    merge |= dict.fromkeys(looped, REACH["values read once"])
    host = {**loop_shares, **dict.fromkeys(waits, CallShare())}
    if do_waits_size_tensors:
        return StepChange(merge=merge, host=host, launches=REACH["sizes that are known"])
    return StepChange(merge=merge, host=host)


def _count_calls_by_place(case: StepCase, calls: Iterable[CallIndex]) -> Counter[Clause]:
    """Count the calls of each place; calls without one are left out."""
    places: Counter[str] = Counter()
    for index in calls:
        if place := describe_caller(case.step.makers[index]):
            places[place] += 1
    return places


def _say_other_places(places: Counter[Clause]) -> ClauseOrEmpty:
    """Name the places besides the first, which the finding begins with; nothing where there is one."""
    others = Counter(dict(places.most_common()[1:]))
    if not others:
        return ""
    listed = _format_places(others)
    return f", also {listed}" if listed.startswith("in ") else f", also at {listed}"


def _list_waits_but_for_large_copies(case: StepCase) -> list[CallIndex]:
    """List the calls that wait for work, or for few bytes; what a large copy takes is said of copies."""
    small = case.list_unclaimed_works(lambda w: w.kind != "copy" or w.activity.bytes <= SMALL_COPY)
    awaited = frozenset(small) - find_too_many_small_uploads(case)
    return [
        i for i in find_calls_waiting_for_works(case, awaited) if not case.step.calls[i].allocates
    ]


def _is_idle_after_waits(case: StepCase) -> bool:
    """Return whether the GPU is idle after waits for a part of the step that is worth a word."""
    return case.sum_idle_ns("host-sync") >= 0.005 * case.split.period


def _choose_waits_said_before_graph(
    case: StepCase, waits: Sequence[CallIndex]
) -> Sequence[CallIndex]:
    """List the waits that are said to come before a graph: all of them, or none."""
    if case.repeats and len(waits) >= FEW_WAITS and _is_idle_after_waits(case):
        return waits
    return ()


def _group_waits_by_line(case: StepCase, waits: Sequence[CallIndex]) -> list[list[CallIndex]]:
    """Return the waits of each line of each module: layers of a model are several modules."""
    places: dict[tuple[str, str], list[int]] = {}
    for index in waits:
        maker = case.step.makers[index]
        module = maker.place.module if maker.place is not None else ""
        if said := describe_caller(maker):
            places.setdefault((said, module), []).append(index)
    return list(places.values())


def _estimate_calls_left_by_batching_loops(
    case: StepCase, held_calls: Sequence[CallIndex]
) -> dict[CallIndex, CallShare]:
    """Return what is left of the host's calls if loops that wait in each turn are one batch.

    A line that waits again and again does so for one part of the input after another. What is launched
    from one of its waits to the next is a turn; a turn that is far longer than the others holds what is
    outside of the loop. Of so many turns one is left where each waits for the number of its rows, as
    experts do that each get some; other turns may need each other, and are one batch only at best.
    """
    pause = case.hosts.usual.pause
    events = case.hosts.usual.events
    left: dict[int, CallShare] = {}
    for waits in _group_waits_by_line(case, held_calls):
        if len(waits) < PARTS:
            continue
        usual = median(end - begin for begin, end in pairwise(waits))
        one = 1 / len(waits)
        share = Range(1.0, one if _do_most_calls_wait_for_row_count(case, waits) else 1.0, one)
        for begin, end in pairwise(waits):
            if end - begin > SAME_TURN * usual:
                continue
            for index in range(begin + 1, end + 1):
                other = left.get(index)
                if events[index].gap <= pause and (
                    other is None or other.gap.expect > share.expect
                ):
                    left[index] = CallShare(share, share)
    return left


def make_graph_of_longest_stretch(
    case: StepCase, waits: Collection[CallIndex], launches: Range
) -> StepChange:
    """Return a graph of the most launches between two waits: none can be captured across a wait."""
    events = case.hosts.usual.events
    longest = range(0)
    most = 0
    begin = 0
    for end in (*sorted(waits), len(events)):
        launched = sum(len(events[i].items) for i in range(begin, end))
        if launched > most:
            longest = range(begin, end)
            most = launched
        begin = end + 1
    host = {}
    for index in longest:
        event = events[index]
        if event.awaits >= 0:
            continue
        gap = launches if event.gap <= case.hosts.usual.pause else ALL
        busy = launches if event.busy <= LONG else ALL
        host[index] = CallShare(gap, busy)
    return StepChange(host=host)


def _sum_idle_ns_after_waits(case: StepCase, own_waits: Sequence[CallIndex]) -> Nanoseconds:
    """Return nanoseconds that the GPU is idle after some of the waits, without those of others."""
    waits = [i for i, event in enumerate(case.hosts.usual.events) if event.awaits >= 0]
    starts = [case.step.calls[i].start for i in waits]
    own = set(own_waits)
    idle = 0
    for low, high, cause in case.split.gaps:
        before = bisect_left(starts, high) - 1  # before the first it is the last of the step before
        if cause == "host-sync" and waits[before] in own:
            idle += high - low
    return idle


def _choose_wait_advice(
    case: StepCase,
    waits: Sequence[CallIndex],
    do_waits_size_tensors: bool,
    looped: Collection[WorkIndex],
) -> AdviceKey:
    """Return the key of what takes the place of waiting."""
    calls = [(case.step.calls[i].name, case.step.makers[i].op) for i in waits]
    awaited = [case.works[case.hosts.usual.events[i].awaits].activity for i in waits]
    if 2 * sum(activity.direction == "HtoD" for activity in awaited) > len(waits):
        return "uploads"
    if do_waits_size_tensors:
        return "sizes"
    if 2 * sum(name in SYNCHRONIZES and not op for name, op in calls) > len(waits):
        return "device"
    if 2 * sum(case.works[i].kind == "copy" for i in looped) > len(waits):
        return "values"
    return ""


def _find_works_of_values_read_by_host(
    case: StepCase, waits: Sequence[CallIndex]
) -> frozenset[WorkIndex]:
    """Return small copies to the host that it waits for, and what makes their values right before."""
    out: set[int] = set()
    for index in waits:
        copy = case.hosts.usual.events[index].awaits
        if case.works[copy].activity.direction == "DtoH":
            before = range(copy - 1, max(-1, copy - 1 - MAKERS), -1)
            out |= {copy, *takewhile(lambda i: case.works[i].kind in MADE_OF, before)}
    return frozenset(out)


def _find_values_read_in_loops(
    case: StepCase, values_read: frozenset[WorkIndex]
) -> frozenset[WorkIndex]:
    """Return those values looked at that come one after another: a loop over tensors that are there.

    Nothing else runs between them, as a norm of each gradient: one launch does it for all
    (torch._foreach_norm), and one copy brings them.
    """
    out: set[int] = set()
    works = case.works
    for alike, run in groupby(
        range(len(works)), lambda i: i in values_read or works[i].kind in MADE_OF
    ):
        own = values_read.intersection(run)
        if alike and sum(works[i].kind == "copy" for i in own) >= MANY_COPIES:
            out |= own
    return frozenset(out)


def _do_most_calls_wait_for_row_count(case: StepCase, waits: Sequence[CallIndex]) -> bool:
    """Return whether most of some calls wait for a number of rows."""
    return 2 * sum(_is_call_waiting_for_row_count(case, i) for i in waits) > len(waits)


def _is_call_waiting_for_row_count(case: StepCase, call: CallIndex) -> bool:
    """Return whether a call waits for a number of rows: by its operator, else by what ran before."""
    if op := case.step.makers[call].op:
        return SIZED.search(op) is not None
    item = case.hosts.usual.events[call].awaits
    before = case.works[max(0, item - 3) : item + 1]
    return any(SIZING.search(work.activity.name) for work in before)
