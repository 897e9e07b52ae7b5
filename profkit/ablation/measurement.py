"""One call on a GPU and its PTX  ->  what each cause costs.

The process that runs this may be lost to a kernel that hangs or loses the context: whatever is begun is
said before, so that whoever started it can go on without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan, prod
from statistics import median

from profkit.ablation import assemble, launches, survey, timeline, units
from profkit.ablation.accesses import Access, find_accesses
from profkit.ablation.change import ROOM, Ablation, Change, Code
from profkit.ablation.classes import list_ablations
from profkit.ablation.lab import Conditions, Lab
from profkit.ablation.launches import Call, Loaded, Play
from profkit.ablation.ptx import Changes, Module, read_module
from profkit.errors import ProfkitError
from profkit.measure import bench
from profkit.measure.bench import Subject, Times
from profkit.measure.cuda import device
from profkit.measure.cuda.resources import LIMITS, blocks_that_fit
from profkit.records.ablation import LineGain, MeasuredAblation, Refusal, Shape

# Base and original run the same instructions: what they differ by more is not the kernel's.
REBUILT = 0.02
EXECUTED = 0.05  # by this share an opcode may be executed more or less often than beside the twin
# What choosing costs is in twin and ablation alike, but it hides what it overlaps with.
COSTLY = 1.5
WORTH = 1.05  # gains from here on are looked at line by line
_MOST_LINES = 8
_COLD_ROUNDS = 10, 10


@dataclass(frozen=True)
class Found:
    """What came of one call."""

    kernels: tuple[str, ...]
    base: Times
    cold: Times
    rebuilt: float | None
    measured: tuple[MeasuredAblation, ...]
    refused: tuple[Refusal, ...]
    shape: Shape
    busy: Mapping[str, float]
    both: float | None
    seen: Mapping[str, float]  # what the survey saw, for whoever asks
    others: Mapping[str, float] = field(default_factory=dict)  # times of other calls beside it


Say = Callable[[str], None]


def measure_call(
    call: Callable[[int], None],
    reset: Callable[[], None],
    text: str | None,
    on: Conditions,
    say: Say,
    beside: Mapping[str, Callable[[int], None]] | None = None,
) -> Found:
    """Ablate one call. Without PTX only its launch is varied; `beside`: calls timed in turns with it."""
    lab = Lab(call, reset, on)
    refused: list[Refusal] = []
    plays = {"original": Play(lab.call)}
    plays |= _vary_launch(lab)
    changes: dict[Ablation, Change] = {}
    executed: dict[str, float] = {}
    code: Code | None = None
    spans = None
    if text is not None:
        module = _keep_launched(read_module(text), lab.call)
        if module is None:
            text = None
        else:
            say("survey")
            code, spans = _survey(lab, module)
            changes, more = _make_changes(code, on)
            refused += more
            more_plays, executed, more = _load_changes(lab, code, changes, say)
            plays |= more_plays
            refused += more
    say("timing")
    lab.reset()
    times = _time_plays(plays, on, beside or {})
    measured, more = _compare(changes, executed, times)
    refused += more
    lines = _time_lines(lab, code, changes, measured, say) if code else {}
    measured = [_with_lines(row, lines) for row in measured]
    cold = bench.bench_subjects(
        [_subject("original", plays["original"].enqueue)],
        "",
        on.gpu,
        on.tools,
        cold=True,
        rounds=_COLD_ROUNDS,
    )[0]
    lab.reset()
    base = times["original"]
    rebuilt = None
    if "base" in times:
        rebuilt = median(times["base"].warm) / median(base.warm)
    return Found(
        kernels=tuple(dict.fromkeys(start.name for start in lab.call.starts)),
        base=base,
        cold=cold,
        rebuilt=rebuilt,
        measured=tuple(measured),
        refused=tuple(refused),
        shape=_describe_shape(lab, times, cold, spans),
        busy=_measure_busy(code, base, on) if code else {},
        both=None,
        seen=_sum_survey(code) if code else {},
        others={name: median(times[name].warm) for name in beside or {} if name in times},
    )


def _keep_launched(module: Module, call: Call) -> Module | None:
    """The module with those kernels only that the call launches; None if there is none."""
    kept = {}
    for name, kernel in module.kernels.items():
        if name in call.names or not kernel.is_entry:
            kept[name] = kernel
    if call.names.isdisjoint(kept):
        return None
    return replace(module, kernels=kept)


def _survey(lab: Lab, module: Module) -> tuple[Code, timeline.Timeline | None]:
    """Run the counting copy and that with the times of blocks, once each."""
    on, found = lab.on, find_accesses(module)
    counting, spans = survey.write_counting(module, found), timeline.write_timeline(module)
    # Counters take registers: not so many that a block no longer fits.
    threads = max(start.threads for start in lab.call.starts)
    most = min(255, (1 << 16) // max(32, -(-threads // 32) * 32) // 8 * 8)
    capped = (*_without_cap(on.flags), f"-maxrregcount={most}")
    made = assemble.assemble_all([counting, spans], on.arch, capped, on.folder)
    counter, drawn = made[counting], made[spans]
    if isinstance(counter, ProfkitError):
        raise counter
    words = lab.count(module, found, counter, b"")
    seen = survey.read_counters(module, found, words)
    blocks = lab.draw_timeline(module, drawn) if isinstance(drawn, bytes) else None
    code = Code(
        module=module,
        accesses=found,
        survey=seen,
        threads={start.name: prod(start.grid) * start.threads for start in lab.call.starts},
        l2=on.gpu.l2,
        room=device.allocate(ROOM),
        local_bytes=max(launches.count_local(start.function) for start in lab.call.starts),
        capped=list(on.flags) != _without_cap(on.flags),
        anchored=_find_anchored(found, seen),
    )
    device.fill(code.room, 0, ROOM)
    return code, blocks


def _without_cap(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("-maxrregcount")]


def _find_anchored(accesses: Sequence[Access], seen: survey.Survey) -> frozenset[int]:
    """Accesses of global memory whose first and last byte lie in one allocation."""
    anchored = set()
    for access in accesses:
        went = seen.seen[access.number]
        if not access.in_global or not went.requests:
            continue
        owner = launches.find_allocation(went.lowest)
        if owner and went.highest <= owner[0] + owner[1]:
            anchored.add(access.number)
    return frozenset(anchored)


def _make_changes(code: Code, on: Conditions) -> tuple[dict[Ablation, Change], list[Refusal]]:
    changes: dict[Ablation, Change] = {}
    refused = []
    for ablation in list_ablations():
        if why := on.refused.get(ablation.id):
            remedy = "compute-sanitizer says where, of the original too"
            refused.append(ablation.refuse("lost", why, "one that ends", remedy))
            continue
        made = ablation.make(code)
        if isinstance(made, Refusal):
            refused.append(made)
        else:
            changes[ablation] = made
    return changes, refused


def _load_changes(
    lab: Lab, code: Code, changes: Mapping[Ablation, Change], say: Say
) -> tuple[dict[str, Play], dict[str, float], list[Refusal]]:
    """What is timed of each change, how its executed counts differ, and what is not to be believed."""
    on, module = lab.on, code.module
    base = lab.load(module, assemble.assemble(module.text, on.arch, on.flags, on.folder))
    plays = {"base": Play(lab.call, base.functions)}
    rewritten: dict[Ablation, Module] = {}
    texts: list[str] = []
    for ablation, change in changes.items():
        if not change.other_code:
            rewritten[ablation] = pin_registers(lab, change.text)
            texts += [rewritten[ablation].text, survey.write_counting(rewritten[ablation], [])]
    made = assemble.assemble_all(texts, on.arch, on.flags, on.folder)
    executed: dict[str, float] = {}
    refused = []
    for ablation, change in changes.items():
        say(ablation.id)
        try:
            if change.other_code:
                plays[f"gone:{ablation.id}"] = _load_other(lab, change)
                continue
            here = rewritten[ablation]
            counter = _need(made[survey.write_counting(here, [])])
            machine = _need(made[here.text])
            executed[ablation.id] = _count_difference(lab, here, counter, change)
            pair = {"twin": change.twin, "gone": change.table}
            for which, table in pair.items():
                play = _load_pinned(lab, here, machine, table, base)
                lab.run(play)
                plays[f"{which}:{ablation.id}"] = play
        except Refused as why:
            refused.append(ablation.refuse(why.code, why.observed, why.threshold, why.remedy))
    return plays, executed, refused


class Refused(Exception):
    """What is not to be believed of one change, and why."""

    def __init__(self, code: str, observed: str, threshold: str, remedy: str = "") -> None:
        super().__init__(observed)
        self.code, self.observed, self.threshold, self.remedy = code, observed, threshold, remedy


def _need(made: bytes | ProfkitError) -> bytes:
    if isinstance(made, ProfkitError):
        said = f"{made.message}: {made.hint}"
        raise Refused("does-not-assemble", said, "PTX that ptxas takes")
    return made


def pin_registers(lab: Lab, text: str) -> Module:
    """The rewritten code, held to as many registers as let the original's blocks fit."""
    module = read_module(text)
    changes = Changes(module)
    for start in lab.call.starts:
        if start.name in module.kernels:
            blocks = launches.count_blocks(start.function, start.threads, start.smem)
            changes.pin_blocks(module.kernels[start.name], start.threads, max(1, blocks))
    pinned = read_module(changes.write())
    return _keep_launched(pinned, lab.call) or pinned


