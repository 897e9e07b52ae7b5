"""The time of attention over a grid of shapes, and the table of what is fastest where.

    python tools/attention_grid.py record grid.jsonl      # every recorded shape: rungs and backends
    python tools/attention_grid.py finer finer.jsonl      # the same where a few rounds make a time
    python tools/attention_grid.py between off.jsonl      # the same at shapes that no table has
    python tools/attention_grid.py hold held.jsonl        # the entry against the backends
    python tools/attention_grid.py references refs.jsonl  # at every case, all that can be compared
    python tools/attention_grid.py table                  # picks.json, from artifacts/attention
    python tools/attention_grid.py refresh                # whose machine code is still today's

All but the last two need a GPU and torch. Everything of a shape is timed in turns, in one process, in
replayed graphs with a warm L2; what is not right there is not timed. A line is written as soon as a
shape is done, and a file that already exists is gone on with: `profkit roofline` draws it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import product
from math import inf, log, nan, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from profkit.evidence.users_code import import_python_file_as
from profkit.lab.measure import bench, subjects
from profkit.lab.measure.bench import Subject
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.cuda.library import Args
from profkit.lab.measure.variants import build, variants
from profkit.lab.measure.variants.problem import load_problem

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "kernels" / "attention"
RECORD = ROOT / "artifacts" / "attention" / "grid.jsonl"
RECORDS = (RECORD, RECORD.with_name("finer.jsonl"))
ENTRY = "attention"
BACKENDS = ("sdpa-cudnn", "sdpa-flash", "sdpa-efficient")
SMALL = ("selfoverlap", "pair", "splitk", "exp2fold", "persistent")
LARGE = ("wgmma", "lazymax", "uniform", "nomax", "latev")
_SMALL_WORK, _EFFICIENT_WORK = 2e10, 2e11  # operations beyond which a family is out of the race
_TILINGS = (32, 64, 128, 192, 256), (1, 2, 3, 4), (64, 128), (1, 2)  # picks.Tiling's, per SM
_FEW = 8  # recorded shapes below which there is no law
_ALIKE = 1.05  # spreads that differ by less say the same
_LOOSE = 0.1  # a law that is off by more at its own shapes says nothing of others
_NUMBERS = re.compile(r"\[\s+((?:[-\d.e]+,\s+)*[-\d.e]+)\s+\]")
_LOOK, _FAR = 3, 1.4  # rounds of a first look; see Plan.far


picks = import_python_file_as(FOLDER / "picks.py", "picks")


class Machine:
    """The GPU, and the variants that are built for it."""

    def __init__(self, names: Sequence[str]) -> None:
        self.gpu = device.make_first_gpu_current()
        folder = build.choose_build_folder_of_kernels(ROOT / "kernels")
        chosen = variants.find_named_variants(ROOT / "kernels", names)
        support = variants.read_variant(build.SUPPORT)
        built = build.compile_variants_not_built_yet([*chosen, support], [self.gpu.arch], folder)
        *places, tools = map(build.require_library, built)
        self.builds = {b.variant.id: b for b in built[:-1]}
        self.libraries = dict(
            zip(self.builds, map(library.load_launcher_library, places), strict=True)
        )
        self.tools = library.Support(tools, self.gpu)

    def variant(
        self, name: str, values: Mapping[str, Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Subject:
        """A variant on tensors, run once; `values`: what problem.py says that it is given."""
        import torch

        sides = [[tensor.data_ptr() for tensor in side] for side in (inputs, outputs)]

        def arguments(stream: int) -> Args:
            return Args.from_addresses(sides[0], sides[1], values, stream)

        torch.cuda.synchronize()
        made = subjects.run_launcher_subject(name, self.libraries[name], arguments, self.tools)
        device.wait_for_gpu_or_stream()
        return made

    def used(self) -> dict[str, Any]:
        """What was measured with, and when."""
        sources = {
            n: {"source": b.source, "sass": b.sass, "host": b.host} for n, b in self.builds.items()
        }
        gpu = asdict(device.add_gpu_uuid_and_driver(self.gpu))
        made = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
        return {"made": made, "gpu": gpu, "variants": sources}


def header(machine: Machine, against: Sequence[str]) -> dict[str, Any]:
    """The first line of a file."""
    import torch

    versions = {"torch": torch.__version__}
    said = {"schema": "profkit.grid/1", "against": list(against), "versions": versions}
    return said | machine.used()


class Stage:
    """One shape's inputs on the GPU and the answer in fp32; problem.inputs' recipe, drawn there."""

    def __init__(self, machine: Machine, shape: Any) -> None:
        import torch

        self.machine, self.shape, self.problem = machine, shape, load_problem(FOLDER).module
        self.case = self.problem.Case(1, shape.heads, shape.rows, shape.D, shape.causal)
        g = torch.Generator("cuda").manual_seed(shape.rows * 1000 + shape.heads)
        size = (1, shape.heads, shape.rows, shape.D)
        q, k, v = (torch.randn(size, generator=g, device="cuda") for _ in range(3))
        q *= 2
        q[..., 0], k[..., 0] = 7, -7
        self.tensors = [x.half() for x in (q, k, v)]
        del q, k, v
        self.answer = self._answer()

    def _answer(self) -> Any:
        """softmax(q k^T / sqrt D) v in fp32, some heads at a time, kept in fp16's place."""
        import torch

        rows, out = self.shape.rows, torch.empty_like(self.tensors[0], dtype=torch.float32)
        step = max(1, 2**28 // rows**2)
        hidden = torch.ones(rows, rows, dtype=torch.bool, device="cuda").triu(1)
        for head in range(0, self.shape.heads, step):
            q, k, v = (x[0, head : head + step].float() for x in self.tensors)
            scores = (q @ k.transpose(1, 2)).div_(sqrt(self.shape.D))
            if self.shape.causal:
                scores.masked_fill_(hidden, -torch.inf)
            out[0, head : head + step] = torch.softmax(scores, -1) @ v
        return out

    def error(self, out: Any) -> float:
        """The largest error over the tolerance there; NaN is infinite."""
        p, worst = self.problem, 0.0
        for x, ref in zip(out[0].split(16), self.answer[0].split(16), strict=True):
            over = (x.float() - ref).abs_().div_(ref.abs().mul_(p.RTOL).add_(p.ATOL))
            worst = max(worst, float(over.nan_to_num_(nan=float("inf")).max()))
        return worst

    def rung(self, name: str) -> tuple[Subject, Any]:
        """A variant's subject and its output, run on NaN."""
        import torch

        out = torch.full_like(self.tensors[0], nan)
        values = self.problem.arguments(self.case)
        return self.machine.variant(name, values, self.tensors, [out]), out

    def call(self, name: str) -> tuple[Subject, Any]:
        """A backend's subject and its output."""
        once = self.problem.reference_call(name, self.case, self.tensors)
        return subjects.run_torch_subject(name, once)

    def work(self) -> dict[str, float]:
        """Operations, and compulsory bytes."""
        p = self.problem
        return {"operations": p.operations(self.case), "bytes": p.compulsory_bytes(self.case)}


def _made(
    stage: Stage, names: Iterable[str], make: Callable[[str], Any], line: dict[str, Any]
) -> list[Subject]:
    """What is right; the error of each, and why one is left out, go into the line."""
    found = []
    for name in names:
        try:
            subject, out = make(name)
        except (subjects.ReferenceUnavailable, device.CudaError) as error:
            if getattr(error, "code", 0) in device.STICKY:
                raise
            line["refused"][name] = str(error)[:120]
            continue
        line["error"][name] = round(stage.error(out), 4)
        if line["error"][name] <= 1:
            found.append(replace(subject, eager=_not_asked))
    return found


def _not_asked(n: int, stream: int) -> tuple[float, float]:  # noqa: ARG001
    """In place of a subject's plain calls, which would take longer than everything else."""
    return nan, nan


def _rounds(seconds: float) -> tuple[int, int]:
    return (20, 40) if seconds < 2e-4 else (12, 24) if seconds < 2e-3 else (6, 10)


def _timed(stage: Stage, found: list[Subject], line: dict[str, Any], far: float) -> None:
    """Time in turns what a first look finds within so many times of the fastest."""
    name, machine = str(stage.shape), stage.machine

    def measured(which: list[Subject], rounds: tuple[int, int]) -> dict[str, bench.Times]:
        times = bench.time_subjects_in_turns(which, name, machine.gpu, machine.tools, False, rounds)
        return {t.name: t for t in times}

    look = {n: median(t.warm) for n, t in measured(found, (_LOOK, _LOOK)).items()}
    best = min(look.values())
    near = [s for s in found if look[s.name] <= far * best or s.name == ENTRY]
    times = measured(near, _rounds(best))
    line["looked"] = {n: _short(t) for n, t in look.items() if n not in times}
    line["warm"] = {n: [_short(x) for x in t.warm] for n, t in times.items()}
    some = next(iter(times.values()))
    line["clock"] = [some.before.sm_clock, some.after.sm_clock]


def _short(seconds: float) -> float:
    return float(f"{seconds:.5g}")


@dataclass(frozen=True)
class Plan:
    """What to time: which shapes, what is built for it, and who takes part at a shape."""

    shapes: Sequence[Any]
    rungs: Sequence[str]  # to build
    against: Sequence[str]  # what the others are compared with
    chosen: Callable[[Stage, dict[str, Any]], list[Subject]]  # the subjects there that are right
    far: float = _FAR  # what a first look finds so many times slower is timed no more


def run(plan: Plan, path: Path, seconds: float) -> None:
    """Write a line per shape that the file does not have; end after so many seconds."""
    import torch

    began, machine = time.monotonic(), Machine(plan.rungs)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    done = {json.dumps(json.loads(x)["at"]) for x in lines[1:]}
    with path.open("a", encoding="utf-8") as file:
        if not lines:
            print(json.dumps(header(machine, plan.against)), file=file, flush=True)
        for shape in plan.shapes:
            if json.dumps(shape.at) in done:
                continue
            if time.monotonic() - began > seconds:
                print(f"stopped after {seconds} s", file=sys.stderr)
                break
            stage = Stage(machine, shape)
            line: dict[str, Any] = {"at": shape.at, **stage.work(), "refused": {}, "error": {}}
            _timed(stage, plan.chosen(stage, line), line, plan.far)
            print(json.dumps(line), file=file, flush=True)
            del stage
            torch.cuda.empty_cache()


def recording(shapes: Sequence[Any]) -> Plan:
    """The rungs and backends that may be fastest at a shape."""

    def chosen(stage: Stage, line: dict[str, Any]) -> list[Subject]:
        work = line["operations"]
        rungs = (*(SMALL if work <= _SMALL_WORK else ()), *LARGE)
        calls = BACKENDS if work <= _EFFICIENT_WORK else BACKENDS[:2]
        return [*_made(stage, rungs, stage.rung, line), *_made(stage, calls, stage.call, line)]

    return Plan(shapes, (*SMALL, *LARGE), BACKENDS, chosen)


def holding(shapes: Sequence[Any], against: Sequence[str], far: float = _FAR) -> Plan:
    """The entry against library calls."""
    torch_op = import_python_file_as(FOLDER / "torch_op.py", "torch_op")

    def chosen(stage: Stage, line: dict[str, Any]) -> list[Subject]:
        def entry(name: str) -> tuple[Subject, Any]:
            q, k, v = stage.tensors
            causal = stage.shape.causal
            line["ran"] = {ENTRY: torch_op.chosen(q, k, v, causal)}
            return subjects.run_torch_subject(name, lambda: torch_op.attention(q, k, v, causal))

        mine = _made(stage, (ENTRY,), entry, line)
        return [*mine, *_made(stage, against, stage.call, line)]

    return Plan(shapes, sorted(picks.rungs()), against, chosen, far)


def cases() -> list[Any]:
    """The problem's cases as shapes."""
    known = load_problem(FOLDER).module.CASES.values()
    return [picks.Shape(c.S, c.B * c.H, c.D, c.causal) for c in known]


def times_at(lines: Sequence[dict[str, Any]]) -> dict[Any, dict[str, float]]:
    """Shape -> seconds of each that was timed there; what was wrong at any shape is nowhere."""
    wrong = {name for line in lines for name, error in line["error"].items() if not error <= 1}
    table = {}
    for line in lines:
        at, times = line["at"], {n: median(x) for n, x in line["warm"].items()}
        shape = picks.Shape(at["S"], at["BH"], at["D"], at["causal"])
        table[shape] = {n: t for n, t in (line["looked"] | times).items() if n not in wrong}
    return table


def fastest(times: dict[Any, dict[str, float]]) -> dict[str, str]:
    """Shape -> what was fastest there."""
    return {str(shape): min(at, key=lambda n: at[n]) for shape, at in times.items()}


def laws(times: dict[Any, dict[str, float]], sms: int) -> dict[str, Any]:
    """Head dimension and mask -> candidate -> its law, as picks.laws reads it."""
    found: dict[str, dict[str, Any]] = {}
    for d, causal in product(picks.DIMENSIONS, (False, True)):
        family = {s: at for s, at in times.items() if (s.D, s.causal) == (d, causal)}
        made = found[picks.family(d, causal)] = {}
        for name in sorted({n for at in family.values() for n in at}):
            own = {s: at[name] for s, at in family.items() if name in at}
            if len(own) < _FEW:
                continue
            law = law_of(own, sms)
            if sqrt(sum(x**2 for x in law.off.values()) / len(law.off)) > _LOOSE:
                continue
            made[name] = {
                "tiling": list(astuple(law.tiling)),
                "cost": [_short(c) for c in law.cost],
                "times": [
                    [s.rows, s.heads, _short(t), round(law.off[s], 4)] for s, t in own.items()
                ],
            }
    return found


def law_of(times: dict[Any, float], sms: int) -> Any:
    """The law that explains times best: least squares of the ratios, over tilings, no cost negative.

    Of tilings that explain them alike it has the fewest blocks at once: tiles of 64 rows, one an SM, and
    of 32 rows, two an SM, differ only where rows are no multiple of 64, of which few are recorded.
    """
    seconds, found = np.array([*times.values()]), []
    for rows, blocks, keys, parts in product(*_TILINGS):
        tiling = picks.Tiling(rows, blocks * sms, keys, parts)
        work = np.array([tiling.work(s) for s in times], float) / seconds[:, None]
        cost = _not_negative(work)
        law = picks.Law(tiling, tuple(float(c) for c in cost), times, {})
        found.append((float(np.std(np.log(work @ cost))), law))
    least = min(spread for spread, _ in found)
    alike = [x for x in found if x[0] <= _ALIKE * least]
    _, law = min(alike, key=lambda x: (x[1].tiling.blocks, x[0]))
    off = {s: log(t / law.seconds(s, without=s)) for s, t in times.items()}
    return replace(law, off=off)


def _not_negative(work: Any) -> Any:
    """The costs, none below 0, with which every row comes nearest to 1."""
    best, kept = inf, np.zeros(3)
    for which in product((False, True), repeat=3):
        if not any(which):
            continue
        cost = np.zeros(3)
        cost[list(which)] = np.linalg.lstsq(work[:, list(which)], np.ones(len(work)), rcond=None)[0]
        off = float(np.sum((work @ cost - 1) ** 2))
        if cost.min() >= 0 and off < best:
            best, kept = off, cost
    return kept


def recorded() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first header, and the lines of all records."""
    lines = [x for p in RECORDS if p.exists() for x in p.read_text("utf-8").splitlines()[1:]]
    head = json.loads(RECORD.read_text("utf-8").splitlines()[0])
    return head, [json.loads(x) for x in lines]


def write_table() -> None:
    """picks.json, from the recorded grids."""
    head, lines = recorded()
    times = times_at(lines)
    said = {
        "from": [p.relative_to(ROOT).as_posix() for p in RECORDS if p.exists()],
        "gpu": head["gpu"]["name"],
        "fastest": fastest(times),
        "laws": laws(times, head["gpu"]["sms"]),
    }
    text = json.dumps(said, indent=1)
    text = _NUMBERS.sub(lambda m: f"[{' '.join(m[1].split())}]", text)  # a list of them a line
    picks.TABLE.write_text(text + "\n", "utf-8")


def refresh() -> None:
    """Say of every recorded rung whose machine code is the same that its source is today's."""
    folder = build.choose_build_folder_of_kernels(ROOT / "kernels")
    for path in RECORDS:
        if not path.exists():
            continue
        head, *lines = path.read_text("utf-8").splitlines()
        said = json.loads(head)
        chosen = variants.find_named_variants(ROOT / "kernels", list(said["variants"]))
        for made in build.compile_variants_not_built_yet(chosen, ["90"], folder):
            kept = said["variants"][made.variant.id]
            launcher = kept["source"] == made.source or kept.get("host") == made.host is not None
            if kept["sass"] == made.sass and launcher:
                kept |= {"source": made.source, "host": made.host}
        path.write_text("\n".join((json.dumps(said), *lines)) + "\n", "utf-8")


# What needs a GPU. What the entry is held to is recorded first, in case there is no time for the rest.
PLANS = {
    "record": lambda: recording(sorted(picks.RECORDED, key=lambda s: s not in picks.GRID)),
    "finer": lambda: recording(picks.FINER),
    "between": lambda: recording(picks.OFF_GRID),
    "hold": lambda: holding((*picks.GRID, *picks.OFF_GRID, *picks.NEVER), ("sdpa", *BACKENDS)),
    "references": lambda: holding(cases(), load_problem(FOLDER).references, inf),
}
HERE = {"table": write_table, "refresh": refresh}  # what needs no GPU


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=(*PLANS, *HERE))
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=600)
    given = parser.parse_args()
    if given.do in HERE:
        HERE[given.do]()
        return 0
    if given.file is None:
        parser.error(f"{given.do} needs a file to write")
    run(PLANS[given.do](), given.file, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
