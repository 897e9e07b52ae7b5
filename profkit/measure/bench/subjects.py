"""A variant's library, or a call into torch  ->  a bench Subject. torch is imported only here."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from profkit.measure.bench import bench
from profkit.measure.bench.bench import Subject
from profkit.measure.check import arena
from profkit.measure.check.check import CaseCheck, judge_case, judge_values
from profkit.measure.check.data import Data, tensor_of, values_of_tensor
from profkit.measure.cuda import device, graph, library
from profkit.measure.cuda.library import Args
from profkit.measure.variants.problem import Problem


def native(
    name: str, lib: ctypes.CDLL, problem: Problem, data: Data, tools: library.Support
) -> Subject:
    """A built variant on one case's inputs, run once.

    Raises:
        CudaError: The launcher refused, or a graph cannot hold what it does.
    """
    here = arena.place_arena(data)
    values = problem.module.arguments(problem.case(data.case))
    subject = launcher(name, lib, lambda stream: arena.args_on(here, values, stream), tools)

    def judge() -> tuple[str, ...]:
        if data.begins:  # worked on in place, many times over: once more, from the beginning
            arena.poison(here)
            subject.call(device.new_stream())
            device.synchronize()
        return judge_case(problem, here, arena.fetch(here)).faults

    return replace(subject, judge=judge)


def launcher(
    name: str, lib: ctypes.CDLL, arguments: Callable[[int], Args], tools: library.Support
) -> Subject:
    """A library's one function on arguments that stand, run once.

    `arguments` gives, for a stream, what the function is given.

    Raises:
        CudaError: The launcher refused, or a graph cannot hold what it does.
    """
    args = cache(arguments)

    def call(stream: int) -> None:
        library.start_launcher(lib, args(stream))

    def eager(n: int, stream: int) -> tuple[float, float]:
        return bench.eager_time(lambda: tools.repeat(lib, args(stream), n), n, stream)

    return _seen(Subject(name, call, bench.native_capture, eager))


def reference_subject(name: str, problem: Problem, data: Data) -> tuple[Subject, CaseCheck]:
    """A library call of the problem on one case's inputs, run once and judged.

    Raises:
        ReferenceUnavailable: The library has no kernel for this case on this GPU.
    """
    subject, out = torch_call(name, problem.reference_call(name, data.case, to_torch(data)))
    outputs = [values_of_tensor(o) for o in (out if isinstance(out, tuple) else (out,))]
    return subject, judge_values(problem, data, outputs)


def torch_call(name: str, once: Callable[[], Any]) -> tuple[Subject, Any]:
    """A call into torch, run once, and what that returned.

    Raises:
        ReferenceUnavailable: The library has no kernel for it on this GPU.
    """
    import torch

    streams: dict[int, Any] = {}

    def on(stream: int) -> Any:
        external = streams.setdefault(stream, torch.cuda.ExternalStream(stream))
        return torch.cuda.stream(external)

    def call(stream: int) -> None:
        with on(stream):
            once()

    def capture(body: Callable[[], None], stream: int) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.ExternalStream(stream)):
            body()

        def replay() -> None:
            with on(stream):
                graph.replay()

        return replay

    def eager(n: int, stream: int) -> tuple[float, float]:
        with on(stream):
            return bench.eager_time(lambda: bench.host_time(once, n), n, stream)

    try:
        out = once()
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch says "no available kernel" with a plain RuntimeError
        raise ReferenceUnavailable(str(error).splitlines()[0]) from error
    brought = versions_of(torch.version.cuda, torch.backends.cudnn.version())
    return _seen(Subject(name, call, capture, eager, brought=brought)), out


def versions_of(cuda: str | None, cudnn: int | None) -> dict[str, str]:
    """CUDA and cuDNN as torch says them, cuDNN's number in its three parts; without what it lacks."""
    found = {"cuda": cuda} if cuda else {}
    if cudnn:  # 91002 is 9.10.2; before 9 the first part counted thousands
        major = 10000 if cudnn >= 10000 else 1000
        found["cudnn"] = f"{cudnn // major}.{cudnn % major // 100}.{cudnn % 100}"
    return found


class ReferenceUnavailable(Exception):
    """The library cannot do this case here."""


def to_torch(data: Data) -> list[Any]:
    """The inputs of a case as tensors on the GPU."""
    arrays = zip(data.inputs(), data.shapes, strict=True)
    return [tensor_of(array, dtype).cuda() for array, (_, dtype) in arrays]


def _seen(subject: Subject) -> Subject:
    """The subject with its kernel launches, read from a graph that is thrown away."""
    stream = device.new_stream()
    for _ in range(2):  # the first call may load modules, which a capture forbids
        subject.call(stream)
    device.synchronize()
    captured = graph.capture(stream, lambda: subject.call(stream))
    return replace(subject, launches=tuple(graph.graph_launches(captured)))
