"""Recordings of the six models  ->  how much GPU time has a line, a module, and the right ones.

    python -m tests.gpu.lines.markers.score FOLDER [MODEL ...] [--record FILE] [--wrong COUNT]

Records what is not in the folder yet, on a machine with a GPU: each model in its four modes under the
recorder, and without it under torch's profiler, which says the sizes of each kernel's tensors. A
model's marks say which lines compute something of these sizes. Both runs launch the same kernels in the
same order: that is how a kernel of the recording has its truth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from itertools import product
from pathlib import Path
from typing import Any

from profkit.program.readers.injected import read_injected_recording
from profkit.program.timeline import Activity, Process, SourcePlace
from tests.gpu.lines.markers.marks import Mark, find_lines, tell_marks

ROOT = Path(__file__).parents[4]
MODELS = ("mlp", "cnn", "transformer", "recurrent", "experts", "unet")
PLAIN = ("eager", "hand")
COMPILED = ("compile", "reduce")
MODES = ("eager", "compile", "reduce", "hand")
# Of each mode's kernels, the mode whose kernels under torch's profiler are the same ones.
TRUTHS = {"eager": "eager", "compile": "compile", "reduce": "compile", "hand": "hand"}
PROGRAM = "tests.gpu.lines.markers.train"
STEP_BEGINS = "lgamma"
# Lines of the training loop, whichever model is trained.
LOOP = {"optimizer": ("clip", "step"), "side": ("side linear", "side sum")}
UNMATCHED: dict[str, Any] = {"operators": [], "sizes": [], "phase": "unmatched"}
FOUND_SAME = ("Memcpy", "Memset")


@dataclass
class Score:
    """Nanoseconds of the kernels of one phase of one model in one mode, and of which what is known."""

    model: str
    mode: str
    phase: str
    kernels: int = 0
    time: int = 0
    line: int = 0  # has one
    told: int = 0  # has one, and the sizes tell which it should be
    right_line: int = 0
    right_all: int = 0  # all lines of a fused kernel are of the right sizes, not the first alone
    layer: int = 0  # is of a module, by its sizes
    module: int = 0  # is, and a module is named
    right_module: int = 0  # and that is it


def run_model(folder: Path, model: str, modes: Sequence[str]) -> None:
    """Record a model in some modes, and have torch's profiler tell the sizes."""
    for mode in modes:
        place = folder / f"{model}-{mode}"
        if not place.is_dir():
            place.mkdir(parents=True)
            record_mode(folder, place, model, mode)
    for mode in sorted({TRUTHS[mode] for mode in modes}):
        truth = folder / f"{model}-{mode}.json"
        if not truth.is_file():
            run_program(folder, model, mode, {}, "--truth", str(truth))


def run_model_under_proton(folder: Path, model: str) -> None:
    """Have Triton's Proton profile a model; write down its marks."""
    if not (folder / f"{model}.hatchet").is_file():
        run_program(folder, model, "eager", {}, "--proton", str(folder / model))
    marks = folder / f"{model}-marks.json"
    if not marks.is_file():
        from tests.gpu.lines.markers.models import MODELS as KINDS
        from tests.gpu.lines.markers.models import list_all_marks

        rows = [[*row] for row in map(list_mark, list_all_marks(KINDS[model]()))]
        marks.write_text(json.dumps(rows), encoding="utf-8")


def list_mark(one: Mark) -> tuple[str, str, list[int], str, str]:
    """Return a mark as JSON has it."""
    return one.line, one.module, sorted(one.sizes), one.words, one.phase


def record_mode(folder: Path, place: Path, model: str, mode: str) -> None:
    """Run the program under the recorder."""
    from profkit.collect import timeline

    env = {
        "CUDA_INJECTION64_PATH": str(timeline.build_injection_library()),
        "PROFKIT_TIMELINE": str(place),
        "PYTHONPATH": os.pathsep.join([str(timeline.INJECTED), os.environ.get("PYTHONPATH", "")]),
    }
    run_program(folder, model, mode, env)


def run_program(folder: Path, model: str, mode: str, env: dict[str, str], *more: str) -> None:
    """Run the program, with a compiler's cache that only these runs fill."""
    own = {
        **os.environ,
        "INDUCTOR_PROVENANCE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor" / model),
        **env,
    }
    command = [sys.executable, "-m", PROGRAM, model, mode, *more]
    with (folder / f"{model}.log").open("ab") as log:
        done = subprocess.run(
            command, env=own, cwd=ROOT, stdout=log, stderr=log, check=False, timeout=400
        )
        if done.returncode:
            log.write(f"{model} {mode} ended with {done.returncode}\n".encode())


