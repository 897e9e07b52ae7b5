"""A built variant or a library call  ->  every check of it, and what bench times.

Values are checked first, then manners: the last is whether it waits for what it reads. With
programmatic dependent launch a kernel may begin before the one ahead of it has ended, and must wait
(griddepcontrol.wait) before it touches memory. Launched singly, or again and again on the same
arrays, a kernel that forgets to wait is right all the same: what it reads too early is what it should
have read. So here every launch stands in a graph right behind a kernel that lets the next one begin
at once, and only then, late, writes inputs, guards and poison. What was read early is the data of
another launch, or none at all. torch is imported only here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from profkit.lab.measure import bench, check
from profkit.lab.measure.bench import Subject
from profkit.lab.measure.check import CaseCheck, Check
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.data import (
    Arena,
    CaseData,
    copy_tensor_values_to_host,
    make_host_tensor,
    upload_arena,
)
from profkit.lab.measure.variants.problem import Problem

if TYPE_CHECKING:
    from profkit.units import CudaGraph, CudaStream, DeviceAddress, TorchTensor


HOLD = 200_000  # nanoseconds that the kernel ahead writes late: many times a launch
_REPLAYS = 2  # the second one begins on what the first has left
_ADVICE = "in a row of launches, its inputs written by the kernel ahead"


def _check_launches_in_graph(
    library_handle: ctypes.CDLL,
    problem: Problem,
    inputs: Sequence[CaseData],
    tools: library.Support,
    stream: CudaStream,
) -> CaseCheck | None:
    """Launch on one set of inputs after another, in a captured graph, and judge each result.

    `inputs`: the inputs of one case, each of another seed. Return the verdict on the first launch that
    is wrong, or on the last; None where a graph cannot hold what the launcher does (timing it says
    so); CudaError if the context is lost.
    """
    here = upload_arena(inputs[0])
    args = here.make_args(problem, stream)
    blank = _upload_initial_contents(here, None)
    images = [_upload_initial_contents(here, data) for data in inputs]
    results = [device.allocate_device_memory(here.size) for _ in inputs]

    def enqueue_late_inputs_in_row() -> None:
        for image, result in zip(images, results, strict=True):
            tools.copy_after_delay(here.base, blank, here.size, 0, stream)
            tools.copy_after_delay(here.base, image, here.size, HOLD, stream)
            library.call_launcher(library_handle, args)
            tools.copy_after_delay(result, here.base, here.size, 0, stream)

    try:
        if not _try_replay_in_graph(enqueue_late_inputs_in_row, stream):
            return None
        places = zip(inputs, results, strict=True)
        return _judge_outputs_in_row(
            problem, [replace(here, data=data, base=at) for data, at in places]
        )
    except device.CudaError as error:
        return check.make_case_failed_by_cuda(inputs[0], error)
    finally:
        for address in (here.base, blank, *images, *results):
            device.free_device_memory(address)


def _try_replay_in_graph(enqueue_work: Callable[[], None], stream: CudaStream) -> bool:
    """Run a body as a graph, several times in a row; return whether a graph can hold it."""
    captured = _capture_graph_or_none(enqueue_work, stream)
    if captured is None:
        return False
    ready = library.instantiate_graph(captured)
    for _ in range(_REPLAYS):
        library.launch_graph(ready, stream)
    device.wait_for_gpu_or_stream()
    return True


def _capture_graph_or_none(
    enqueue_work: Callable[[], None], stream: CudaStream
) -> CudaGraph | None:
    try:
        return library.capture_graph(stream, enqueue_work)
    except device.CudaError as error:
        if error.code in device.STICKY:
            raise
        return None


def _upload_initial_contents(arena: Arena, data: CaseData | None) -> DeviceAddress:
    """Put elsewhere on the device what stands in the allocation before a launch."""
    address = device.allocate_device_memory(arena.size)
    arena.write_initial_contents_to(data, address)
    return address


def _judge_outputs_in_row(problem: Problem, row: Sequence[Arena]) -> CaseCheck:
    judged: list[CaseCheck] = []
    for at in row:
        judged.append(check.judge_finished_launch(problem, at, at.copy_arena_to_host()))
        if judged[-1].faults:
            faults = tuple(f"{_ADVICE}: {fault}" for fault in judged[-1].faults)
            return replace(judged[-1], faults=(*faults, "does it miss a griddepcontrol.wait?"))
    return judged[-1]


def check_variant_on_all_inputs(
    name: str,
    lib: ctypes.CDLL,
    problem: Problem,
    inputs: Iterable[CaseData],
    tools: library.Support,
) -> Check:
    """Judge a variant on every case and seed, and its manners on the first that is right."""
    stream = device.create_non_blocking_stream()

    def start_call(here: Arena) -> None:
        library.call_launcher(lib, here.make_args(problem, stream))

    data = list(inputs)
    cases = []
    for d in data:
        cases.append(check.run_and_check_case(start_call, problem, d))
    right = []
    for judged, d in zip(cases, data, strict=True):
        if judged.status == "right":
            right.append(d)
    if right:
        manners = check.check_launcher_is_asynchronous(lib, problem, right[0], tools, stream)
        if not manners.faults:
            same = []
            for d in right:
                if d.case == right[0].case:
                    same.append(d)
            manners = _check_launches_in_graph(lib, problem, same, tools, stream) or manners
        if manners.faults:
            cases.append(manners)
    return check.combine_case_checks(name, problem, cases)


def run_native_subject(
    name: str, lib: ctypes.CDLL, problem: Problem, data: CaseData, tools: library.Support
) -> Subject:
    """Run a built variant once on a case's inputs; CudaError if it or a capture refuses."""
    here = upload_arena(data)
    subject = run_launcher_subject(name, lib, lambda stream: here.make_args(problem, stream), tools)

    def judge_result() -> tuple[str, ...]:
        """Return what is wrong with the result; nothing if it is right."""
        if data.begins:  # worked on in place, many times over: once more, from the beginning
            here.write_initial_contents_to(data, here.base)
            subject.call(device.create_non_blocking_stream())
            device.wait_for_gpu_or_stream()
        return check.judge_finished_launch(problem, here, here.copy_arena_to_host()).faults

    return replace(subject, judge=judge_result)


