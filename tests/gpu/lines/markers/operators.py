"""Recordings of the six models  ->  how much GPU time has an operator, and the right one.

    python -m tests.gpu.lines.markers.operators FOLDER [MODEL ...] [--record FILE]

Each model is recorded in four modes, for so many steps that operators of some are, and once more
without the recorder under torch's profiler, which says of each kernel in which operators it was
launched. Both runs launch the same kernels in the same order.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from profkit.collect.inject.profkit_recorder_operators import WORKLESS
from profkit.program.readers.injected import read_injected_recording
from profkit.program.readers.operators import is_wrapper_operator
from profkit.program.steps.attribution import NOBODY, CallOrigin, list_origins_of_calls
from profkit.program.timeline import Activity, Process, read_operand_sizes
from tests.gpu.lines.markers.score import (
    MODELS,
    MODES,
    TRUTHS,
    cut_steps,
    match_kernels,
    run_program,
)

STEPS = 300
SCORED = 3  # steps, the last ones: none of them was slowed


@dataclass
class Score:
    """Nanoseconds of the kernels of a model in one mode whose operator torch's profiler says."""

    model: str
    mode: str
    place: str  # whether in a graph
    kernels: int = 0
    time: int = 0
    named: int = 0
    right: int = 0
    right_sizes: int = 0


def record_model(folder: Path, model: str, mode: str) -> None:
    """Record a model in a mode, unless that was done."""
    from profkit.collect import timeline

    place = folder / f"{model}-{mode}"
    if place.is_dir():
        return
    place.mkdir(parents=True)
    env = {
        "CUDA_INJECTION64_PATH": str(timeline.build_injection_library()),
        "PROFKIT_TIMELINE": str(place),
        "PROFKIT_OPERATORS": "1",
        "PYTHONPATH": os.pathsep.join([str(timeline.INJECTED), os.environ.get("PYTHONPATH", "")]),
    }
    run_program(folder, model, mode, env, "--steps", str(STEPS))


def tell_operators(folder: Path, model: str, mode: str) -> None:
    """Have torch's profiler tell the operators, unless it did."""
    truth = folder / f"{model}-{mode}.json"
    if not truth.is_file():
        run_program(folder, model, mode, {}, "--truth", str(truth))


def score_mode(folder: Path, model: str, mode: str, wrong: Counter[Any]) -> list[Score]:
    """Score the last steps of a recording."""
    timeline = read_injected_recording(folder / f"{model}-{mode}")
    for note in timeline.notes:
        wrong["note", note] += 1
    (process, *_) = timeline.processes
    truth = json.loads((folder / f"{model}-{TRUTHS[mode]}.json").read_text("utf-8"))
    makers = find_activity_makers(process)
    scores: dict[str, Score] = {}
    for step in cut_steps(process.activities)[-SCORED - 1 : -1]:
        for activity, row in zip(step, match_kernels(step, truth), strict=True):
            if row is None or not row["stack"]:
                continue
            place = "in a graph" if activity.graph else "outside"
            score = scores.setdefault(place, Score(model, mode, place))
            add_activity(score, activity, makers[activity], row, wrong)
    return list(scores.values())


def find_activity_makers(process: Process) -> dict[Activity, CallOrigin]:
    """Find who launched, or captured, each thing that the GPU did."""
    made = {}
    for call, maker in zip(process.calls, list_origins_of_calls(process), strict=True):
        made[call.correlation] = maker
    found = {}
    for activity in process.activities:
        number = activity.correlation
        if activity.graph:
            number = activity.captured
        found[activity] = made.get(number, NOBODY)
    return found


def add_activity(
    score: Score, activity: Activity, maker: CallOrigin, row: dict[str, Any], wrong: Counter[Any]
) -> None:
    """Add one kernel to a score."""
    time = activity.duration
    operator, sizes = tell_operator(row["stack"])
    score.kernels += 1
    score.time += time
    about = score.place, activity.name[:50], operator
    if not maker.op:
        wrong["no operator", *about] += 1
        return
    score.named += time
    if maker.op != operator:
        wrong["another operator", *about, maker.op] += 1
        return
    score.right += time
    if maker.shapes == sizes:
        score.right_sizes += time
    else:
        wrong["other sizes", *about, str(sizes), str(maker.shapes)] += 1


def tell_operator(stack: Sequence[Any]) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return the innermost operator of some, outermost first, and the sizes of the innermost sized."""
    operator = ""
    sizes: tuple[tuple[int, ...], ...] = ()
    for name, shapes, types in stack:
        if name in WORKLESS or is_wrapper_operator(name):
            continue
        operator = name
        own = read_operand_sizes(name, shapes)
        if any(own) and types[:1] != ["TensorList"]:
            sizes = own
    return operator, sizes


def measure_operators(folder: Path, models: Sequence[str], show: int) -> list[Score]:
    """Record, score and print; `show`: how many mistakes of each mode."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=9) as pool:
        jobs = [pool.submit(record_model, folder, *job) for job in product(models, MODES)]
        kinds = sorted(set(TRUTHS.values()))
        jobs += [pool.submit(tell_operators, folder, *job) for job in product(models, kinds)]
        for job in jobs:
            job.result()
    rows: list[Score] = []
    for model, mode in product(models, MODES):
        wrong: Counter[Any] = Counter()
        try:
            found = score_mode(folder, model, mode, wrong)
        except (OSError, ValueError) as error:
            print(model, mode, repr(error), flush=True)
            continue
        rows += found
        for score in found:
            print_score(score)
        for words, count in wrong.most_common(show):
            print("   ", count, *words)
    return rows


def print_score(score: Score) -> None:
    """Print one row."""
    whole, named = max(1, score.time), max(1, score.named)
    print(
        f"{score.model:11} {score.mode:7} {score.place:10} {score.kernels:5} kernels "
        f"{score.time / 1e3:9.1f} us named {score.named / whole:6.1%} right "
        f"{score.right / named:6.1%} right sizes {score.right_sizes / named:6.1%}",
        flush=True,
    )


def main(arguments: Sequence[str]) -> None:
    """Run and score what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--wrong", type=int, default=6)
    asked = parser.parse_args(arguments)
    rows = measure_operators(asked.folder, asked.models, asked.wrong)
    if asked.record is not None:
        content = json.dumps([asdict(row) for row in rows], indent=1)
        asked.record.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