def _count_difference(lab: Lab, module: Module, counter: bytes, change: Change) -> float:
    """How much more or less often an opcode is executed with the cause gone, at most."""
    usual = lab.count(module, [], counter, change.twin)
    without = lab.count(module, [], counter, change.table)
    blocks = survey.count_blocks(module)
    difference = survey.largest_difference(module, usual[:blocks], without[:blocks])
    if difference > EXECUTED:
        raise Refused(
            "other-work",
            f"an opcode was executed {difference:.0%} more or less often",
            f"{EXECUTED:.0%}",
            "the kernel's work follows from its data: nothing can be taken away alone",
        )
    return difference


def _load_pinned(lab: Lab, module: Module, machine: bytes, table: bytes, base: Loaded) -> Play:
    """Rewritten code of which as many blocks fit on an SM as of the base."""
    loaded = lab.load(module, machine, table)
    pinned = {}
    for start in lab.call.starts:
        if start.name not in loaded.functions:
            continue
        wanted = launches.count_blocks(base.functions[start.name], start.threads, start.smem)
        function = loaded.functions[start.name]
        fitting = launches.count_blocks(function, start.threads, start.smem)
        if fitting < wanted:
            raise Refused(
                "occupancy",
                f"{fitting} blocks fit on an SM with the instructions that choose",
                f"{wanted}, as of the original",
                "give the kernel a few registers more: fewer threads a block, or no limit of them",
            )
        size = _find_shared(function, start.threads, start.smem, wanted)
        if size != start.smem:
            pinned[start.name] = size
    return Play(lab.call, loaded.functions, pinned)