def run_launcher_subject(
    name: str,
    lib: ctypes.CDLL,
    arguments: Callable[[CudaStream], library.Args],
    tools: library.Support,
) -> Subject:
    """Return a library's one function, run once on what `arguments` gives for a stream.

    CudaError if the launcher refuses, or a graph cannot hold what it does.
    """
    args = cache(arguments)

    def start_call(stream: CudaStream) -> None:
        library.call_launcher(lib, args(stream))

    def time_calls(n: int, stream: CudaStream) -> bench.PlainCall:
        return bench.time_plain_calls(
            lambda: tools.time_launcher_on_host(lib, args(stream), n), n, stream
        )

    return _add_captured_launches(Subject(name, start_call, bench.capture_replay, time_calls))


def run_and_check_reference(
    name: str, problem: Problem, data: CaseData
) -> tuple[Subject, CaseCheck]:
    """Run a library call of the problem once on a case's inputs and judge it."""
    subject, out = run_torch_subject(
        name, problem.make_reference_call(name, data.case, load_inputs_as_gpu_tensors(data))
    )
    if not isinstance(out, tuple):
        out = (out,)
    outputs = list(map(copy_tensor_values_to_host, out))
    return subject, check.judge_output_values(problem, data, outputs)


def run_torch_subject(name: str, call: Callable[[], Any]) -> tuple[Subject, Any]:
    """Run a call into torch once; ReferenceUnavailable if there is no kernel for it on this GPU."""
    import torch

    streams: dict[int, Any] = {}

    def use_stream(stream: CudaStream) -> Any:
        external = streams.setdefault(stream, torch.cuda.ExternalStream(stream))
        return torch.cuda.stream(external)

    def start_call(stream: CudaStream) -> None:
        with use_stream(stream):
            call()

    def capture_graph(body: Callable[[], None], stream: CudaStream) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.ExternalStream(stream)):
            body()

        def replay_graph() -> None:
            with use_stream(stream):
                graph.replay()

        return replay_graph

    def time_calls(n: int, stream: CudaStream) -> bench.PlainCall:
        with use_stream(stream):
            return bench.time_plain_calls(lambda: bench.measure_host_seconds(call, n), n, stream)

    try:
        out = call()
        torch.cuda.synchronize()
    except RuntimeError as error:  # torch says "no available kernel" with a plain RuntimeError
        raise ReferenceUnavailable(str(error).splitlines()[0]) from error
    brought = list_library_versions(torch.version.cuda, torch.backends.cudnn.version())
    return _add_captured_launches(
        Subject(name, start_call, capture_graph, time_calls, brought=brought)
    ), out


def list_library_versions(cuda_version: str | None, cudnn_number: int | None) -> dict[str, str]:
    """Return the versions of CUDA and cuDNN that torch brings; without what it lacks."""
    found = {}
    if cuda_version:
        found = {"cuda": cuda_version}
    if cudnn_number:  # 91002 is 9.10.2; before 9 the first part counted thousands
        if cudnn_number >= 10000:
            major = 10000
        else:
            major = 1000
        found["cudnn"] = (
            f"{cudnn_number // major}.{cudnn_number % major // 100}.{cudnn_number % 100}"
        )
    return found


class ReferenceUnavailable(Exception):
    """The library cannot do this case here."""


def load_inputs_as_gpu_tensors(data: CaseData) -> list[TorchTensor]:
    """Load the inputs as torch's tensors on the GPU."""
    arrays = zip(data.load_inputs(), data.shapes, strict=True)
    return [make_host_tensor(array, dtype).cuda() for array, (_, dtype) in arrays]


def _add_captured_launches(subject: Subject) -> Subject:
    """Return the subject with its kernel launches, read from a graph that is thrown away."""
    stream = device.create_non_blocking_stream()
    for _ in range(2):  # the first call may load modules, which a capture forbids
        subject.call(stream)
    device.wait_for_gpu_or_stream()
    captured = library.capture_graph(stream, lambda: subject.call(stream))
    return replace(subject, launches=tuple(library.list_kernel_launches_of_graph(captured)))
