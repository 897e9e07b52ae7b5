"""A call and its code  ->  everything that is timed of it: the base, each change and its control."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from profkit.ablation import assemble, launches, survey, timeline
from profkit.ablation.accesses import Access, find_accesses
from profkit.ablation.change import ROOM, Ablation, Change, Code
from profkit.ablation.classes import list_ablations
from profkit.ablation.lab import Lab
from profkit.ablation.launches import Call, Loaded, Play, Start
from profkit.ablation.ptx import Changes, Module, read_module
from profkit.errors import ProfkitError
from profkit.measure.cuda import device
from profkit.records.ablation import Refusal

EXECUTED = (
    0.05  # by this share an opcode may be executed more or less often than beside the control
)
_STEP = 1024  # bytes of shared memory between two tries
_REGISTERS = 1 << 16  # of an SM
Say = Callable[[str], None]


class Refused(Exception):
    """What is not to be believed of one change, and why."""

    def __init__(self, code: str, observed: str, threshold: str, remedy: str = "") -> None:
        super().__init__(observed)
        self.code, self.observed, self.threshold, self.remedy = code, observed, threshold, remedy


@dataclass
class Prepared:
    """What is timed, and what is known of it before."""

    plays: dict[str, Play] = field(default_factory=dict)
    changes: dict[Ablation, Change] = field(default_factory=dict)
    executed: dict[str, float] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


def keep_launched(module: Module, call: Call) -> Module | None:
    """The module with those kernels only that the call launches; None if there is none."""
    kept = {}
    for name, kernel in module.kernels.items():
        if name in call.names or not kernel.is_entry:
            kept[name] = kernel
    if call.names.isdisjoint(kept):
        return None
    return replace(module, kernels=kept)


def survey_call(lab: Lab, module: Module) -> tuple[Code, timeline.Timeline | None]:
    """Run the counting copy and that with the times of blocks, once each."""
    on, found = lab.on, find_accesses(module)
    counting, spans = survey.write_counting(module, found), timeline.write_timeline(module)
    flags = _cap_registers(lab)
    made = assemble.assemble_all([counting, spans], on.arch, flags, on.folder)
    counter, drawn = made[counting], made[spans]
    if isinstance(counter, ProfkitError):
        raise counter
    seen = survey.read_counters(module, found, lab.count(module, found, counter, b""))
    blocks = lab.draw_timeline(module, drawn) if isinstance(drawn, bytes) else None
    room = device.allocate(ROOM)
    device.fill(room, 0, ROOM)
    code = Code(
        module=module,
        accesses=found,
        survey=seen,
        threads={start.name: prod(start.grid) * start.threads for start in lab.call.starts},
        grids={start.name: prod(start.grid) for start in lab.call.starts},
        l2=on.gpu.l2,
        room=room,
        local_bytes=max(launches.count_local(start.function) for start in lab.call.starts),
        capped=list(on.flags) != _without_cap(on.flags),
        anchored=_find_anchored(found, seen),
    )
    return code, blocks


def _cap_registers(lab: Lab) -> list[str]:
    """Flags with which a block fits on an SM, although counters take registers."""
    threads = max(start.threads for start in lab.call.starts)
    whole_warps = -(-threads // 32) * 32
    most = min(255, _REGISTERS // whole_warps // 8 * 8)
    return [*_without_cap(lab.on.flags), f"-maxrregcount={most}"]


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


def prepare_changes(lab: Lab, code: Code, say: Say) -> Prepared:
    prepared = Prepared()
    for ablation in list_ablations():
        if why := lab.on.refused.get(ablation.id):
            remedy = "compute-sanitizer says where, of the original too"
            refusal = ablation.refuse("lost", why, "one that ends", remedy)
            prepared.refused.append(refusal)
            continue
        made = ablation.make(code)
        if isinstance(made, Refusal):
            prepared.refused.append(made)
        else:
            prepared.changes[ablation] = made
    base = lab.load(code.module, lab.assemble(code.module.text))
    prepared.plays["base"] = Play(lab.call, base.functions)
    _assemble_ahead(lab, prepared.changes.values())
    for ablation, change in prepared.changes.items():
        say(ablation.id)
        try:
            _prepare_change(lab, ablation, change, base, prepared)
        except Refused as why:
            refusal = ablation.refuse(why.code, why.observed, why.threshold, why.remedy)
            prepared.refused.append(refusal)
    return prepared


def _assemble_ahead(lab: Lab, changes: Iterable[Change]) -> None:
    """Assemble side by side what is asked for one after the other."""
    texts = []
    for change in changes:
        if not change.other_code:
            module = pin_registers(lab, change.text)
            texts += [module.text, survey.write_counting(module, [])]
    assemble.assemble_all(texts, lab.on.arch, lab.on.flags, lab.on.folder)


def _prepare_change(
    lab: Lab, ablation: Ablation, change: Change, base: Loaded, prepared: Prepared
) -> None:
    if change.other_code:
        prepared.plays[f"gone:{ablation.id}"] = _load_other(lab, change)
        return
    module = pin_registers(lab, change.text)
    prepared.executed[ablation.id] = _count_difference(lab, module, change)
    for which, table in (("control", change.control), ("gone", change.table)):
        play = _load_pinned(lab, module, table, base)
        lab.run(play)
        prepared.plays[f"{which}:{ablation.id}"] = play


def _assemble(lab: Lab, text: str, flags: Sequence[str] | None = None) -> bytes:
    try:
        return lab.assemble(text, flags)
    except ProfkitError as error:
        said = f"{error.message}: {error.hint}"
        raise Refused("does-not-assemble", said, "PTX that ptxas takes") from error


def pin_registers(lab: Lab, text: str) -> Module:
    """The rewritten code, held to as many registers as let the original's blocks fit."""
    module = read_module(text)
    changes = Changes(module)
    for start in lab.call.starts:
        if start.name in module.kernels:
            blocks = launches.count_blocks(start.function, start.threads, start.smem)
            changes.pin_blocks(module.kernels[start.name], start.threads, max(1, blocks))
    pinned = read_module(changes.write())
    return keep_launched(pinned, lab.call) or pinned