def _load_other(lab: Lab, change: Change) -> Play:
    """Other code that does the same, with no more blocks on an SM than the original has."""
    on = lab.on
    module = read_module(change.text)
    module = _keep_launched(module, lab.call) or module
    flags = _without_cap(on.flags)
    made = assemble.assemble_all([change.text], on.arch, flags, on.folder)
    loaded = lab.load(module, _need(made[change.text]))
    pinned = {}
    for start in lab.call.starts:
        if start.name in loaded.functions:
            wanted = launches.count_blocks(start.function, start.threads, start.smem)
            function = loaded.functions[start.name]
            size = _find_shared(function, start.threads, start.smem, wanted)
            if size != start.smem:
                pinned[start.name] = size
    play = Play(lab.call, loaded.functions, pinned)
    lab.run(play)
    return play


_STEP = 1024  # bytes of shared memory between two tries


def _find_shared(function: int, threads: int, smem: int, blocks: int) -> int:
    """The least dynamic shared memory from `smem` on with which no more than `blocks` fit."""
    size = smem
    while launches.count_blocks(function, threads, size) > blocks:
        size += _STEP
        launches.allow_shared(function, size)
    return size


def _vary_launch(lab: Lab) -> dict[str, Play]:
    """What launch alone can change: occupancy cut by shared memory that nobody uses, half the blocks."""
    plays = {}
    for name, part in (("half-occupancy", 2), ("quarter-occupancy", 4)):
        smem = {}
        for start in lab.call.starts:
            most = launches.count_blocks(start.function, start.threads, start.smem)
            filled = min(most, -(-prod(start.grid) // lab.on.gpu.sms))
            if filled >= part:
                size = _cut_occupancy(start, filled // part)
                if size is not None:
                    smem[start.name] = size
        if smem:
            plays[name] = Play(lab.call, smem=smem)
    if any(prod(start.grid) > 1 for start in lab.call.starts):
        plays["half-grid"] = Play(lab.call, halved=True)
    return plays


def _cut_occupancy(start: launches.Start, blocks: int) -> int | None:
    """Dynamic shared memory with which this many blocks fit; None where the GPU does not allow it."""
    try:
        return _find_shared(start.function, start.threads, start.smem, blocks)
    except device.CudaError:
        launches.allow_shared(start.function, start.smem)
        return None


def _subject(name: str, call: Callable[[int], None]) -> Subject:
    def time_plainly(n: int, stream: int) -> tuple[float, float]:
        return bench.eager_time(lambda: bench.host_time(lambda: call(stream), n), n, stream)

    return Subject(name, call, bench.native_capture, time_plainly)


def _time_plays(
    plays: Mapping[str, Play], on: Conditions, beside: Mapping[str, Callable[[int], None]]
) -> dict[str, Times]:
    timed = [_subject(name, play.enqueue) for name, play in plays.items()]
    timed += [_subject(name, call) for name, call in beside.items()]
    taken = bench.bench_subjects(timed, "", on.gpu, on.tools, cold=False, rounds=on.rounds)
    return {times.name: times for times in taken}


def _compare(
    changes: Mapping[Ablation, Change], executed: Mapping[str, float], times: Mapping[str, Times]
) -> tuple[list[MeasuredAblation], list[Refusal]]:
    """The gain of each change that was timed, or why it is not to be believed."""
    from profkit.evidence.stats import compare_samples

    measured, refused = [], []
    original = median(times["original"].warm)
    rebuilt = median(times["base"].warm) / original if "base" in times else 1.0
    for ablation, change in changes.items():
        before = "base" if change.other_code else f"twin:{ablation.id}"
        twin, gone = times.get(before), times.get(f"gone:{ablation.id}")
        if twin is None or gone is None:
            continue
        cost = median(twin.warm) / original
        if abs(rebuilt - 1) > REBUILT:
            remedy = "build it with the toolkit that is here"
            seen = f"the same code assembled here takes {rebuilt:.3f} times as long"
            refused.append(ablation.refuse("rebuilt-differs", seen, f"within {REBUILT:.0%}", remedy))
            continue
        if cost > COSTLY:
            seen = f"the instructions that choose alone take {cost:.2f} times as long"
            refused.append(ablation.refuse("costly", seen, f"{COSTLY} times", ""))
            continue
        compared = compare_samples(twin.warm, gone.warm, taken="interleaved")
        gain = compared.speedup
        measured.append(
            MeasuredAblation(
                ablation=ablation.id,
                title=ablation.title,
                reachable=ablation.reachable,
                rules=ablation.rules,
                time=original / gain.median,
                gain=gain.median,
                low=None if isnan(gain.low) else gain.low,
                high=None if isnan(gain.high) else gain.high,
                twin=cost,
                executed=executed.get(ablation.id),
                changed=change.changed,
                kept=change.kept,
            )
        )
    return measured, refused


def _time_lines(
    lab: Lab,
    code: Code,
    changes: Mapping[Ablation, Change],
    measured: Sequence[MeasuredAblation],
    say: Say,
) -> dict[str, tuple[LineGain, ...]]:
    """What each source line has of the gains that are reachable; ablation -> its lines."""
    plays: dict[str, Play] = {}
    by_id = {ablation.id: change for ablation, change in changes.items()}
    on = lab.on
    for row in measured:
        change = by_id[row.ablation]
        if row.gain < WORTH or not row.reachable or len(change.lines) < 2:
            continue
        module = pin_registers(lab, change.text)
        machine = assemble.assemble(module.text, on.arch, on.flags, on.folder)
        tables = {"": change.twin, **dict(list(change.lines.items())[:_MOST_LINES])}
        for place, table in tables.items():
            loaded = lab.load(module, machine, table)
            plays[f"{row.ablation}|{place}"] = Play(lab.call, loaded.functions)
    if not plays:
        return {}
    say("lines")
    times = _time_plays(plays, on, {})
    lines: dict[str, list[LineGain]] = {}
    for name, taken in times.items():
        ablation, _, place = name.partition("|")
        if place:
            gain = median(times[f"{ablation}|"].warm) / median(taken.warm)
            lines.setdefault(ablation, []).append(LineGain(place, gain))
    ranked = {}
    for ablation, gains in lines.items():
        ranked[ablation] = tuple(sorted(gains, key=lambda row: -row.gain))
    return ranked


def _with_lines(
    row: MeasuredAblation, lines: Mapping[str, tuple[LineGain, ...]]
) -> MeasuredAblation:
    import msgspec

    return msgspec.structs.replace(row, lines=lines.get(row.ablation, ()))


def _describe_shape(
    lab: Lab, times: Mapping[str, Times], cold: Times, spans: timeline.Timeline | None
) -> Shape:
    base = median(times["original"].warm)
    ratios: dict[str, float | None] = {}
    for name in ("half-occupancy", "quarter-occupancy", "half-grid"):
        ratios[name] = median(times[name].warm) / base if name in times else None
    start = max(lab.call.starts, key=lambda start: prod(start.grid) * start.threads)
    arch, function = lab.on.gpu.arch, start.function
    blocks = launches.count_blocks(function, start.threads, start.smem)
    fraction, limit = None, ""
    if arch in LIMITS:
        shared = start.smem + launches.count_static_shared(function)
        registers = launches.count_registers(function)
        fitting = blocks_that_fit(arch, registers, start.threads, shared)
        fraction, limit = fitting.fraction, fitting.limiter
    return Shape(
        half_occupancy=ratios["half-occupancy"],
        quarter_occupancy=ratios["quarter-occupancy"],
        half_grid=ratios["half-grid"],
        cold=median(cold.cold) / base if cold.cold else None,
        idle=spans.idle if spans else None,
        longest_block=spans.longest if spans else None,
        blocks=prod(start.grid),
        blocks_per_sm=blocks,
        occupancy=fraction,
        occupancy_limit=limit,
    )


def _measure_busy(code: Code, base: Times, on: Conditions) -> dict[str, float]:
    clock = base.after.sm_clock or on.gpu.sm_clock
    cycles = median(base.warm) * clock * on.gpu.sms
    return units.measure_busy(code.survey, code.accesses, on.gpu.arch, cycles)


def _sum_survey(code: Code) -> dict[str, float]:
    """What the survey saw of the whole call, in few numbers."""
    executed, issued = code.survey.executed, code.survey.issued
    threads, warps = sum(executed.values()), sum(issued.values())
    sums: Counter[str] = Counter()
    for access in code.accesses:
        seen = code.survey.seen[access.number]
        if access.in_global and access.kind == "store":
            sums["stored_bytes"] += seen.threads * access.width
        elif access.in_global:
            sums["loaded_bytes"] += seen.threads * access.width
            sums["steering_loads"] += access.steers and seen.requests > 0
        elif access.space == "shared":
            sums["steering_shared"] += access.steers and seen.requests > 0
            sums["shared_ways"] += seen.ways
            sums["shared_requests"] += seen.requests
    for opcode, number in issued.items():
        words = opcode.split(".")
        if words[-1] == "f32" and words[0] in ("add", "sub", "mul", "fma"):
            sums["fp32"] += number
            sums["fp32_rounded"] += number * (words[0] != "fma" and "rn" in words)
        if opcode.startswith("wgmma.mma_async"):
            sums["warpgroup_products"] += number
        if words[0] in ("bar", "barrier") and "warp" not in words:
            sums["barriers"] += number
    by_warp = [number for number in code.survey.by_warp if number]
    return {
        **sums,
        "lanes": threads / (32 * warps) if warps else 1.0,
        "busiest_warp": max(by_warp) * len(by_warp) / sum(by_warp) if by_warp else 1.0,
    }
