"""A call and its code  ->  everything that is timed of it: the base, each change and its control."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.lab.ablation import assemble, footprint, launches, survey, timeline
from profkit.lab.ablation.accesses import PtxAccess, find_memory_accesses
from profkit.lab.ablation.change import ROOM, Ablation, CodeChange, Refused, SurveyedCode
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.footprint import Region
from profkit.lab.ablation.lab import AblationLab
from profkit.lab.ablation.launches import WHOLE, KernelLaunch, LoadedCode, Replay, Shape
from profkit.lab.ablation.ptx import PtxModule, keep_only_named_entries, parse_ptx_module
from profkit.lab.measure.cuda import device, library
from profkit.records.ablation import Refusal

if TYPE_CHECKING:
    from profkit.units import (
        AblationName,
        ByteCount,
        CudaFunction,
        MachineCode,
        Opcode,
        PtxText,
        Share,
    )


# By this share an opcode may be executed more or less often than beside the control.
EXECUTED = 0.05
_STEP = 1024  # bytes of shared memory between two tries
_REGISTERS = 1 << 16  # of an SM
_SANITIZE = "compute-sanitizer says where, of the original too"
Say = Callable[[str], None]


@dataclass
class PreparedChanges:
    """What is timed, and what is known of it before."""

    replays: dict[str, Replay] = field(default_factory=dict)
    changes: dict[type[Ablation], CodeChange] = field(default_factory=dict)
    executed: dict[str, float] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)


def run_counting_copies_once(
    lab: AblationLab, module: PtxModule
) -> tuple[SurveyedCode, timeline.BlockTimeline | None]:
    """Run the counting copy and that with the times of blocks, once each."""
    on = lab.on
    found = find_memory_accesses(module)
    counting = survey.write_counting_module(module, found)
    spans = timeline.write_module_recording_times(module)
    made = assemble.assemble_all_ptx_in_parallel(
        [counting, spans], on.arch, _list_register_cap_flags(lab), on.folder
    )
    counter = made[counting]
    drawn = made[spans]
    if isinstance(counter, ProfkitError):
        raise counter
    seen = survey.parse_survey_counters(
        module, found, lab.run_counting_copy(module, found, counter, b"")
    )
    blocks = None
    if isinstance(drawn, bytes):
        blocks = lab.record_block_timeline(module, drawn)
    return _make_surveyed_code(lab, module, found, seen), blocks


def _make_surveyed_code(
    lab: AblationLab, module: PtxModule, found: list[PtxAccess], seen: survey.Survey
) -> SurveyedCode:
    """Say what ablations are made of: the code, what it did, and memory that is nobody's."""
    on = lab.on
    launched = lab.call.kernel_launches
    room = device.allocate_device_memory(ROOM)
    device.fill_device_memory(room, 0, ROOM)
    return SurveyedCode(
        module=module,
        accesses=found,
        survey=seen,
        threads={launch.name: launch.blocks * launch.threads for launch in launched},
        grids={launch.name: launch.grid for launch in launched},
        l2=on.gpu.l2,
        room=room,
        local_bytes=_get_most_local_bytes(launched),
        capped=list(on.flags) != _drop_register_cap(on.flags),
        fast=keep_only_named_entries(on.fast, lab.call.names),
        anchored=_find_accesses_within_one_allocation(found, seen),
        dynamic_shared=max(launch.smem for launch in launched),
        blocks_at_once=on.gpu.sms * max(launch.count_blocks() for launch in launched),
    )


def _get_most_local_bytes(launched: Sequence[KernelLaunch]) -> ByteCount:
    """Return the bytes of stack and spills of the kernel whose threads have most."""
    sizes = []
    for step in launched:
        sizes.append(library.read_kernel_attribute(step.function, launches.LOCAL))
    return max(sizes)


def _find_accesses_within_one_allocation(
    found: Sequence[PtxAccess], seen: survey.Survey
) -> frozenset[int]:
    """Return accesses of global memory whose first and last byte lie in one allocation."""
    anchored = set()
    for access in found:
        went = seen.seen[access.number]
        owner = access.in_global and went.requests and launches.find_allocation_span(went.lowest)
        if owner and went.highest <= owner[0] + owner[1]:
            anchored.add(access.number)
    return frozenset(anchored)


