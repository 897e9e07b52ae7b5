"""One call on a GPU and its PTX  ->  what each cause costs.

The process that runs this may be lost to a kernel that hangs or loses the context: whatever is begun is
said before, so that whoever started it can go on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan, prod
from pathlib import Path
from statistics import median

from profkit.ablation import assemble, launches, survey, timeline, units
from profkit.ablation.accesses import Access, find_accesses
from profkit.ablation.change import ROOM, Ablation, Change, Code
from profkit.ablation.classes import list_ablations
from profkit.ablation.launches import Call, Loaded, Play
from profkit.ablation.ptx import Module, read_module
from profkit.ablation.readdress import TABLE
from profkit.errors import ProfkitError
from profkit.measure import bench
from profkit.measure.bench import Subject, Times
from profkit.measure.cuda import device, library
from profkit.measure.cuda.resources import LIMITS, blocks_that_fit
from profkit.records.ablation import LineGain, MeasuredAblation, Refusal, Shape

# Base and original run the same instructions: what they differ by more is not the kernel's.
REBUILT = 0.02
EXECUTED = 0.05  # by this share an opcode may be executed more or less often than beside the twin
# What choosing costs is in twin and ablation alike, but it hides what it overlaps with.
COSTLY = 1.5
WORTH = 1.05  # gains from here on are looked at line by line
_MOST_LINES = 8
WATCH = 20.0  # times the original's time that a rewritten kernel may take
_LEAST_WATCH = 2.0  # seconds: the first launch of a module loads it
_COLD_ROUNDS = 10, 10


@dataclass(frozen=True)
class Conditions:
    """How a call is measured."""

    gpu: device.Gpu
    tools: library.Support
    folder: Path  # where machine code is kept
    arch: str
    flags: tuple[str, ...]  # of ptxas
    rounds: tuple[int, int] = bench.ROUNDS
    refused: Mapping[str, str] = field(default_factory=dict)  # what lost a process, and how


@dataclass(frozen=True)
class Subjects:
    """What is timed beside: name -> how it is made again."""

    plays: Mapping[str, Play]


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


class Lab:
    """One call and its code, on the GPU that this process holds."""

    def __init__(self, call: Callable[[int], None], reset: Callable[[], None], on: Conditions) -> None:
        self.on, self.reset = on, reset
        self.call: Call = launches.read_call(call)
        self.stream = device.new_stream()
        self.seconds = self._time_roughly()
        self.loaded: dict[tuple[str, bytes], Loaded] = {}

    def _time_roughly(self) -> float:
        began = time.perf_counter()
        Play(self.call).enqueue(self.stream)
        device.synchronize(self.stream)
        return time.perf_counter() - began

    def load(self, module: Module, code: bytes, table: bytes = b"", table_name: str = TABLE) -> Loaded:
        """Machine code of the module's kernels, with its own table and the original's arrays."""
        names = [name for name in module.kernels if name in self.call.names]
        loaded = launches.load_code(code, names)
        for start in self.call.starts:
            if start.name in loaded.functions:
                launches.take_attributes(start, loaded)
                launches.copy_globals(start, loaded, module.variables)
        if table:
            launches.write_global(loaded.module, table_name, table)
        return loaded

    def run(self, play: Play) -> None:
        """Make a call once, on what the arrays held at first; ProfkitError if it does not end."""
        self.reset()
        device.synchronize()
        launches.run_once(play.enqueue, self.stream, max(_LEAST_WATCH, WATCH * self.seconds))
        device.synchronize()

    def count(self, module: Module, accesses: Sequence[Access], code: bytes, table: bytes) -> list[int]:
        """The counters of a counting copy after one call."""
        loaded = self.load(module, code, table)
        first = survey.first_counters(module, accesses)
        launches.write_global(loaded.module, survey.COUNTS, launches.pack_words(first))
        self.run(Play(self.call, loaded.functions))
        words = launches.read_words(loaded.module, survey.COUNTS, len(first))
        launches.unload_code(loaded)
        return words

    def draw_timeline(self, module: Module, code: bytes) -> timeline.Timeline | None:
        """When the blocks ran; None where more than one kernel or too many blocks did."""
        starts = self.call.starts
        if len(starts) != 1 or prod(starts[0].grid) > timeline.MOST_BLOCKS:
            return None
        size = 8 * timeline.FIELDS * prod(starts[0].grid)
        place = device.allocate(size)
        device.fill(place, 0, size)
        loaded = self.load(module, code, launches.pack_words([place]), timeline.PLACE)
        self.run(Play(self.call, loaded.functions))
        device.fill(place, 0, size)  # the first one loaded the module
        self.run(Play(self.call, loaded.functions))
        words = launches.read_memory(place, size // 8)
        launches.unload_code(loaded)
        device.free(place)
        return timeline.read_timeline(words, self.on.gpu.sms)


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
    kept = {name: kernel for name, kernel in module.kernels.items() if name in call.names}
    if not kept:
        return None
    return Module(module.text, kept, module.files, module.variables)


def _survey(lab: Lab, module: Module) -> tuple[Code, timeline.Timeline | None]:
    """Run the counting copy and that with the times of blocks, once each."""
    on, found = lab.on, find_accesses(module)
    counting, spans = survey.write_counting(module, found), timeline.write_timeline(module)
    # Counters take registers: not so many that a block no longer fits.
    threads = max(start.threads for start in lab.call.starts)
    most = min(255, (1 << 16) // max(32, -(-threads // 32) * 32) // 8 * 8)
    capped = (*_without_cap(on.flags), f"-maxrregcount={most}")
    made = assemble.assemble_all([counting, spans], on.arch, capped, on.folder)
    words = lab.count(module, found, _need(made[counting]), b"")
    seen = survey.read_counters(module, found, words)
    drawn = made[spans]
    blocks = lab.draw_timeline(module, drawn) if isinstance(drawn, bytes) else None
    code = Code(
        module=module,
        accesses=found,
        survey=seen,
        threads={start.name: prod(start.grid) * start.threads for start in lab.call.starts},
        l2=on.gpu.l2,
        room=device.allocate(ROOM),
        anchored=_find_anchored(found, seen),
    )
    device.fill(code.room, 0, ROOM)
    return code, blocks


def _without_cap(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("-maxrregcount")]


def _need(made: bytes | ProfkitError) -> bytes:
    if isinstance(made, ProfkitError):
        raise made
    return made


def _find_anchored(accesses: Sequence[Access], seen: survey.Survey) -> frozenset[int]:
    """Accesses of global memory whose first and last byte lie in one allocation."""
    anchored = set()
    for access in accesses:
        went = seen.seen[access.number]
        if access.space == "shared" or not went.requests:
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
    rewritten = {change.text: read_module(change.text) for change in changes.values()}
    rewritten = {text: _keep_launched(made, lab.call) or made for text, made in rewritten.items()}
    counting = {text: survey.write_counting(made, []) for text, made in rewritten.items()}
    made = assemble.assemble_all(
        [module.text, *rewritten, *counting.values()], on.arch, on.flags, on.folder
    )
    base = lab.load(module, _need(made[module.text]))
    plays = {"base": Play(lab.call, base.functions)}
    executed: dict[str, float] = {}
    refused = []
    for ablation, change in changes.items():
        machine, counter = made[change.text], made[counting[change.text]]
        if isinstance(machine, ProfkitError) or isinstance(counter, ProfkitError):
            words = str(machine if isinstance(machine, ProfkitError) else counter)
            refused.append(ablation.refuse("does-not-assemble", words, "PTX that ptxas takes", ""))
            continue
        say(ablation.id)
        here = rewritten[change.text]
        usual = lab.count(here, [], counter, change.twin)
        without = lab.count(here, [], counter, change.table)
        blocks = survey.count_blocks(here)
        difference = survey.largest_difference(here, usual[:blocks], without[:blocks])
        executed[ablation.id] = difference
        if difference > EXECUTED:
            refused.append(
                ablation.refuse(
                    "other-work",
                    f"an opcode was executed {difference:.0%} more or less often",
                    f"{EXECUTED:.0%}",
                    "the kernel's work follows from its data: nothing can be taken away alone",
                )
            )
            continue
        twin = lab.load(here, machine, change.twin)
        gone = lab.load(here, machine, change.table)
        smem = _pin_occupancy(lab, base, twin)
        if smem is None:
            refused.append(
                ablation.refuse(
                    "occupancy",
                    "fewer blocks fit on an SM with the instructions that choose",
                    "as many as of the original",
                    "-maxrregcount, or a kernel with a few registers left",
                )
            )
            continue
        pair = {"twin": twin, "gone": gone}
        for which, loaded in pair.items():
            play = Play(lab.call, loaded.functions, smem)
            lab.run(play)
            plays[f"{which}:{ablation.id}"] = play
    return plays, executed, refused


def _pin_occupancy(lab: Lab, base: Loaded, other: Loaded) -> dict[str, int] | None:
    """Dynamic shared memory with which as many blocks fit as of the base; None if fewer do."""
    pinned = {}
    for start in lab.call.starts:
        if start.name not in other.functions:
            continue
        wanted = launches.count_blocks(base.functions[start.name], start.threads, start.smem)
        function = other.functions[start.name]
        if launches.count_blocks(function, start.threads, start.smem) < wanted:
            return None
        size = _find_shared(function, start.threads, start.smem, wanted)
        if size != start.smem:
            pinned[start.name] = size
    return pinned


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
        twin, gone = times.get(f"twin:{ablation.id}"), times.get(f"gone:{ablation.id}")
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
        machine = _need(assemble.assemble_all([change.text], on.arch, on.flags, on.folder)[change.text])
        module = _keep_launched(read_module(change.text), lab.call) or code.module
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
    threads, warps = sum(code.survey.executed.values()), sum(code.survey.issued.values())
    steering = sum(a.steers and code.has_executed(a) for a in code.accesses if a.space != "shared")
    loads = stores = 0
    for access in code.accesses:
        seen = code.survey.seen[access.number]
        if access.space != "shared" and access.kind == "store":
            stores += seen.threads * access.width
        elif access.space != "shared":
            loads += seen.threads * access.width
    shared = sum(a.steers and code.has_executed(a) for a in code.accesses if a.space == "shared")
    return {
        "lanes": threads / (32 * warps) if warps else 1.0,
        "steering_loads": steering,
        "steering_shared": shared,
        "loaded_bytes": loads,
        "stored_bytes": stores,
    }