def read_marks(path: Path) -> list[Mark]:
    """Read the marks of a model."""
    rows = json.loads(path.read_text("utf-8"))
    return [
        Mark(line, module, frozenset(sizes), words, phase)
        for line, module, sizes, words, phase in rows
    ]


def score_mode(folder: Path, model: str, mode: str, wrong: Counter[Any]) -> list[Score]:
    """Score the last steps of a recording."""
    (process, *_) = read_injected_recording(folder / f"{model}-{mode}").processes
    truth = json.loads((folder / f"{model}-{TRUTHS[mode]}.json").read_text("utf-8"))
    marks = read_marks(folder / f"{model}-marks.json")
    scores = {phase: Score(model, mode, phase) for phase in ("forward", "backward", "optimizer")}
    for step in cut_steps(process.activities):
        rows = match_kernels(step, truth)
        for activity, row in zip(step, rows, strict=True):
            told = row or UNMATCHED
            phase = told["phase"] or "other"
            score = scores.setdefault(phase, Score(model, mode, phase))
            add_kernel(score, activity, find_place(process, activity), told, marks, wrong)
    return list(scores.values())


def cut_steps(activities: Sequence[Activity]) -> list[list[Activity]]:
    """Cut the marked steps out of what the GPU did."""
    steps: list[list[Activity]] = []
    for activity in activities:
        if STEP_BEGINS in activity.name:
            steps.append([])
        if steps:
            steps[-1].append(activity)
    return steps


def find_place(process: Process, activity: Activity) -> SourcePlace:
    """Find where something comes from."""
    return process.places[activity.origin] if activity.origin >= 0 else SourcePlace()


def match_kernels(
    step: Sequence[Activity], truth: Sequence[dict[str, Any]]
) -> list[dict[str, Any] | None]:
    """Find for each kernel of a step the one of the truth that is at its place."""
    own = [say_kernel(activity.name) for activity in step]
    told = [say_kernel(row["name"]) for row in truth]
    rows: list[dict[str, Any] | None] = [None] * len(own)
    matcher = SequenceMatcher(None, told, own, autojunk=False)
    for begin, at, size in matcher.get_matching_blocks():
        for offset in range(size):
            rows[at + offset] = truth[begin + offset]
    return rows


def say_kernel(name: str) -> str:
    """Return what two recorders call a kernel alike."""
    for word in FOUND_SAME:
        if name.startswith(word):
            return "Memory"  # a graph may copy where a call sets, and the other way round
    return name


def add_kernel(
    score: Score,
    activity: Activity,
    place: SourcePlace,
    row: dict[str, Any],
    marks: Sequence[Mark],
    wrong: Counter[Any],
) -> None:
    """Add one kernel to a score."""
    time = activity.duration
    score.kernels += 1
    score.time += time
    score.line += time * bool(place.line)
    if not place.line:
        wrong["no line", score.phase, activity.name[:60], *row["operators"][-2:]] += 1
        return
    allowed = list_allowed(row, marks, activity.name)
    if not allowed:
        sizes = tuple(row["sizes"])
        wrong["untold", score.phase, *row["operators"][-3:], sizes, place.line[-30:]] += 1
        return
    is_line_right = add_told_line(score, time, place, {line for line, _ in allowed})
    is_module_right = add_told_module(score, time, place, [module for _, module in allowed])
    if not is_line_right or not is_module_right:
        wrong["wrong", score.phase, *say_mistake(activity, place, row, allowed)] += 1


