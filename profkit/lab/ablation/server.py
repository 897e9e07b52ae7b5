"""A task file  ->  what each cause of one variant at one case costs; the process that may be lost.

`python -m profkit.lab.ablation.server TASK.json` is started by run.py. What is begun is a line of
the log beside the task; the answer is a file beside it.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profkit.collect.process import exit_when_parent_ends
from profkit.errors import ProfkitError
from profkit.files import open_new_log, read_bytes, read_text, write_bytes
from profkit.lab.ablation.assemble import PTX_LIMIT
from profkit.lab.ablation.lab import Conditions
from profkit.lab.ablation.launches import Hung
from profkit.lab.ablation.measurement import ablate_call
from profkit.lab.ablation.task import Answer, Task, get_answer_file, get_log_file
from profkit.lab.measure import bench, data
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.variants import problem

if TYPE_CHECKING:
    from profkit.units import CudaStream, TextOrEmpty


LOST = 3  # exit status: the GPU's context is gone, or a kernel hangs


def _serve_task(task_file: Path) -> int:
    exit_when_parent_ends()
    task = msgspec.json.decode(read_bytes(task_file), type=Task)
    with open_new_log(get_log_file(task_file)) as log:

        def say_progress(what: str) -> None:
            log.write(json.dumps(what).encode() + b"\n")
            log.flush()

        try:
            answer = _measure_task(task, say_progress)
        except Hung as error:
            say_progress(f"hung: {error.message}")
            return LOST
        except device.CudaError as error:
            if error.code in device.STICKY:
                say_progress(f"lost: {error.message}")
                return LOST
            answer = Answer(message=error.message, hint=error.hint)
        except ProfkitError as error:
            answer = Answer(message=error.message, hint=error.hint)
        write_bytes(get_answer_file(task_file), msgspec.json.encode(answer))
    return 0


def _measure_task(task: Task, say: Callable[[str], None]) -> Answer:
    say("inputs")
    loaded = problem.load_problem(Path(task.problem))
    here = data.load_or_compute_case_data(loaded, task.case, 0, Path(task.build), task.grid)
    gpu = device.add_gpu_uuid_and_driver(device.make_first_gpu_current())
    tools = library.Support(Path(task.support), gpu)
    arena = data.upload_arena(here)
    make_call = _make_call_factory(arena, loaded)
    call = make_call(task.library)
    beside = {name: make_call(file) for name, file in task.beside.items()}
    conditions = Conditions(
        gpu=gpu,
        tools=tools,
        folder=Path(task.build),
        arch=task.arch,
        flags=task.flags,
        rounds=task.rounds,
        fast=_read_ptx(task.fast),
        refused=task.refused,
    )
    say("load")
    reset = make_restorer_of_contents(arena, here)
    for other in beside.values():
        other(device.create_non_blocking_stream())
        device.wait_for_gpu_or_stream()
    record, times = ablate_call(call, reset, _read_ptx(task.ptx), conditions, say, beside)
    return Answer(record, bench.summarize_times_as_json(times))


def _make_call_factory(
    arena: data.Arena, loaded_problem: problem.Problem
) -> Callable[[str], Callable[[CudaStream], None]]:
    """Return what makes a call of a library's file; each stream has its arguments once."""
    arguments: dict[int, library.Args] = {}

    def make_call(file: str) -> Callable[[CudaStream], None]:
        code = library.load_launcher_library(Path(file), are_all_symbols_defined=False)

        def start_call(stream: CudaStream) -> None:
            if stream not in arguments:
                arguments[stream] = arena.make_args(loaded_problem, stream)
            library.call_launcher(code, arguments[stream])

        return start_call

    return make_call


def _read_ptx(file: str | None) -> TextOrEmpty:
    """The text of a file; empty where there is none."""
    if file is None:
        return ""
    return read_text(file, PTX_LIMIT)


def make_restorer_of_contents(arena: data.Arena, here: data.CaseData) -> Callable[[], None]:
    """Return what puts back what the arrays held at first: from a copy on the GPU, if one fits there."""
    try:
        kept = device.allocate_device_memory(arena.size)
    except device.CudaError:
        return functools.partial(arena.write_initial_contents_to, here, arena.base)
    device.copy_on_device(kept, arena.base, arena.size)

    def put_back() -> None:
        device.copy_on_device(arena.base, kept, arena.size)
        device.wait_for_gpu_or_stream()

    return put_back


if __name__ == "__main__":
    sys.exit(_serve_task(Path(sys.argv[1])))
