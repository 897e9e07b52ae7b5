"""Built probes  ->  checked, timed, or launched for ncu to see, in this process.

Started by record.py with a task file; needs CUDA's runtime library and numpy; profkit as it
lies beside, not installed.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import problem

from profkit.measure.variants.variants import Args

ROUNDS = 15  # timed replays, main and twin in turn
SPAN = 2e-3  # seconds that one replay lasts at least


def runtime() -> str:
    """CUDA's runtime library beside nvcc: the one that the probes were linked with."""
    nvcc = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve()
    roots = [nvcc.parents[1], *sorted(Path("/usr/local").glob("cuda*"), reverse=True)]
    found = (f for root in roots for f in root.glob("lib64/libcudart.so"))
    return str(next(found, "libcudart.so"))


class Device:
    """The CUDA runtime through ctypes: buffers, a stream, launches, graphs, events."""

    def __init__(self) -> None:
        self.rt = ctypes.CDLL(runtime(), mode=ctypes.RTLD_GLOBAL)
        self.buffers = [self._new("cudaMalloc", problem.BYTES) for _ in range(6)]
        for which in (0, 1, 3):
            self._fill(self.buffers[which], problem.tile(which))
        step = problem.TILE // 4
        for first in range(0, problem.WORDS, step):
            self._put(self.buffers[2] + 4 * first, problem.cycle(first, step))
        self.stream = self._new("cudaStreamCreateWithFlags", 1)
        self.events = [self._new("cudaEventCreate") for _ in range(2)]
        given = problem.arguments()
        self.args = Args(scale=given["scale"], causal=given["causal"], stream=self.stream)
        self.args.input[:] = self.buffers[:4]
        self.args.out[:] = self.buffers[4:]
        self.args.size[: len(given["size"])] = given["size"]
        self.reset()

    def call(self, name: str, *values: Any) -> None:
        """Call a function of the runtime; an error raises."""
        error = getattr(self.rt, name)(*values)
        if error:
            raise RuntimeError(f"{name}: CUDA error {error}")

    def _new(self, name: str, *values: Any) -> int:
        made = ctypes.c_void_p()
        sizes = [ctypes.c_size_t(v) if name == "cudaMalloc" else ctypes.c_uint(v) for v in values]
        self.call(name, ctypes.byref(made), *sizes)
        return made.value or 0

    def _put(self, address: int, content: np.ndarray) -> None:
        self.call("cudaMemcpy", ctypes.c_void_p(address), content.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_size_t(content.nbytes), 1)  # fmt: skip

    def _fill(self, address: int, content: np.ndarray) -> None:
        self._put(address, content)
        done = content.nbytes
        while done < problem.BYTES:
            self.call("cudaMemcpy", ctypes.c_void_p(address + done), ctypes.c_void_p(address),
                      ctypes.c_size_t(done), 3)  # fmt: skip
            done *= 2

    def reset(self) -> None:
        """Poison out[0], zero out[1]."""
        for buffer, value in zip(self.buffers[4:], (0xFF, 0), strict=True):
            self.call("cudaMemset", ctypes.c_void_p(buffer), value, ctypes.c_size_t(problem.BYTES))
        self.call("cudaDeviceSynchronize")

    def load(self, library: Path) -> Any:
        """The probe's launcher, called once so that nothing is loaded or set up later."""
        function = ctypes.CDLL(str(library)).profkit_launch
        self.launch(function)
        self.call("cudaDeviceSynchronize")
        return function

    def launch(self, function: Any) -> None:
        """Start a probe on the stream."""
        error = function(ctypes.byref(self.args))
        if error:
            raise RuntimeError(f"profkit_launch: CUDA error {error}")

    def result(self, function: Any) -> np.ndarray:
        """The first TILE bytes of out[0] after one launch on poisoned output."""
        self.reset()
        self.launch(function)
        self.call("cudaDeviceSynchronize")
        words = np.empty(problem.TILE // 4, dtype=np.uint32)
        self.call("cudaMemcpy", words.ctypes.data_as(ctypes.c_void_p),
                  ctypes.c_void_p(self.buffers[4]), ctypes.c_size_t(problem.TILE), 2)  # fmt: skip
        return words

    def graph(self, function: Any, launches: int) -> ctypes.c_void_p:
        """A graph of so many launches, one after the other."""
        made, ready = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cudaStreamBeginCapture", ctypes.c_void_p(self.stream), 2)
        for _ in range(launches):
            self.launch(function)
        self.call("cudaStreamEndCapture", ctypes.c_void_p(self.stream), ctypes.byref(made))
        self.call("cudaGraphInstantiate", ctypes.byref(ready), made, ctypes.c_ulonglong(0))
        return ready

    def seconds(self, graph: ctypes.c_void_p) -> float:
        """How long one replay takes, by events."""
        stream, elapsed = ctypes.c_void_p(self.stream), ctypes.c_float()
        begin, end = map(ctypes.c_void_p, self.events)
        self.call("cudaEventRecord", begin, stream)
        self.call("cudaGraphLaunch", graph, stream)
        self.call("cudaEventRecord", end, stream)
        self.call("cudaEventSynchronize", end)
        self.call("cudaEventElapsedTime", ctypes.byref(elapsed), begin, end)
        return elapsed.value * 1e-3


def time_probe(device: Device, folder: Path, name: str, keys: dict[str, str]) -> dict[str, Any]:
    """Check a probe and its twin, then time them in turn: medians in seconds, all samples."""
    which = ("main", "twin") if keys["twin"] == "yes" else ("main",)
    functions = {w: device.load(folder / f"{name}.{w}.so") for w in which}
    results = [device.result(functions[w]) for w in which]
    found = {"fault": problem.faults(results[0], results[1] if len(results) > 1 else None, keys)}
    graphs, launches = {}, {}
    for w in which:
        one = device.graph(functions[w], 1)
        took = min(device.seconds(one) for _ in range(3))
        launches[w] = max(1, min(200, round(SPAN / took)))
        graphs[w] = device.graph(functions[w], launches[w])
        device.seconds(graphs[w])
    samples: dict[str, list[float]] = {w: [] for w in which}
    for _ in range(ROUNDS):
        for w in which:
            samples[w].append(device.seconds(graphs[w]) / launches[w])
    for w in which:
        found[w] = float(f"{statistics.median(samples[w]):.4g}")
        found[f"{w}_samples"] = [float(f"{s:.4g}") for s in samples[w]]
    return found


def profile(device: Device, folder: Path, launches: list[list[str]], tell: Any) -> None:
    """Launch each once between profiler start and stop, in an NVTX range that names it."""
    nvtx = ctypes.CDLL(str(folder / "nvtx.so"))
    for name, which in launches:
        tell({"start": f"{name}.{which}"})
        function = device.load(folder / f"{name}.{which}.so")
        device.call("cudaProfilerStart")
        nvtx.range_push(f"profkit:{name}:{which}".encode())
        device.launch(function)
        device.call("cudaDeviceSynchronize")
        nvtx.range_pop()
        device.call("cudaProfilerStop")
        tell({"done": f"{name}.{which}"})


def work(task_file: Path) -> None:
    """A child's side: do a list of things, saying before and after each what was done."""
    task = json.loads(task_file.read_text())
    folder = Path(task["folder"])
    with task_file.with_suffix(".log").open("w") as log:

        def tell(line: dict[str, Any]) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        device = Device()
        if task["do"] == "profile":
            profile(device, folder, task["items"], tell)
            return
        paths = problem.probes()
        for (name,) in task["items"]:
            tell({"start": name})
            keys = problem.header(paths[name])
            tell({"done": name, "found": time_probe(device, folder, name, keys)})


if __name__ == "__main__":
    work(Path(sys.argv[1]))