def say_mistake(
    activity: Activity, place: SourcePlace, row: dict[str, Any], allowed: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """Say which kernel has another place than it may have, and both places."""
    about = row["operators"][-2:], tuple(row["sizes"]), activity.name[:50]
    told = list_named(place), place.module, place.part, sorted(set(allowed))[:6]
    return str(about), str(told)


def list_named(place: SourcePlace) -> list[str]:
    """List the lines that a place names: of a fused kernel several."""
    return [short_line(line) for line in place.lines or (place.line,)]


def add_told_line(score: Score, time: int, place: SourcePlace, allowed: set[str]) -> bool:
    """Add a kernel whose sizes tell its line; whether the first that is named is allowed."""
    named = list_named(place)
    is_right = named[0] in allowed
    score.told += time
    score.right_line += time * is_right
    score.right_all += time * allowed.issuperset(named)
    return is_right


def add_told_module(score: Score, time: int, place: SourcePlace, allowed: Sequence[str]) -> bool:
    """Add a kernel that is of a module by its sizes; whether none is named, or one that is allowed."""
    if not all(allowed):
        return True
    is_right = any(is_inside(place.module, module) for module in allowed)
    score.layer += time
    score.module += time * bool(place.module)
    score.right_module += time * is_right
    return is_right or not place.module


def list_allowed(row: dict[str, Any], marks: Sequence[Mark], name: str) -> list[tuple[str, str]]:
    """List the lines and modules of which a kernel may be; empty where its sizes do not tell."""
    lines = find_lines()
    phase = row["phase"]
    if STEP_BEGINS in name:
        return [(lines["marked"], "")]
    if phase in LOOP:
        return [(lines[name], "") for name in LOOP[phase]]
    if phase not in ("forward", "backward"):
        return []
    operators = "\n".join(row["operators"])
    fused = "triton_" in name
    found = tell_marks(marks, row["sizes"], operators, phase, fused)
    told = [(lines[one.line], one.module) for one in found]
    if not told and not row["sizes"]:
        return []
    return told


def short_line(line: str) -> str:
    """Return file and line without the folder."""
    return line.rpartition("/")[2]


def is_inside(path: str, module: str) -> bool:
    """Whether a module is another one or a part of it."""
    return not module or path == module or path.startswith(f"{module}.")


def measure_models(folder: Path, models: Sequence[str], show: int) -> list[Score]:
    """Record models, and score and print what was recorded; `show`: how many mistakes of each."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(3 * len(models)) as pool:
        begun = []
        for model in models:
            for modes in (COMPILED, PLAIN):  # what is compiled is compiled once, and then read
                begun.append(pool.submit(run_model, folder, model, modes))
            begun.append(pool.submit(run_model_under_proton, folder, model))
        for one in begun:
            one.result()
    rows: list[Score] = []
    for model, mode in product(models, MODES):
        wrong: Counter[Any] = Counter()
        found = score_mode(folder, model, mode, wrong)
        rows += found
        for score in found:
            print_score(score)
        for words, count in wrong.most_common(show):
            print("   ", count, *words)
    return rows


def main(arguments: Sequence[str]) -> None:
    """Run and score what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--wrong", type=int, default=6)
    asked = parser.parse_args(arguments)
    rows = measure_models(asked.folder, asked.models, asked.wrong)
    if asked.record is not None:
        write_record(asked.record, asked.folder, asked.models, rows)


def write_record(path: Path, folder: Path, models: Sequence[str], rows: Sequence[Score]) -> None:
    """Write down what was measured, and on what."""
    import torch

    record = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "proton": {model: score_proton(folder / f"{model}.hatchet") for model in models},
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(record, indent=1), encoding="utf-8")


def score_proton(path: Path) -> dict[str, float]:
    """Add up the GPU time that Proton saw, and what of it is under a frame of the program."""
    sums = {"time": 0.0, "frame": 0.0}
    if path.is_file():
        for tree in json.loads(path.read_text("utf-8")):
            if "frame" in tree:
                add_proton(tree, framed=False, sums=sums)
    return sums


def add_proton(tree: dict[str, Any], framed: bool, sums: dict[str, float]) -> None:
    """Add what is in a tree of Proton's; metrics stand at its leaves, once."""
    name = str(tree["frame"].get("name", ""))
    framed = framed or any(file in name for file in ("models.py", "parts.py", "train.py"))
    children = tree.get("children", [])
    for child in children:
        add_proton(child, framed, sums)
    if not children:
        time = float(tree.get("metrics", {}).get("time (ns)", 0))
        sums["time"] += time
        sums["frame"] += time * framed


def print_score(score: Score) -> None:
    """Print one row."""
    whole, told = max(1, score.time), max(1, score.told)
    layer, module = max(1, score.layer), max(1, score.module)
    print(
        f"{score.model:11} {score.mode:7} {score.phase:9} {score.kernels:5} kernels "
        f"{score.time / 1e3:9.1f} us line {score.line / whole:6.1%} module "
        f"{score.module / layer:6.1%} told {score.told / whole:6.1%} right: line "
        f"{score.right_line / told:6.1%} all {score.right_all / told:6.1%} module "
        f"{score.right_module / module:6.1%}",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
