"""Chrome traces as torch.profiler writes them, of programs that never ran.

A host that launches and waits, and a GPU with streams: what it writes is what a run of such a
program would have given, so the step with and without a planted problem is known exactly.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LATENCY = 5.0  # microseconds from a launch to its kernel on an idle stream
CALL = 4.0  # microseconds in a launch
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_ffma_execute_kernel__5x_cublas"
MUL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, "
    "float, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)
EXP = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda, "
    "std::array<char*, 2ul> >(int)"
)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*)"
)
ADDCDIV = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::addcdiv_cuda_kernel, "
    "std::array<char*, 4ul> >(int)"
)
H200 = {"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}


class Program:
    """A host and a GPU; times in microseconds."""

    def __init__(self, host: float = 10.0) -> None:
        self.host = host  # of its own work before each launch
        self.now = 1000.0
        self.free: dict[int, float] = {}
        self.events: list[dict[str, Any]] = []
        self.correlation = 0
        self.step_number = 0
        self.steps: list[float] = []

    def launch(
        self,
        name: str,
        took: float,
        *,
        stream: int = 7,
        grid: tuple[int, int, int] = (528, 1, 1),
        after: int | None = None,
        **more: Any,
    ) -> None:
        """A kernel; `after` is a stream that it waits for, `more` its further arguments."""
        self.now += self.host
        about = {"grid": list(grid), "block": [256, 1, 1], **more}
        self._gpu(name, took, stream, "kernel", after, **about)
        self.now += CALL

    def copy(
        self,
        size: int,
        rate: float,
        *,
        direction: str = "HtoD",
        pageable: bool = True,
        stream: int = 7,
    ) -> None:
        """A copy of `size` bytes at `rate` GB/s; a pageable one holds the host until it is done."""
        self.now += self.host
        host = "Pageable" if pageable else "Pinned"
        ends = (host, "Device") if direction == "HtoD" else ("Device", host)
        name = f"Memcpy {direction} ({ends[0]} -> {ends[1]})"
        end = self._gpu(name, size / rate / 1e3, stream, "gpu_memcpy", None, bytes=size)
        if pageable:
            self.events[-2]["dur"] = end + 2 - self.now
            self.now = end + 2
        else:
            self.now += CALL

    def replay(
        self,
        kernels: Sequence[tuple[str, float]],
        *,
        stream: int = 7,
        call: str = "cudaGraphLaunch",
    ) -> None:
        """One launch of a captured graph: its kernels follow each other on a stream."""
        self.now += self.host
        self.correlation += 1
        key = {"correlation": self.correlation}
        self._event(call, "cuda_runtime", self.now, CALL, key, tid=1)
        begin = max(self.free.get(stream, 0.0), self.now + LATENCY)
        for node, (name, took) in enumerate(kernels, 1):
            about = {"device": 0, "stream": stream, "grid": [528, 1, 1], "block": [256, 1, 1]}
            about |= {"graph node id": node}
            self._event(name, "kernel", begin, took, {**key, **about}, pid=0)
            begin += took + 1.0
        self.free[stream] = begin - 1.0
        self.now += CALL

    def call(self, name: str, took: float, kind: str = "cuda_driver") -> None:
        """A call of the host that gives the GPU nothing to do."""
        self.correlation += 1
        key = {"correlation": self.correlation}
        self._event(name, kind, self.now, took, key, tid=1)
        self.now += took

    def graph(self, kernels: list[tuple[str, float]], lag: float = 1.0, stream: int = 7) -> None:
        """One launch of a captured graph: its kernels follow each other after a lag."""
        self.now += self.host
        self.correlation += 1
        key = {"correlation": self.correlation}
        self._event("cudaGraphLaunch", "cuda_runtime", self.now, 20.0, key, tid=1)
        ready = max(self.free.get(stream, 0.0), self.now + LATENCY)
        about = {**key, "device": 0, "stream": stream, "grid": [528, 1, 1], "block": [256, 1, 1]}
        for name, took in kernels:
            self._event(name, "kernel", ready, took, {**about, "graph id": 3}, pid=0)
            ready += took + lag
        self.free[stream] = ready - lag if kernels else ready
        self.now += 20.0

    @contextmanager
    def capture(self) -> Iterator[None]:
        """What is launched inside is captured: its calls are recorded, and nothing runs."""
        self.call("cudaStreamBeginCapture", 2.0, "cuda_runtime")
        at = len(self.events)
        yield
        ran = self.events[at:]
        self.events[at:] = [event for event in ran if event["pid"] != 0]
        self.call("cudaStreamEndCapture", 2.0, "cuda_runtime")

    def delay(self, took: float, stream: int = 7) -> None:
        """The stream does not begin its next work for some time, for a reason that nobody records."""
        self.free[stream] = max(self.free.get(stream, 0.0), self.now) + took

    def load(self, name: str, took: float, loading: float, stream: int = 7) -> None:
        """A first launch: the call loads the kernel's code before the kernel can begin."""
        self.now += self.host
        call = len(self.events)
        began = self.now
        self.now += loading - LATENCY
        about = {"grid": [528, 1, 1], "block": [256, 1, 1]}
        self._gpu(name, took, stream, "kernel", None, **about)
        self.now += LATENCY
        self.events[call] |= {"ts": round(began, 3), "dur": round(loading, 3)}

    def lose(self) -> None:
        """What the GPU did last is not in the recording; its launch is."""
        on_gpu = [i for i, event in enumerate(self.events) if event["pid"] == 0]
        if on_gpu:
            self.events.pop(on_gpu[-1])

    def wait(self, stream: int = 7, call: str = "cudaStreamSynchronize") -> None:
        """The host waits for a stream."""
        self.now += 1
        until = max(self.now, self.free.get(stream, 0.0)) + 3
        self.correlation += 1
        self._event(
            call,
            "cuda_runtime",
            self.now,
            until - self.now,
            {"correlation": self.correlation},
            tid=1,
        )
        self.now = until

    def work(self, took: float) -> None:
        """The host does something of its own."""
        self.now += took

    @contextmanager
    def op(
        self,
        name: str,
        shapes: list[Any] | None = None,
        kind: str = "cpu_op",
        types: list[str] | None = None,
        **more: Any,
    ) -> Iterator[None]:
        """An operator, or with another kind a range or a Python frame, round what is in it."""
        began = self.now
        args = {"Input Dims": shapes, "Input type": types} if shapes else {}
        args |= more
        at = len(self.events)
        self._event(name, kind, began, 0.0, args, tid=1)
        yield
        self.events[at]["dur"] = self.now - began + 0.5

    @contextmanager
    def step(self) -> Iterator[None]:
        """One step, marked as torch.profiler marks it."""
        self.steps.append(self.now)
        self.step_number += 1
        with self.op(f"ProfilerStep#{self.step_number}", kind="user_annotation"):
            yield

    def _gpu(
        self, name: str, took: float, stream: int, kind: str, after: int | None, **more: Any
    ) -> float:
        ready = max(self.free.get(stream, 0.0), self.now + LATENCY)
        if after is not None:
            ready = max(ready, self.free.get(after, 0.0))
        self.free[stream] = ready + took
        self.correlation += 1
        call = "cudaLaunchKernel" if kind == "kernel" else "cudaMemcpyAsync"
        key = {"correlation": self.correlation}
        self._event(call, "cuda_runtime", self.now, CALL, key, tid=1)
        self._event(name, kind, ready, took, {**key, "device": 0, "stream": stream, **more}, pid=0)
        return ready + took

    def _event(
        self,
        name: str,
        kind: str,
        start: float,
        took: float,
        args: dict[str, Any],
        *,
        pid: int = 42,
        tid: int = 7,
    ) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": kind,
                "name": name,
                "pid": pid,
                "tid": tid,
                "ts": round(start, 3),
                "dur": round(took, 3),
                "args": args,
            }
        )

    def text(self, **header: Any) -> str:
        """The trace."""
        head = {"schemaVersion": 1, "deviceProperties": [H200], **header}
        return json.dumps({**head, "traceEvents": self.events})

    def write(self, path: Path, **header: Any) -> Path:
        """The trace as a file."""
        text = self.text(**header).encode()
        path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
        return path


def ran(step: Callable[[Program], None], steps: int = 6, host: float = 10.0) -> Program:
    """A program that has done some steps."""
    program = Program(host)
    for _ in range(steps):
        with program.step():
            step(program)
    return program


def plain_ms(step: Callable[[Program], None], host: float = 10.0) -> float:
    """Milliseconds a step in the long run."""
    program = Program(host)
    ends = []
    for _ in range(40):
        step(program)
        ends.append(max(program.now, *program.free.values()))
    return (ends[-1] - ends[19]) / 20 / 1e3
