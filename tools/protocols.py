"""One call as four benchmarks time it: ours, cudnn-frontend's, FlashAttention's and Triton's.

    python tools/protocols.py artifacts/protocols.json [--only PROBLEM]

Needs a GPU, torch and Triton; cuDNN's own graphs also the module `cudnn` (nvidia-cudnn-frontend). Of
each comparison everything is timed in one process, on the same tensors, protocol after protocol; how far
off it is from the first library call, in units of the problem's tolerance, stands beside it. A file that
already exists is gone on with: what is timed again replaces what stood there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from attention_grid import Machine

from profkit.lab.measure import bench, subjects
from profkit.lab.measure.bench import Subject
from profkit.lab.measure.cuda import device
from profkit.lab.measure.data import choose_storage_type, make_host_tensor
from profkit.lab.measure.variants.problem import load_problem

ROOT = Path(__file__).parents[1]
KERNELS = ROOT / "kernels"
_FLUSH = 256 * 2**20  # bytes that cudnn-frontend's benchmark clears
_WARM, _SHOTS = 5, 10
Call = Callable[[], Any]


@dataclass(frozen=True)
class Comparison:
    """What is timed side by side: variants and library calls of a problem at a case."""

    name: str  # of the row: problem, case
    problem: str  # its folder
    case: str | Callable[[Any], Any]  # one of its cases, or a function that makes one
    ours: tuple[str, ...]  # variants
    theirs: tuple[str, ...]  # library calls of the problem
    graph: bool = False  # cuDNN's own graph too: bfloat16, or e4m3 where the inputs are codes


def _nvidia(causal: bool) -> Callable[[Any], Any]:
    """NVIDIA's published shape: 64 query heads on 8 key heads, 2048, 128."""
    return lambda module: module.Case(1, 64, 8, 2048, 128, causal)


SDPA = ("sdpa-cudnn", "sdpa-flash")
FP8 = ("packbeside",), ("sdpa",), True
COMPARISONS = (
    Comparison("attention C", "attention", "C", ("latev",), SDPA),
    Comparison("attention C-causal", "attention", "C-causal", ("nomax",), SDPA),
    Comparison("attention D", "attention", "D", ("latev", "qregisters"), SDPA),
    Comparison("attention D-causal", "attention", "D-causal", ("latev", "qregisters"), SDPA),
    Comparison("gqa 2k-8to1", "gqa", "2k-8to1", ("groupwgmma",), ("sdpa",)),
    Comparison("gqa NVIDIA's", "gqa", _nvidia(False), ("groupwgmma",), ("sdpa",), graph=True),
    Comparison("gqa NVIDIA's causal", "gqa", _nvidia(True), ("groupwgmma",), ("sdpa",), graph=True),
    Comparison("decode 16k-8", "decode", "16k-8", ("earlymerge",), ("sdpa", "copy")),
    Comparison(
        "layernorm LN4096", "layernorm", "LN4096", ("widerow", "tritonln"), ("compile", "copy")
    ),
    Comparison("blocksparse sparse89", "blocksparse", "sparse89", ("longestfirst",), ("flex",)),
    Comparison("fp8 2k", "fp8", "2k", *FP8),
    Comparison("fp8 2k-causal", "fp8", "2k-causal", *FP8),
    Comparison("fp8 4k", "fp8", "4k", *FP8),
    Comparison("fp8 4k-causal", "fp8", "4k-causal", *FP8),
)

# --- the protocols -------------------------------------------------------------------------------


