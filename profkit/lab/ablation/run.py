"""A variant and a case  ->  its ablation, measured in processes that may be lost on the way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profkit.collect import process
from profkit.errors import ProfkitError
from profkit.files import (
    is_file,
    make_temporary_folder,
    read_bytes,
    read_text,
    write_bytes,
    write_text,
)
from profkit.interpreter import make_module_command
from profkit.lab.ablation import assemble
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.task import Answer, Task, get_answer_file, get_log_file
from profkit.lab.measure.cuda import device
from profkit.lab.measure.languages.cuda import LANGUAGE as CUDA
from profkit.lab.measure.targets import Target, TargetRun, build_target, make_record_without_timing
from profkit.lab.measure.variants import build
from profkit.lab.measure.variants.build import Build
from profkit.records.ablation import AblationRecord
from profkit.records.parts import Timing
from profkit.records.paths import make_run_paths
from profkit.records.record import Record, amend_record, read_record, write_record
from profkit.records.store import read_struct

if TYPE_CHECKING:
    from profkit.units import CaseName, GpuName


FAST_MATH = ("--use_fast_math",)
ROUNDS = 30, 60  # in turns, each about a millisecond of launches
FEW_ROUNDS = 16, 24  # where many kernels are measured one after the other
_MODULE = "profkit.lab.ablation.server"
_SECONDS = 300.0  # that one process may take
Progress = Callable[[str], None]


def ablate_target(
    target: Target, progress: Progress, complain: Callable[[ProfkitError], None]
) -> Iterator[Record]:
    """Yield the run record of each variant at each case, with what each cause costs.

    What cannot be ablated is complained of, and the others go on.
    """
    progress("build")
    builds, support = build_target(target)
    run = TargetRun(target, {built.variant.id: built for built in builds}, support)
    run.measured.gpu = device.add_gpu_uuid_and_driver(device.query_first_gpu())
    for built in builds:
        if built.failure:
            complain(built.failure)
            continue
        for case in target.cases:
            began = time.monotonic()
            try:
                found, timing = _ablate_case(target, built, support, case, progress)
            except ProfkitError as error:
                complain(error)
                continue
            found = msgspec.structs.replace(found, seconds=time.monotonic() - began)
            record = make_record_without_timing(run, built.variant.id, case)
            yield msgspec.structs.replace(record, timing=timing, ablation=found.to_json())


def save_ablation(record: Record, artifacts: Path) -> Path:
    """Put what was found into the run record of the same code, or into one of its own."""
    _, file = make_run_paths(artifacts, record.problem, record.variant, record.case)
    if is_file(file):
        before = read_record(file)
        same_gpu = get_recorded_gpu_name(before) == get_recorded_gpu_name(record)
        if same_gpu and not before.is_stale(record.source_hash or ""):
            timing = before.timing or record.timing
            changed = msgspec.structs.replace(before, ablation=record.ablation, timing=timing)
            amend_record(changed)
            return file
    write_record(file, record)
    return file


def get_recorded_gpu_name(record: Record) -> GpuName | None:
    return record.gpu.name if record.gpu else None


def ablate_with_others(
    target: Target, progress: Progress, case: CaseName
) -> tuple[AblationRecord, Timing | None]:
    """Ablate the first variant of a target, the others timed in turns with it."""
    builds, support = build_target(target)
    first, *others = builds
    beside = {built.variant.id: str(build.require_library(built)) for built in others}
    return _ablate_case(target, first, support, case, progress, beside)


def _ablate_case(
    target: Target,
    built: Build,
    support_library: Path,
    case: CaseName,
    progress: Progress,
    files_timed_beside: Mapping[str, str] | None = None,
) -> tuple[AblationRecord, Timing | None]:
    with make_temporary_folder(target.folder) as place:
        task = Task(
            problem=str(target.problem.path.parent),
            build=str(target.folder),
            support=str(support_library),
            library=str(build.require_library(built)),
            case=case,
            grid=built.variant.header.inputs,
            ptx=_write_ptx_file_if_known(built, target.folder, place / "kernel.ptx"),
            fast=_write_ptx_file_if_known(built, target.folder, place / "fast.ptx", FAST_MATH),
            arch=built.arch,
            flags=tuple(assemble.select_ptxas_flags(built.flags)),
            rounds=FEW_ROUNDS if files_timed_beside else ROUNDS,
            refused={},
            beside=dict(files_timed_beside or {}),
        )
        return run_task_until_no_process_is_lost(
            task, place, f"{built.variant.id} {case}", progress
        )


def _write_ptx_file_if_known(
    built: Build, folder: Path, file: Path, more_flags: Sequence[str] = ()
) -> str | None:
    """Write its PTX into a file; with more flags other PTX of its source. None where there is none."""
    has_source = built.variant.language is CUDA and not is_file(
        built.variant.path.with_suffix(".ptx")
    )
    if more_flags and not has_source:
        return None
    try:
        text = assemble.get_or_write_ptx(built, folder, more_flags)
    except ProfkitError:
        return None
    write_text(file, text)
    return str(file)


def _read_worker_answer(file: Path, name: str) -> tuple[AblationRecord, Timing | None]:
    """Return what a process that ended well has written; its ProfkitError is raised."""
    answer = msgspec.json.decode(read_bytes(file), type=Answer)
    if answer.record is None:
        raise ProfkitError(f"{name}: {answer.message}", answer.hint)
    timing = None
    if answer.timing:
        timing = read_struct(Timing, answer.timing)
    return answer.record, timing


def run_task_until_no_process_is_lost(
    task: Task, folder: Path, name: str, progress: Progress
) -> tuple[AblationRecord, Timing | None]:
    """Start processes until one ends: each begins without what the one before was lost to."""
    known = {ablation.id for ablation in list_ablations()}
    refused = dict(task.refused)
    while True:
        progress(name)
        file = folder / f"task-{len(refused)}.json"
        write_bytes(file, msgspec.json.encode(msgspec.structs.replace(task, refused=refused)))
        done = process.run_command(make_module_command(_MODULE, str(file)), _SECONDS)
        if done.status == 0 and is_file(get_answer_file(file)):
            return _read_worker_answer(get_answer_file(file), name)
        said = _read_log_entries(get_log_file(file))
        begun = [word for word in said if word in known]
        if not begun or begun[-1] in refused:
            words = done.output.strip().splitlines()[-1:] or said[-1:] or ["it said nothing"]
            raise ProfkitError(
                f"{name}: the measuring process was lost: {words[0][:300]}",
                "profkit check says whether the variant itself is right",
            )
        refused[begun[-1]] = said[-1] if said[-1] != begun[-1] else f"it ended with {done.status}"


def _read_log_entries(file: Path) -> list[str]:
    if not is_file(file):
        return []
    return [json.loads(line) for line in read_text(file).splitlines()]