def _count_difference(lab: Lab, module: Module, change: Change) -> float:
    """How much more or less often an opcode is executed with the cause gone, at most."""
    counter = _assemble(lab, survey.write_counting(module, []))
    usual = lab.count(module, [], counter, change.control)
    without = lab.count(module, [], counter, change.table)
    blocks = survey.count_basic_blocks(module)
    difference = survey.largest_difference(module, usual[:blocks], without[:blocks])
    if difference > EXECUTED:
        raise Refused(
            "other-work",
            f"an opcode was executed {difference:.0%} more or less often",
            f"{EXECUTED:.0%}",
            "the kernel's work follows from its data: nothing can be taken away alone",
        )
    return difference


def _load_pinned(lab: Lab, module: Module, table: bytes, base: Loaded) -> Play:
    """Rewritten code of which as many blocks fit on an SM as of the base."""
    loaded = lab.load(module, _assemble(lab, module.text), table)
    wanted = {}
    for start in lab.call.starts:
        if start.name not in loaded.functions:
            continue
        blocks = launches.count_blocks(base.functions[start.name], start.threads, start.smem)
        function = loaded.functions[start.name]
        fitting = launches.count_blocks(function, start.threads, start.smem)
        if fitting < blocks:
            raise Refused(
                "occupancy",
                f"{fitting} blocks fit on an SM with the instructions that choose",
                f"{blocks}, as of the original",
                "give the kernel a few registers more: fewer threads a block, or no limit of them",
            )
        wanted[start.name] = blocks
    return _hold_occupancy(lab, loaded, wanted)


def _load_other(lab: Lab, change: Change) -> Play:
    """Other code that does the same, with no more blocks on an SM than the original has."""
    module = read_module(change.text)
    module = keep_launched(module, lab.call) or module
    loaded = lab.load(module, _assemble(lab, change.text, _without_cap(lab.on.flags)))
    wanted = {}
    for start in lab.call.starts:
        wanted[start.name] = launches.count_blocks(start.function, start.threads, start.smem)
    play = _hold_occupancy(lab, loaded, wanted)
    lab.run(play)
    return play


def _hold_occupancy(lab: Lab, loaded: Loaded, wanted: Mapping[str, int]) -> Play:
    """With shared memory that nobody uses, where more blocks than wanted would fit."""
    smem = {}
    for start in lab.call.starts:
        if start.name in loaded.functions:
            function = loaded.functions[start.name]
            size = _find_shared(function, start.threads, start.smem, wanted[start.name])
            if size != start.smem:
                smem[start.name] = size
    return Play(lab.call, loaded.functions, smem)


def _find_shared(function: int, threads: int, smem: int, blocks: int) -> int:
    """The least dynamic shared memory from `smem` on with which no more than `blocks` fit."""
    size = smem
    while launches.count_blocks(function, threads, size) > blocks:
        size += _STEP
        launches.allow_shared(function, size)
    return size


def vary_launch(lab: Lab) -> dict[str, Play]:
    """What launch alone can change: occupancy cut by unused shared memory, half the blocks."""
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


def _cut_occupancy(start: Start, blocks: int) -> int | None:
    """Dynamic shared memory with which this many blocks fit; None where the GPU forbids it."""
    try:
        return _find_shared(start.function, start.threads, start.smem, blocks)
    except device.CudaError:
        launches.allow_shared(start.function, start.smem)
        return None
