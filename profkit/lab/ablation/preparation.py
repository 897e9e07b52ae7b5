"""A call and its code  ->  everything that is timed of it: the base, each change and its control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from profkit.errors import ProfkitError
from profkit.lab.ablation import assemble, footprint, launches, survey, timeline
from profkit.lab.ablation.accesses import PtxAccess, find_accesses
from profkit.lab.ablation.change import ROOM, Ablation, CodeChange, Refused, SurveyedCode
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.lab import AblationLab
from profkit.lab.ablation.launches import KernelLaunch, LoadedCode, Replay
from profkit.lab.ablation.ptx import PtxModule, cut_other_entries, read_module
from profkit.lab.measure.cuda import device, library
from profkit.records.ablation import Refusal

# By this share an opcode may be executed more or less often than beside the control.
EXECUTED = 0.05
_STEP = 1024  # bytes of shared memory between two tries
_REGISTERS = 1 << 16  # of an SM
Say = Callable[[str], None]


@dataclass
class PreparedChanges:
    """What is timed, and what is known of it before."""

    replays: dict[str, Replay] = field(default_factory=dict)
    changes: dict[Ablation, CodeChange] = field(default_factory=dict)
    executed: dict[str, float] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


def run_survey(
    lab: AblationLab, module: PtxModule
) -> tuple[SurveyedCode, timeline.BlockTimeline | None]:
    """Run the counting copy and that with the times of blocks, once each."""
    on, found = lab.on, find_accesses(module)
    flags = _list_register_cap_flags(lab)
    counting, spans = (
        survey.write_counting_module(module, found),
        timeline.write_module_recording_times(module),
    )
    made = assemble.assemble_all([counting, spans], on.arch, flags, on.folder)
    counter, drawn = made[counting], made[spans]
    if isinstance(counter, ProfkitError):
        raise counter
    seen = survey.read_counters(module, found, lab.count_accesses(module, found, counter, b""))
    blocks = None
    if isinstance(drawn, bytes):
        blocks = lab.record_timeline(module, drawn)
    return _describe_code(lab, module, found, seen), blocks


def _describe_code(
    lab: AblationLab, module: PtxModule, found: list[PtxAccess], seen: survey.Survey
) -> SurveyedCode:
    """Say what ablations are made of: the code, what it did, and memory that is nobody's."""
    on, launched = lab.on, lab.call.kernel_launches
    room = device.allocate_memory(ROOM)
    device.fill_memory(room, 0, ROOM)
    return SurveyedCode(
        module=module,
        accesses=found,
        survey=seen,
        threads={launch.name: launch.blocks * launch.threads for launch in launched},
        grids={launch.name: launch.blocks for launch in launched},
        l2=on.gpu.l2,
        room=room,
        local_bytes=max(
            library.read_kernel_attribute(s.function, launches.LOCAL) for s in launched
        ),
        capped=list(on.flags) != _drop_register_cap(on.flags),
        fast=cut_other_entries(on.fast, lab.call.names),
        anchored=_find_accesses_in_one_allocation(found, seen),
    )


