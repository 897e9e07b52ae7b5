"""The GPU waits for the host: launches that come too slowly, waits, the host's own work."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from profkit.program.findings.case import Case, Draft
from profkit.program.savings.replay import Event, Model, ReplayItem
from profkit.program.step.attribution import line_of
from profkit.program.step.idle import of_maker
from profkit.program.timeline import HostSpan

LONG = 500_000  # nanoseconds of host work before one call that no launching explains
FEW_WAITS = 4  # a step: fewer may lie at its end, behind what a graph would hold
LONG_SHARE = 0.05  # of the step: what is shorter is no pause
MAKERS = 6  # works before a copy to the host that may have made the value
MADE_OF = frozenset({"reduce", "elementwise", "set"})  # kinds of works that make such a value
MANY_COPIES = 16  # small ones to the GPU a step: they are a batch in pieces, no stray scalar
SMALL_COPY = 1 << 16  # bytes up to which a copy is there to look at a value
# Operators whose result has as many rows as the data says: the host has to wait for the number, no
# graph can be captured round them, and what follows is launched piece by piece.
SIZED = re.compile(r"aten::(nonzero|masked_select|_?unique\w*|repeat_interleave)\b")
SIZING = re.compile(r"(?i)nonzero|DeviceSelect|unique_by|NumUnique")  # kernels that count for them
# Calls that no operator makes: the program asks for them itself.
SYNCHRONIZES = frozenset({"cudaDeviceSynchronize", "cudaEventSynchronize", "cuCtxSynchronize"})
GRAPH_LAG = 1_000.0  # nanoseconds between the kernels of a graph


def _is_pause(gap: float, period: float) -> bool:
    return gap > max(LONG, LONG_SHARE * period)


def slow_launches(case: Case, taken: frozenset[int]) -> Iterator[Draft]:  # noqa: ARG001
    """The host launches more slowly than the GPU works."""
    idle = sum(row.time for row in case.split.idle if row.cause == "host-launch") - _paused(case)
    count = len(case.works)
    if idle < 0.02 * case.split.period or count < 2:
        return
    period = case.split.period

    def captured(model: Model, level: str) -> Model:
        """All launches in one, as a graph has them; pauses of the host stay."""
        return launched_at_once(model, {"low": 0.35, "expect": 0.03, "high": 0.0}[level], period)

    mean = sum(w.activity.duration for w in case.works) / count / 1e3
    say = (f"the GPU has nothing to do for {idle / period:.0%} of the recorded step: {count:,} launches "
           f"of {mean:.3g} µs on average come more slowly than they run")  # fmt: skip
    where = next(row.where for row in case.split.idle if row.cause == "host-launch")
    yield Draft(
        "host-launch", say,
        case.advice("capture the step in a CUDA graph, or torch.compile(mode='reduce-overhead')",
                    "capture the step in a CUDA graph",
                    "jax.jit the whole step, so that one call launches it"),
        where, (), captured, covers=False, general=True, idle=True,
    )  # fmt: skip


def _paused(case: Case) -> int:
    """Nanoseconds in which the GPU is idle while the host pauses: that is no slow launching."""
    step = case.step
    starts = [*(call.start for call in step.calls), step.end]
    ends = [step.begin, *(call.end for call in step.calls)]
    pauses = [(low, high) for low, high in zip(ends, starts, strict=True)
              if _is_pause(high - low, case.split.period)]  # fmt: skip
    turn = step.end - step.begin  # what lies behind the host's step is the pause of the next
    pauses += [(low + turn, high + turn) for low, high in pauses]
    gaps = [(low, high) for low, high, cause in case.split.gaps if cause == "host-launch"]
    return sum(
        max(0, min(high, until) - max(low, since)) for low, high in gaps for since, until in pauses
    )


def launched_at_once(model: Model, stays: float, period: int) -> Model:
    """The model with a part of the host's time round its launches; pauses of its own stay.

    Args:
        model: Of the step.
        stays: The part of the time that is left.
        period: Of the recorded step, nanoseconds: what a pause is depends on it.
    """
    events = tuple(
        e if _is_pause(e.gap, period) else e._replace(gap=e.gap * stays, busy=e.busy * stays)
        for e in model.events
    )
    items = tuple(i._replace(lag=GRAPH_LAG) if i.lag > GRAPH_LAG else i for i in model.items)
    tail = model.tail if _is_pause(model.tail, period) else model.tail * stays
    return replace(model, events=events, items=items, tail=tail)


def own_work(case: Case, taken: frozenset[int]) -> Iterator[Draft]:  # noqa: ARG001
    """The host does something long of its own while the GPU waits."""
    period = case.split.period
    model = case.hosts.usual
    gaps = [(e.gap, i) for i, e in enumerate(model.events) if _is_pause(e.gap, period)]
    total = sum(gap for gap, _ in gaps) + (model.tail if _is_pause(model.tail, period) else 0)
    if not total:
        return

    def elsewhere(model: Model, level: str) -> Model:
        """The pauses gone: workers do it ahead; at worst a part of it stays."""
        stays = {"low": 0.4, "expect": 0.05, "high": 0.0}[level]
        events = tuple(
            e._replace(gap=e.gap * stays) if _is_pause(e.gap, period) else e for e in model.events
        )
        tail = model.tail * stays if _is_pause(model.tail, period) else model.tail
        return replace(model, events=events, tail=tail)

    calls = case.step.calls
    longest = max(gaps, default=(0.0, len(calls)))[1]
    low = calls[longest - 1].end if longest else case.step.begin
    high = calls[longest].start if longest < len(calls) else case.step.end
    inside = during(case.spans, low, high)
    before = of_maker(case.step, longest) if longest < len(calls) else ""
    yield Draft(
        "host-launch",
        f"the host launches nothing for {total / 1e6:.3g} ms a step: between its launches it works on "
        "something of its own, or waits for something",
        "load ahead in other processes (DataLoader's num_workers, prefetching), or on the GPU"
        if "DataLoader" in inside
        else "do it ahead, in another thread or process while the GPU works, or on the GPU",
        inside or (f"before {before}" if before else "between steps"),
        (), elsewhere, covers=False, idle=True,
    )  # fmt: skip


def during(spans: Sequence[HostSpan], low: int, high: int) -> str:
    """The shortest named thing that most of some host time lies in; a line before an operator."""
    best: dict[bool, tuple[int, str]] = {}
    for span in spans:
        if span.start >= high:
            break
        inside = min(span.end, high) - max(span.start, low)
        if span.kind == "step" or inside < 0.6 * (high - low):
            continue
        length, is_line = span.end - span.start, span.kind == "python"
        if is_line not in best or length < best[is_line][0]:
            best[is_line] = length, line_of(span.name) if is_line else span.name
    return " ".join(best[key][1] for key in (True, False) if key in best)


def allocations(case: Case, taken: frozenset[int]) -> Iterator[Draft]:  # noqa: ARG001
    """Memory that every step takes from the driver and gives back: both stop the host."""
    calls = case.step.calls
    chosen = frozenset(i for i, call in enumerate(calls) if call.allocates)
    time = sum(calls[i].end - calls[i].start for i in chosen)
    if time < 0.01 * case.split.period:
        return

    def kept(model: Model, level: str) -> Model:
        """Nothing is allocated: it is there from the step before."""
        stays = {"low": 0.3, "expect": 0.0, "high": 0.0}[level]
        events = tuple(
            e._replace(awaits=-1, busy=e.busy * stays) if i in chosen else e
            for i, e in enumerate(model.events)
        )
        return replace(model, events=events)

    names = Counter(calls[i].name for i in chosen)
    first = min(chosen)
    yield Draft(
        "host-sync",
        f"the step allocates: {', '.join(f'{name} ({n} x)' for name, n in names.most_common(3))}, "
        f"{time / 1e6:.3g} ms in which the host launches nothing",
        case.advice("keep buffers, and torch.cuda.empty_cache() out of the loop",
                    "keep buffers from step to step"),
        of_maker(case.step, first) or "between steps", (), kept, covers=False, idle=True,
    )  # fmt: skip


def waits(case: Case, taken: frozenset[int]) -> Iterator[Draft]:  # noqa: ARG001
    """The host waits for the GPU, which is then idle until the next launch reaches it."""
    step, pieces = case.step, uploads(case)
    held = [i for i, e in enumerate(case.hosts.usual.events)
            if e.awaits >= 0 and not step.calls[i].allocates
            and not _large_copy(case, e.awaits) and e.awaits not in pieces
            and not _at_the_end(case, i)]  # fmt: skip
    idle = sum(row.time for row in case.split.idle if row.cause == "host-sync")
    if not held or idle < 0.005 * case.split.period:
        return
    chosen = frozenset(held)
    looked = _looked_at(case, held)
    looped = _looped(case, looked)
    sized = 2 * sum(_for_size(case, i) for i in held) > len(held)
    own = [i for i in held if step.calls[i].name in SYNCHRONIZES and not step.makers[i].op]
    called = 2 * len(own) > len(held)

    def unwaited(model: Model, level: str) -> Model:
        """The host goes on; what it wanted to know comes later.

        Where it waits for a size, fixed sizes take its place, which can be launched at once: what is
        launched for each size is then one batch, at best. At best, too, nobody wants the value: then
        what computes it goes. Values that a loop reads one after another are computed by one launch.
        """
        events = tuple(e._replace(awaits=-1) if i in chosen else e
                       for i, e in enumerate(model.events))  # fmt: skip
        left = replace(model, events=events)
        gone = looked if level == "high" else looped
        if gone:
            left = left.without(gone.__contains__, merged=0.5 if level == "low" else 0.1)
        if not sized or level == "low":
            return left
        return launched_at_once(left, {"expect": 0.1, "high": 0.0}[level], case.split.period)

    names = Counter(step.makers[i].op or step.calls[i].name for i in held)
    places = Counter(filter(None, (step.makers[i].source or step.makers[i].range for i in held)))
    what = ", ".join(f"{name} ({n} x)" for name, n in names.most_common(2))
    yield Draft(
        "host-sync",
        f"the host stops {len(held):,} times a step until the GPU is done: {what}; "
        f"the GPU is idle for {idle / 1e6:.3g} ms of {case.split.period / 1e6:.3g} after it"
        + (", and what follows is launched piece by piece" if sized else "")
        + ("; no graph can be captured with them" if len(held) >= FEW_WAITS else ""),
        _instead(case, sized, called,
                 2 * sum(case.works[i].kind == "copy" for i in looped) > len(held)),
        places.most_common(1)[0][0] if places else names.most_common(1)[0][0],
        (), unwaited, covers=False, idle=True, hinders=len(held) >= FEW_WAITS,
    )  # fmt: skip


def _instead(case: Case, sized: bool, called: bool, looped: bool) -> str:
    """What takes the place of waiting."""
    if sized:
        return ("use sizes that are known (batched with padding, a mask that multiplies), so that the "
                "host waits for none")  # fmt: skip
    if called:
        return "wait for the device outside of the loop only; time with events that are read later"
    if looped:
        one = case.advice("one tensor (torch.stack, torch._foreach_norm)", "one array")
        return f"put the values into {one}, and read that once, or a step later"
    later = case.advice("non_blocking, an event", "copied asynchronously, with an event")
    return f"keep the value on the GPU, or read it a step later ({later})"


def _looked_at(case: Case, held: Sequence[int]) -> frozenset[int]:
    """Small copies to the host that it waits for, and the sums and maxima that make their values."""
    out: set[int] = set()
    for index in held:
        copy = case.hosts.usual.events[index].awaits
        if case.works[copy].activity.direction != "DtoH":
            continue
        made: list[int] = []
        for i in range(copy - 1, max(-1, copy - 1 - MAKERS), -1):
            if case.works[i].kind not in MADE_OF:
                break
            made.append(i)
        last = max((n for n, i in enumerate(made) if case.works[i].kind == "reduce"), default=-2)
        out |= {copy, *made[: last + 2]}  # what it sums may be made by one more: an absolute value
    return frozenset(out)


def _looped(case: Case, looked: frozenset[int]) -> frozenset[int]:
    """Those of the values looked at that come one after another: a loop over tensors that are there.

    Nothing else runs between them, as a norm of each gradient: one launch does it for all
    (torch._foreach_norm), and one copy brings them.
    """
    out: set[int] = set()
    run: list[int] = []
    for i in range(len(case.works) + 1):
        if i < len(case.works) and (i in looked or case.works[i].kind in MADE_OF):
            run.append(i)
            continue
        own = looked.intersection(run)
        if sum(case.works[j].kind == "copy" for j in own) >= MANY_COPIES:
            out |= own
        run = []
    return frozenset(out)


def _for_size(case: Case, call: int) -> bool:
    """Whether a call waits for a number of rows: by its operator, else by what ran before."""
    if op := case.step.makers[call].op:
        return SIZED.search(op) is not None
    item = case.hosts.usual.events[call].awaits
    before = case.works[max(0, item - 3) : item + 1]
    return any(SIZING.search(work.activity.name) for work in before)


def uploads(case: Case) -> frozenset[int]:
    """Small copies to the GPU, where there are so many that they should be one."""
    found = frozenset(
        i for i, w in enumerate(case.works)
        if w.kind == "copy" and w.activity.direction == "HtoD" and w.activity.bytes <= SMALL_COPY
    )  # fmt: skip
    return found if len(found) >= MANY_COPIES else frozenset()


def _large_copy(case: Case, item: int) -> bool:
    work = case.works[item]
    return work.kind == "copy" and work.activity.bytes > SMALL_COPY


def _at_the_end(case: Case, index: int) -> bool:
    """Whether a wait is the recorder's own, when it stops."""
    return case.step.calls[index].end > case.step.end


def releasing(events: tuple[Event, ...], copies: frozenset[int]) -> tuple[Event, ...]:
    """Events that no longer wait for some items."""
    return tuple(e._replace(awaits=-1) if e.awaits in copies else e for e in events)


def aside(
    items: tuple[ReplayItem, ...], chosen: frozenset[int], stream: int
) -> tuple[ReplayItem, ...]:
    """Items moved to a stream of their own, which nothing waits for."""
    return tuple(
        t._replace(stream=stream, after=-1, lag=0.0) if i in chosen
        else t._replace(after=-1) if t.after in chosen else t
        for i, t in enumerate(items)
    )  # fmt: skip