def cudnn_frontend(call: Call) -> list[float]:
    """Single shots by torch's profiler: 256 MB cleared before each, a pause in proportion after it.

    github.com/NVIDIA/cudnn-frontend, benchmark/sdpa_benchmark_training/benchmark_single_sdpa.py: time
    of the call's kernels; five shots dropped, the median of ten. There inputs are drawn anew each time.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    cleared, shots = torch.empty(_FLUSH, dtype=torch.int8, device="cuda"), []
    for _ in range(_WARM + _SHOTS):
        cleared.zero_()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            call()
            torch.cuda.synchronize()
        kernels = [e for e in seen.key_averages() if not e.key.startswith("Memset")]
        shots.append(sum(e.device_time_total for e in kernels) * 1e-6)
        time.sleep(2 * min(shots[-1] * 1e3 / 100, 1.0))
    return shots[_WARM:]


def triton(call: Call, warm: int = 25, rep: int = 100) -> list[float]:
    """Events round each call, 256 MB cleared before each, for 25 ms to warm up and 100 ms: the mean.

    triton.testing.do_bench of the Triton that is installed; milliseconds.
    """
    from triton.testing import do_bench

    times: list[float] = do_bench(call, warmup=warm, rep=rep, return_mode="all")
    return [x * 1e-3 for x in times]


def flash_attention(call: Call) -> list[float]:
    """Triton's do_bench for 5 ms and 10 ms after a second's rest: the mean.

    github.com/Dao-AILab/flash-attention, hopper/benchmark_attn.py (time_fwd; "to avoid residual power
    throttling from the previous benchmark").
    """
    time.sleep(1)
    return triton(call, 5, 10)


# Protocol -> what times a call, and what is said of its samples. "ours" is time_subjects_in_turns:
# replayed graphs with a warm L2, in turns with everything else, the median.
PROTOCOLS: dict[str, tuple[Callable[[Call], list[float]], Callable[[Sequence[float]], float]]] = {
    "cudnn-frontend": (cudnn_frontend, median),
    "flash-attention": (flash_attention, mean),
    "triton": (triton, mean),
}

# --- what is timed -------------------------------------------------------------------------------


def session(machine: Machine) -> dict[str, Any]:
    """What was used."""
    import torch

    versions = {"torch": torch.__version__, "triton": __import__("triton").__version__}
    versions |= subjects.list_library_versions(torch.version.cuda, torch.backends.cudnn.version())
    power = device.read_gpu_state(machine.gpu.pci).power_limit
    return {**machine.used(), "versions": versions, "power_limit": power}


def zeros(shape: Sequence[int], dtype: str) -> Any:
    """A tensor of zeros, of a type that a problem names."""
    return make_host_tensor(np.zeros(shape, choose_storage_type(dtype)), dtype).cuda()


def cudnn_graph(case: Any, tensors: Sequence[Any]) -> Call:
    """The attention graph of cuDNN in bfloat16, as cudnn-frontend's benchmark builds it."""
    import cudnn
    import torch

    given, fp32 = [x.bfloat16() for x in tensors], cudnn.data_type.FLOAT
    graph, names = _graph(given, cudnn.data_type.BFLOAT16)
    o, stats = graph.sdpa(
        **names, generate_stats=True, attn_scale=case.D**-0.5, use_causal_mask=case.causal
    )
    out, rows = torch.empty_like(given[0]), torch.empty(*given[0].shape[:3], 1, device="cuda")
    made = {o: (out, cudnn.data_type.BFLOAT16), stats: (rows, fp32)}
    return _built(graph, dict(zip(names.values(), given, strict=True)), made)


def cudnn_fp8(case: Any, tensors: Sequence[Any]) -> Call:
    """The same of e4m3 codes; cuDNN 9.19 writes codes on Hopper, here with a scale of one."""
    import cudnn
    import torch

    *bits, scales = tensors
    codes, fp32 = [x.view(torch.float8_e4m3fn) for x in bits], cudnn.data_type.FLOAT
    graph, names = _graph(codes, cudnn.data_type.FP8_E4M3)
    values = torch.stack([*scales, *torch.tensor([1 / 256, 256, 1], device="cuda")]).reshape(
        6, 1, 1, 1, 1
    )
    sides = dict(
        zip(
            ("descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"),
            values,
            strict=True,
        )
    )
    one = {"dim": [1] * 4, "stride": [1] * 4, "data_type": fp32}
    scaled = {name: graph.tensor(name=name, **one) for name in sides}
    o, stats, *most = graph.sdpa_fp8(
        **names, **scaled, generate_stats=True, attn_scale=128**-0.5, use_causal_mask=case.causal
    )
    rows = torch.empty(*codes[0].shape[:3], 1, device="cuda")
    made = {o: (torch.empty_like(codes[0]), cudnn.data_type.FP8_E4M3), stats: (rows, fp32)}
    made |= {x: (torch.zeros(1, 1, 1, 1, device="cuda"), fp32) for x in most}
    given = dict(zip(names.values(), codes, strict=True)) | {scaled[n]: x for n, x in sides.items()}
    return _built(graph, given, made)


def _graph(given: Sequence[Any], dtype: Any) -> tuple[Any, dict[str, Any]]:
    """A graph of cuDNN and its q, k and v."""
    import cudnn

    fp32 = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(io_data_type=dtype, intermediate_data_type=fp32, compute_data_type=fp32)
    names = {
        n: graph.tensor(name=n, dim=list(x.shape), stride=list(x.stride()), data_type=dtype)
        for n, x in zip("qkv", given, strict=True)
    }
    return graph, names


def _built(graph: Any, given: dict[Any, Any], made: dict[Any, tuple[Any, Any]]) -> Call:
    """A call of a graph; the first of what it makes is the output."""
    import cudnn
    import torch

    for tensor, (x, dtype) in made.items():
        tensor.set_output(True).set_data_type(dtype)
        tensor.set_dim(list(x.shape)).set_stride(list(x.stride()))
    for step in (graph.validate, graph.build_operation_graph):
        step()
    graph.create_execution_plans([cudnn.heur_mode.A])
    for step in (graph.check_support, graph.build_plans):
        step()
    space = torch.empty(max(1, graph.get_workspace_size()), device="cuda", dtype=torch.uint8)
    pack = given | {tensor: x for tensor, (x, _) in made.items()}
    handle, out = cudnn.create_handle(), next(iter(made.values()))[0]

    def attend() -> Any:
        cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
        graph.execute(pack, space, handle=handle)
        return out

    return attend


def compared(machine: Machine, asked: Comparison) -> list[dict[str, Any]]:
    """A row for each kernel of a comparison."""
    import torch

    problem = load_problem(KERNELS / asked.problem)
    module = problem.module
    case = asked.case(module) if callable(asked.case) else problem.get_case(asked.case)
    arrays = module.inputs(case, 0)
    types = [t for _, t in module.input_types(case)] if hasattr(module, "input_types") else None
    given = [
        make_host_tensor(a, types[i] if types else str(a.dtype)).cuda()
        for i, a in enumerate(arrays)
    ]
    calls: dict[str, tuple[Subject, Any]] = {}
    for name in asked.theirs:
        once = module.reference_call(name, case, given)
        calls[name] = subjects.run_torch_subject(name, once)
    if asked.graph:
        codes = given[0].dtype == torch.uint8
        name, make = ("cudnn e4m3", cudnn_fp8) if codes else ("cudnn bf16", cudnn_graph)
        calls[name] = subjects.run_torch_subject(name, make(case, given))
    for name in asked.ours:
        outs = [zeros(shape, dtype) for shape, dtype in module.outputs(case)]
        calls[name] = machine.variant(name, module.arguments(case), given, outs), outs
    right = outputs_of(next(iter(calls.values()))[1])
    atol, rtol = (
        module.tolerance(case) if hasattr(module, "tolerance") else (module.ATOL, module.RTOL)
    )
    work = {"operations": module.operations(case), "bytes": module.compulsory_bytes(case)}
    every = {name: subject for name, (subject, _) in calls.items()}
    ours = {
        t.name: t
        for t in bench.time_subjects_in_turns(
            [*every.values()], asked.name, machine.gpu, machine.tools, False, (30, 60)
        )
    }
    rows = []
    for name, (subject, out) in calls.items():
        first = ours[name]
        times = {"ours": said(median, first.warm, first.after)}
        for protocol, (timed, told) in PROTOCOLS.items():
            samples = timed(lambda s=subject: s.call(torch.cuda.current_stream().cuda_stream))
            times[protocol] = said(told, samples, device.read_gpu_state(machine.gpu.pci))
        off = [
            ((a.float() - b.float()).abs() / (atol + rtol * b.float().abs())).max().item()
            for a, b in zip(outputs_of(out), right, strict=True)
        ]
        row = {
            "name": asked.name,
            "kernel": name,
            "mine": name in asked.ours,
            "off": max(off),
            **work,
            "launches": len(subject.launches),
            "times": times,
        }
        print(
            asked.name,
            name,
            f"off {max(off):.2f}",
            *(f"{p} {t['seconds'] * 1e6:.1f}" for p, t in times.items()),
            flush=True,
        )
        rows.append(row)
    return rows


def outputs_of(out: Any) -> list[Any]:
    """One output or several, as a list."""
    return list(out) if isinstance(out, tuple | list) else [out]


def said(
    told: Callable[[Sequence[float]], float], samples: Sequence[float], after: Any
) -> dict[str, Any]:
    """What a protocol says, its samples' ends, and the GPU right after."""
    ends = {"least": min(samples), "most": max(samples), "samples": len(samples)}
    gpu = {"sm_clock": after.sm_clock, "power": after.power}
    return {"seconds": told(samples), **ends, **gpu}


_EMPTY: dict[str, Any] = {
    "schema": "profkit.protocols/1",
    "sources": {n: (f.__doc__ or "").strip() for n, (f, _) in PROTOCOLS.items()},
    "sessions": [],
    "rows": [],
}


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", action="append")
    given = parser.parse_args()
    asked = [c for c in COMPARISONS if c.problem in (given.only or [c.problem])]
    machine = Machine(sorted({name for c in asked for name in c.ours}))
    kept = json.loads(given.file.read_text("utf-8")) if given.file.exists() else _EMPTY
    names = [c.name for c in asked]
    kept["rows"] = [row for row in kept["rows"] if row["name"] not in names]
    kept["sessions"].append(session(machine))
    import torch

    for comparison in asked:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                rows = compared(machine, comparison)
            kept["rows"] += [{**row, "session": len(kept["sessions"]) - 1} for row in rows]
        except (RuntimeError, subjects.ReferenceUnavailable, device.CudaError) as error:
            print(comparison.name, "left out:", str(error)[:300], flush=True)
        given.file.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main())