def _list_register_cap_flags(lab: AblationLab) -> list[str]:
    """Flags with which a block fits on an SM, although counters take registers."""
    threads = max(launch.threads for launch in lab.call.kernel_launches)
    whole_warps = -(-threads // 32) * 32
    most = min(255, _REGISTERS // whole_warps // 8 * 8)
    return [*_drop_register_cap(lab.on.flags), f"-maxrregcount={most}"]


def _drop_register_cap(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("-maxrregcount")]


def _find_accesses_in_one_allocation(
    accesses: Sequence[PtxAccess], seen: survey.Survey
) -> frozenset[int]:
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


def prepare_changes(lab: AblationLab, code: SurveyedCode, say: Say) -> PreparedChanges:
    prepared = PreparedChanges()
    for ablation in list_ablations():
        try:
            _refuse_if_lost_before(lab, ablation)
            prepared.changes[ablation] = ablation.make(code)
        except Refused as why:
            prepared.refused.append(ablation.make_refusal(why))
    base = lab.load_module(code.module, lab.assemble_text(code.module.text))
    prepared.replays["base"] = Replay(lab.call, base.functions)
    _assemble_in_parallel(lab, prepared.changes.values())
    for ablation in prepared.changes:
        say(ablation.id)
        try:
            _prepare_change(lab, code, ablation, base, prepared)
        except Refused as why:
            prepared.refused.append(ablation.make_refusal(why))
    return prepared


def _refuse_if_lost_before(lab: AblationLab, ablation: Ablation) -> None:
    """Refuse what an earlier process was lost to."""
    seen = lab.on.refused.get(ablation.id)
    if seen:
        remedy = "compute-sanitizer says where, of the original too"
        raise Refused("lost", seen, "a process that ends", remedy)


def _assemble_in_parallel(lab: AblationLab, changes: Iterable[CodeChange]) -> None:
    """Assemble side by side what is asked for one after the other."""
    texts = []
    for change in changes:
        if not change.other_code:
            module = lab.limit_registers(change.text)
            texts += [module.text, survey.write_counting_module(module, [])]
    assemble.assemble_all(texts, lab.on.arch, lab.on.flags, lab.on.folder)


def _prepare_change(
    lab: AblationLab,
    code: SurveyedCode,
    ablation: Ablation,
    base: LoadedCode,
    prepared: PreparedChanges,
) -> None:
    change = prepared.changes[ablation]
    if change.other_code:
        _prepare_other_code(lab, code, ablation, prepared)
        return
    module = lab.limit_registers(change.text)
    prepared.executed[ablation.id] = _measure_execution_difference(lab, module, change)
    for which, table in (("control", change.control), ("gone", change.table)):
        replay = _load_with_same_occupancy(lab, module, table, base)
        lab.run_call(replay)
        prepared.replays[f"{which}:{ablation.id}"] = replay


def _prepare_other_code(
    lab: AblationLab, code: SurveyedCode, ablation: Ablation, prepared: PreparedChanges
) -> None:
    change = prepared.changes[ablation]
    if change.uncapped:
        module, flags = read_module(change.text), _drop_register_cap(lab.on.flags)
    else:
        module, flags = lab.limit_registers(change.text), list(lab.on.flags)
    axis = None
    if change.part > 1:
        axis = _choose_axis(lab, code, module, change)
        difference = _measure_error_of_fewer_blocks(lab, code, module, change.part, axis)
    else:
        difference = _measure_comparable_difference(lab, code, module)
    prepared.executed[ablation.id] = difference
    replay = _load_with_original_occupancy(lab, module, flags)
    replay = replace(replay, part=change.part, axis=axis)
    lab.run_call(replay)
    prepared.replays[f"gone:{ablation.id}"] = replay


def _assemble_or_refuse(lab: AblationLab, text: str, flags: Sequence[str] | None = None) -> bytes:
    try:
        return lab.assemble_text(text, flags)
    except ProfkitError as error:
        said = f"{error.message}: {error.hint}"
        remedy = "build it with the toolkit that is here: its PTX may be of a newer one"
        raise Refused("does-not-assemble", said, "PTX that ptxas takes", remedy) from error


def _measure_execution_difference(lab: AblationLab, module: PtxModule, change: CodeChange) -> float:
    """How much more or less often an opcode is executed with the cause gone, at most."""
    counter = _assemble_or_refuse(lab, survey.write_counting_module(module, []))
    executed = []
    for table in (change.control, change.table):
        words = lab.count_accesses(module, [], counter, table)
        executed.append(survey.count_executed(module, words))
    return _measure_or_refuse_difference(*executed)


def _measure_comparable_difference(
    lab: AblationLab, code: SurveyedCode, module: PtxModule
) -> float:
    """The same of other code: of its accesses, barriers and products only."""
    counter = _assemble_or_refuse(
        lab, survey.write_counting_module(module, []), _list_register_cap_flags(lab)
    )
    words = lab.count_accesses(module, [], counter, b"")
    executed = survey.count_executed(module, words)
    before = survey.keep_comparable_instructions(code.survey.executed)
    return _measure_or_refuse_difference(before, survey.keep_comparable_instructions(executed))


def _choose_axis(
    lab: AblationLab, code: SurveyedCode, module: PtxModule, change: CodeChange
) -> int:
    """The axis along which a part of the blocks touches as many sectors as all of the original's."""
    flags = _list_register_cap_flags(lab)
    marked = _assemble_or_refuse(
        lab, footprint.write_marking_module(code.module, change.regions), flags
    )
    before = lab.count_touched_sectors(code.module, change.regions, marked, part=1, axis=None)
    regions = footprint.replace_accesses_of_regions(change.regions, module)
    marked = _assemble_or_refuse(lab, footprint.write_marking_module(module, regions), flags)
    most = 0.0
    for axis in launches.rank_axes(lab.call.kernel_launches[0].grid):
        if min(launch.grid[axis] for launch in lab.call.kernel_launches) < change.part:
            continue
        touched = lab.count_touched_sectors(module, regions, marked, change.part, axis)
        most = max(most, touched / max(1, before))
        if most >= 1 - EXECUTED:
            return axis
    raise Refused(
        "other-work",
        f"one of {change.part} blocks, each access wider, touches {100 * most:.0f} % of the memory",
        f"{100 - 100 * EXECUTED:.0f} %: with less of it, what missed before would hit",
        "write and time a wide version",
    )


def _measure_error_of_fewer_blocks(
    lab: AblationLab, code: SurveyedCode, module: PtxModule, part: int, axis: int
) -> float:
    """How far one of so many blocks is from making that part of the accesses of all."""
    counter = _assemble_or_refuse(
        lab, survey.write_counting_module(module, []), _list_register_cap_flags(lab)
    )
    words = lab.count_accesses(module, [], counter, b"", part, axis)
    executed = survey.count_accesses(survey.count_executed(module, words))
    times = Counter({kind: part * number for kind, number in executed.items()})
    return _measure_or_refuse_difference(survey.count_accesses(code.survey.executed), times)


def _measure_or_refuse_difference(counted: Counter[str], again: Counter[str]) -> float:
    difference = survey.compute_largest_difference(counted, again)
    if difference > EXECUTED:
        raise Refused(
            "other-work",
            f"an opcode was executed {100 * difference:.0f} % more or less often",
            f"{100 * EXECUTED:.0f} %",
            "the kernel's work follows from its data: no cause can be removed separately",
        )
    return difference


def _load_with_same_occupancy(
    lab: AblationLab, module: PtxModule, table: bytes, base: LoadedCode
) -> Replay:
    """Rewritten code of which as many blocks fit on an SM as of the base."""
    loaded = lab.load_module(module, _assemble_or_refuse(lab, module.text), table)
    wanted = {}
    for launch in lab.call.kernel_launches:
        if launch.name in loaded.functions:
            wanted[launch.name] = launch.count_blocks(base.functions[launch.name])
            fitting = launch.count_blocks(loaded.functions[launch.name])
            _refuse_fewer_blocks(fitting, wanted[launch.name])
    return _replay_with_limited_occupancy(lab, loaded, wanted)


def _refuse_fewer_blocks(fitting: int, blocks: int) -> None:
    if fitting < blocks:
        raise Refused(
            "occupancy",
            f"{fitting} blocks fit on an SM with the instructions that choose",
            f"{blocks}, as of the original",
            "give the kernel a few more registers: use fewer threads per block, or no register limit",
        )


def _load_with_original_occupancy(
    lab: AblationLab, module: PtxModule, flags: Sequence[str]
) -> Replay:
    """Other code that does the same, with no more blocks on an SM than the original has."""
    loaded = lab.load_module(module, _assemble_or_refuse(lab, module.text, flags))
    wanted = {}
    for launch in lab.call.kernel_launches:
        wanted[launch.name] = launch.count_blocks()
    return _replay_with_limited_occupancy(lab, loaded, wanted)


def _replay_with_limited_occupancy(
    lab: AblationLab, loaded: LoadedCode, wanted: dict[str, int]
) -> Replay:
    """With shared memory that nobody uses, where more blocks than wanted would fit."""
    smem = {}
    for launch in lab.call.kernel_launches:
        if launch.name in loaded.functions:
            function = loaded.functions[launch.name]
            smem[launch.name] = _find_limiting_shared_size(launch, function, wanted[launch.name])
    return Replay(lab.call, loaded.functions, smem)


def _find_limiting_shared_size(launch: KernelLaunch, function: int, blocks: int) -> int:
    """The least dynamic shared memory, its own at least, with which no more than `blocks` fit."""
    size = launch.smem
    while launch.count_blocks(function, size) > blocks:
        size += _STEP
        launches.allow_dynamic_shared(function, size)
    return size


def make_low_occupancy_replays(lab: AblationLab) -> dict[str, Replay]:
    """What launch alone can change: occupancy cut by unused shared memory."""
    replays = {}
    smem = {}
    for launch in lab.call.kernel_launches:
        filled = min(launch.count_blocks(), -(-launch.blocks // lab.on.gpu.sms))
        if filled >= 2:
            smem.update(_find_shared_for_occupancy(launch, filled // 2))
    if smem:
        replays["half-occupancy"] = Replay(lab.call, smem=smem)
    return replays


def _find_shared_for_occupancy(launch: KernelLaunch, blocks: int) -> dict[str, int]:
    """Dynamic shared memory with which this many blocks fit; empty where the GPU forbids it."""
    try:
        return {launch.name: _find_limiting_shared_size(launch, launch.function, blocks)}
    except device.CudaError:
        launches.allow_dynamic_shared(launch.function, launch.smem)
        return {}