def _list_register_cap_flags(lab: AblationLab) -> list[str]:
    """Return flags with which a block fits on an SM, although counters take registers."""
    threads = max(launch.threads for launch in lab.call.kernel_launches)
    most = min(255, _REGISTERS // (-(-threads // 32) * 32) // 8 * 8)
    return [*_drop_register_cap(lab.on.flags), f"-maxrregcount={most}"]


def _drop_register_cap(flags: Sequence[str]) -> list[str]:
    return [flag for flag in flags if not flag.startswith("-maxrregcount")]


def prepare_changes(lab: AblationLab, code: SurveyedCode, say: Say) -> PreparedChanges:
    """Make all changes, assemble them side by side, and load those that can be timed."""
    prepared = PreparedChanges()
    texts = _make_changes_or_refusals(lab, code, prepared)
    base = lab.load_module(code.module, lab.assemble_text(code.module.text))
    prepared.replays["base"] = Replay(lab.call, base.functions)
    # What is asked for one after the other below is assembled side by side.
    assemble.assemble_all_ptx_in_parallel(texts, lab.on.arch, lab.on.flags, lab.on.folder)
    for ablation, change in prepared.changes.items():
        say(ablation.id)
        try:
            if change.other_code:
                _load_code_for_same_work(lab, code, ablation.id, change, prepared)
            else:
                _load_control_and_changed(lab, ablation.id, change, base, prepared)
        except (Refused, device.CudaError) as error:
            prepared.refused.append(_refuse_launch(error).make_refusal(ablation.id))
    return prepared


def _make_changes_or_refusals(
    lab: AblationLab, code: SurveyedCode, prepared: PreparedChanges
) -> list[PtxText]:
    """Note in `prepared` each ablation's change, or why there is none; return the texts to assemble."""
    texts: list[PtxText] = []
    for ablation in list_ablations():
        try:
            lost = lab.on.refused.get(ablation.id)  # what an earlier process was lost to
            if lost:
                raise Refused("lost", lost, "a process that ends", _SANITIZE)
            change = prepared.changes[ablation] = ablation(code).make_change()
        except Refused as why:
            prepared.refused.append(why.make_refusal(ablation.id))
            continue
        if not change.other_code:
            module = lab.limit_registers(change.text)
            texts += [module.text, survey.write_counting_module(module, [])]
    return texts


def _refuse_launch(error: Refused | device.CudaError) -> Refused:
    """Return why a change is left out; what the driver does not launch has too much of something."""
    if isinstance(error, Refused):
        return error
    if error.code in device.STICKY:
        raise error
    remedy = "use less shared memory, fewer registers or fewer threads per block"
    return Refused("does-not-launch", error.message, "a launch that the driver takes", remedy)


def _load_control_and_changed(
    lab: AblationLab,
    name: AblationName,
    change: CodeChange,
    base: LoadedCode,
    prepared: PreparedChanges,
) -> None:
    """Load one machine code with both tables, if it executes the same with them."""
    module = lab.limit_registers(change.text)
    flags = lab.on.flags
    with_control = _count_executed_instructions(lab, module, flags, change.control)
    without = _count_executed_instructions(lab, module, flags, change.table)
    prepared.executed[name] = _get_difference_or_refuse(with_control, without)
    for which, table in (("control", change.control), ("gone", change.table)):
        replay = _load_within_occupancy(lab, module, flags, table, base)
        lab.run_on_initial_arrays(replay)
        prepared.replays[f"{which}:{name}"] = replay


def _load_code_for_same_work(
    lab: AblationLab,
    code: SurveyedCode,
    name: AblationName,
    change: CodeChange,
    prepared: PreparedChanges,
) -> None:
    """Load other code for the same work, which is held against the original."""
    module = lab.limit_registers(change.text)
    flags = list(lab.on.flags)
    if change.uncapped:
        module = parse_ptx_module(change.text)
        flags = _drop_register_cap(flags)
    shape = Shape(change.part, change.axis, change.more_shared)
    if change.regions:
        shape = Shape(change.part, _choose_grid_axis_to_shrink(lab, code, module, change))
    before = code.survey.executed
    capped = _list_register_cap_flags(lab)
    executed = _count_executed_instructions(lab, module, capped, shape=shape)
    if change.regions:  # one of so many blocks makes that part of the accesses of all
        before = survey.count_global_loads_and_stores(before)
        executed = survey.count_global_loads_and_stores(executed)
        for kind in executed:
            executed[kind] *= change.part
    else:
        before = survey.keep_comparable_instructions(before, change.part)
        executed = survey.keep_comparable_instructions(executed, change.part)
    prepared.executed[name] = _get_difference_or_refuse(before, executed)
    replay = _load_within_occupancy(lab, module, flags, shape=shape)
    lab.run_on_initial_arrays(replay)
    prepared.replays[f"gone:{name}"] = replay


def _assemble_or_refuse(lab: AblationLab, text: PtxText, flags: Sequence[str]) -> MachineCode:
    try:
        return lab.assemble_text(text, flags)
    except ProfkitError as error:
        said = f"{error.message}: {error.hint}"
        remedy = "build it with the toolkit that is here: its PTX may be of a newer one"
        raise Refused("does-not-assemble", said, "PTX that ptxas takes", remedy) from error


def _count_executed_instructions(
    lab: AblationLab,
    module: PtxModule,
    flags: Sequence[str],
    table_bytes: bytes = b"",
    shape: Shape = WHOLE,
) -> Counter[Opcode]:
    """Return instructions that rewritten code executes in a call, or in one of so many blocks of it."""
    counter = _assemble_or_refuse(lab, survey.write_counting_module(module, []), flags)
    words = lab.run_counting_copy(module, [], counter, table_bytes, shape)
    return survey.count_executed_by_opcode(module, words)


def _choose_grid_axis_to_shrink(
    lab: AblationLab, code: SurveyedCode, changed_module: PtxModule, change: CodeChange
) -> int:
    """Return the axis along which a part of the blocks touches as many sectors as all blocks do."""
    flags = _list_register_cap_flags(lab)

    def count_touched(of: PtxModule, regions: Sequence[Region], shape: Shape) -> int:
        marked = _assemble_or_refuse(lab, footprint.write_marking_module(of, regions), flags)
        return lab.count_touched_sectors(of, regions, marked, shape)

    before = count_touched(code.module, change.regions, WHOLE)
    regions = footprint.replace_accesses_of_regions(change.regions, changed_module)
    most = 0.0
    for axis in launches.rank_axes_longest_first(lab.call.kernel_launches[0].grid):
        if min(launch.grid[axis] for launch in lab.call.kernel_launches) < change.part:
            continue
        touched = count_touched(changed_module, regions, Shape(change.part, axis))
        most = max(most, touched / max(1, before))
        if most >= 1 - EXECUTED:
            return axis
    raise Refused(
        "other-work",
        f"one of {change.part} blocks, each access wider, touches {100 * most:.0f} % of the memory",
        f"{100 - 100 * EXECUTED:.0f} %: with less of it, what missed before would hit",
        "write and time a wide version",
    )


def _get_difference_or_refuse(counted: Counter[Opcode], again: Counter[Opcode]) -> Share:
    """Return how much more or less often an opcode is executed with the cause gone, at most."""
    difference = survey.compute_largest_difference(counted, again)
    if difference > EXECUTED:
        raise Refused(
            "other-work",
            f"an opcode was executed {100 * difference:.0f} % more or less often",
            f"{100 * EXECUTED:.0f} %",
            "the kernel's work follows from its data: no cause can be removed separately",
        )
    return difference


def _load_within_occupancy(
    lab: AblationLab,
    module: PtxModule,
    flags: Sequence[str],
    table_bytes: bytes = b"",
    base: LoadedCode | None = None,
    shape: Shape = WHOLE,
) -> Replay:
    """Return code of which no more blocks fit on an SM than of the original.

    Of the `base` as many, if given.
    Shared memory that nobody uses holds them down.
    """
    loaded = lab.load_module(module, _assemble_or_refuse(lab, module.text, flags), table_bytes)
    smem = {}
    for launch in lab.call.kernel_launches:
        if launch.name not in loaded.functions:
            continue
        function = loaded.functions[launch.name]
        wanted = launch.count_blocks(base.functions[launch.name] if base else 0)
        fitting = launch.count_blocks(function)
        if base and fitting < wanted:
            raise Refused(
                "occupancy",
                f"{fitting} blocks fit on an SM with the instructions that choose",
                f"{wanted}, as of the original",
                "give the kernel a few more registers: use fewer threads per block, or no register "
                "limit",
            )
        least = launch.smem + shape.more_shared
        launches.allow_dynamic_shared_memory(function, least)
        smem[launch.name] = _find_limiting_shared_size(launch, function, wanted, least)
    return Replay(lab.call, loaded.functions, smem, shape)


def _find_limiting_shared_size(
    launch: KernelLaunch, function: CudaFunction, blocks: int, least: int = 0
) -> ByteCount:
    """Return the least dynamic shared memory, its own at least, with which no more than `blocks` fit."""
    size = max(least, launch.smem)
    while launch.count_blocks(function, size) > blocks:
        size += _STEP
        launches.allow_dynamic_shared_memory(function, size)
    return size


def make_low_occupancy_replay(lab: AblationLab) -> Replay | None:
    """Return the call with occupancy cut by half by unused shared memory; None where that cannot be."""
    smem = {}
    for launch in lab.call.kernel_launches:
        filled = min(launch.count_blocks(), -(-launch.blocks // lab.on.gpu.sms))
        if filled < 2:
            continue
        try:
            size = _find_limiting_shared_size(launch, launch.function, filled // 2)
            smem[launch.name] = size
        except device.CudaError:  # the GPU has no so large shared memory
            launches.allow_dynamic_shared_memory(launch.function, launch.smem)
    return Replay(lab.call, smem=smem) if smem else None
