"""Recordings of planted.py and hard.py  ->  how much GPU time has a line, and the right one.

python -m tests.gpu.lines.score MODE FOLDER      # a folder that triage -o has kept
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.program.readers import read_timeline
from profkit.program.timeline import Activity, Process, SourcePlace
from tests.gpu.lines.truth import STEP, Truth, cut_steps, find_lines, tell_compiled, tell_eager

HERE = Path(__file__).parent
LAST = 3  # steps that are scored, the last ones


@dataclass
class Score:
    """Nanoseconds of a part's kernels, and of those that have a line, a module, the right ones."""

    kernels: int = 0
    time: int = 0
    line: int = 0
    module: int = 0
    right_line: int = 0
    right_first: int = 0  # of a fused kernel's lines the first one is it
    right_module: int = 0


def place_of(process: Process, activity: Activity) -> SourcePlace:
    return process.places[activity.origin] if activity.origin >= 0 else SourcePlace()


def score_planted(process: Process, mode: str) -> tuple[dict[str, Score], Counter[tuple[str, ...]]]:
    """Score the last steps of a recording of planted.py; also count what is wrong."""
    kernels = [a for a in process.activities if a.kind == "kernel"]
    lines = find_lines(HERE / "planted.py")
    scores: dict[str, Score] = defaultdict(Score)
    wrong: Counter[tuple[str, ...]] = Counter()
    for begin, end in cut_steps([kernel.name for kernel in kernels])[-LAST:]:
        own = kernels[begin:end]
        truths = tell_step([kernel.name for kernel in own], mode)
        for kernel, truth in zip(own, truths, strict=True):
            place = place_of(process, kernel)
            part = truth.part if truth else "no truth"
            told = add_score(scores[part], kernel, place, truth, lines)
            if truth and not told:
                wrong[kernel.name[:60], truth.mark, truth.module, place.line, place.module] += 1
    return scores, wrong


def tell_step(names: Sequence[str], mode: str) -> list[Truth | None]:
    """The truth of one step's kernels; an optimizer in a graph has the line of its capture."""
    if mode in {"compile", "reduce"}:
        return tell_compiled(names)
    truths = tell_eager(names)
    if mode != "hand":
        return truths
    captured = replace(STEP, mark="captured step")
    return [captured if truth == STEP else truth for truth in truths]


def add_score(
    score: Score, kernel: Activity, place: SourcePlace, truth: Truth | None, lines: dict[str, int]
) -> bool:
    """Add one kernel; whether its line and module are right."""
    time = kernel.duration
    score.kernels += 1
    score.time += time
    score.line += time * bool(place.line)
    score.module += time * bool(place.module or place.kind)
    if truth is None:
        return False
    wanted = f"/planted.py:{lines[truth.mark]}" if truth.mark else ""
    named = place.lines or (place.line,)
    line = any(name.endswith(wanted) for name in named)
    module = is_module_right(place, truth)
    score.right_line += time * line
    score.right_first += time * place.line.endswith(wanted)
    score.right_module += time * module
    return line and module


def is_module_right(place: SourcePlace, truth: Truth) -> bool:
    """Whether a place is in the module; of a fused kernel its block is enough."""
    wanted = truth.module.split(".")
    if place.lines or not truth.mark:
        wanted = wanted[:2]
    return not truth.module or place.module.split(".")[: len(wanted)] == wanted


def score_hard(process: Process) -> tuple[int, Counter[tuple[str, ...]]]:
    """How many kernels of hard.py have the line of their name, and which have another."""
    marks = {}
    for words, number in find_lines(HERE / "hard.py").items():
        for word in words.split():
            marks[word] = number
    right = 0
    wrong: Counter[tuple[str, ...]] = Counter()
    for kernel in process.activities:
        for word, number in marks.items():
            if word not in kernel.name or (word == "tan_kernel" and "atan_" in kernel.name):
                continue
            place = place_of(process, kernel)
            if place.line.endswith(f"/hard.py:{number}"):
                right += 1
            else:
                wrong[word, kernel.name[:60], place.line, place.part] += 1
    return right, wrong


def percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def print_scores(mode: str, scores: dict[str, Score]) -> None:
    for part, row in sorted(scores.items(), key=lambda item: -item[1].time):
        print(
            f"{mode:8} {part:22} {row.kernels:5} kernels {row.time / 1e3:9.1f} us  "
            f"line {percent(row.line, row.time)}, module {percent(row.module, row.time)}; right: "
            f"line {percent(row.right_line, row.time)} "
            f"(first {percent(row.right_first, row.time)}), "
            f"module {percent(row.right_module, row.time)}"
        )


def main(arguments: Sequence[str]) -> None:
    mode, folder = arguments
    (process, *_) = read_timeline(Path(folder)).processes
    times = [(a.duration, place_of(process, a)) for a in process.activities]
    whole = sum(time for time, _ in times)
    line = sum(time for time, place in times if place.line)
    module = sum(time for time, place in times if place.module or place.kind)
    print(
        f"{mode:8} all: {len(times)} kernels and copies, {whole / 1e6:.2f} ms, "
        f"line {percent(line, whole)}, module {percent(module, whole)}"
    )
    if mode == "hard":
        right, wrong = score_hard(process)
        print(f"{mode:8} {right} right, {wrong.total()} wrong")
    elif mode in {"eager", "fused", "compile", "reduce", "hand"}:
        scores, wrong = score_planted(process, mode)
        print_scores(mode, scores)
    else:
        wrong = Counter()
    for words, count in wrong.most_common(8):
        print("   wrong", count, *words)


if __name__ == "__main__":
    main(sys.argv[1:])
