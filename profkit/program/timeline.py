"""What ran where and when in a program, whoever recorded it.

Times are integer nanoseconds from the timeline's own beginning: all that is read into these has one
clock. A timeline holds one process a rank; readers make it, everything else in this room reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.units import Nanoseconds, OperatorName, Sentence, TextOrEmpty


Dims = tuple[int, int, int]
FARTHEST = 1 << 62  # nanoseconds from zero, 146 years: a clock ends there; and bytes of a tensor
# CUPTI's numbers for copies, the same since the activity API began.
DIRECTIONS = dict(enumerate("HtoD DtoH HtoD DtoH DtoD DtoD DtoD DtoD HtoH PtoP".split(), 1))
WAITS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cudaFree",
    "cuMemFree",
    "hipStreamSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
    "hipFree",
    # A copy that returns when it is done: how PyTorch reads a value on AMD's GPUs.
    "hipMemcpyWithStream",
)
ALLOCATES = (
    "cudaMalloc",
    "cudaHostAlloc",
    "cudaHostRegister",
    "cuMemAlloc",
    "cudaFree",
    "cuMemFree",
    "hipMalloc",
    "hipHostMalloc",
    "hipHostRegister",
    "hipFree",
)
# These wait for nothing.
ASYNC = (
    "cudaFreeAsync",
    "cuMemFreeAsync",
    "cudaMallocAsync",
    "cuMemAllocAsync",
    "hipFreeAsync",
    "hipMallocAsync",
)
# Calls that give the GPU something to do; a graph's launch gives it many kernels.
_LAUNCH = re.compile(r"^(cuda|cu|hip)(Graph|Ext|Module|ExtModule|HccModule)?Launch(?!Host)")
_GRAPH_LAUNCH = re.compile(r"^(cuda|cu|hip)GraphLaunch")
_CAPTURE = re.compile(r"^(cuda|cu|hip)Stream(Begin|End)Capture")
# Of a call's name, what tells its version or its kind of default stream: cudaLaunchKernel_v7000.
_VERSION = re.compile(r"(?<=[a-z])(_v\d+|_ptsz|_ptds)+$")
UNIFIED_MEMORY = "Unified memory"  # how the names of copies begin that no call made
GRAPH = "graph"  # kind of an activity that is a whole CUDA graph, recorded as one

# Of a process: more is a program that never ends its ranges, and each call would be inside of all.
OPEN_MOST = 100


def remove_version_suffix(name: str) -> str:
    """Return a call as a program writes it: cudaLaunchKernel of cudaLaunchKernel_ptsz_v7000."""
    return _VERSION.sub("", name)


def read_tensor_sizes(shape: object) -> tuple[int, ...]:
    """Return a tensor's sizes; empty for a scalar, a list of tensors, and what no memory holds."""
    if not shape or not isinstance(shape, list | tuple):
        return ()
    product = 1
    for size in shape:
        if type(size) is not int or size < 0:
            return ()
        product *= size or 1
    if product < FARTHEST:
        return tuple(shape)
    return ()


def read_operand_sizes(operator: OperatorName, listed: list[object]) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of an operator's inputs; of a concatenation those of the tensors in its list."""
    first = None
    if listed:
        first = listed[0]
    if operator == "aten::cat" and isinstance(first, list):
        parts = tuple(read_tensor_sizes(part) for part in first)
        if any(parts):
            return parts
    return tuple(read_tensor_sizes(shape) for shape in listed)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where in a program's Python something was launched; empty is what is not known."""

    line: str = ""  # the line that says what is computed: src/model.py:64
    function: str = ""  # the function it is in: CausalSelfAttention.forward
    module: str = ""  # the path of the nn.Module that computes it: transformer.h.3.attn
    kind: str = ""  # that module's class
    called: str = ""  # the user's line from which the model was called: src/train.py:88
    part: str = ""  # forward, backward or optimizer
    # of a kernel that a compiler made of several lines: all of them, what weighs most first
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Activity:
    """One thing that a GPU did."""

    kind: str  # kernel, copy, set (a memset) or graph (all that one launch of a graph ran)
    name: str  # the kernel's demangled name; "Memcpy HtoD" and the like
    start: int
    end: int
    device: int = 0
    stream: int = 0
    correlation: int = 0  # the call that caused it has the same
    grid: Dims | None = None  # blocks of a kernel; None where it was not recorded
    block: Dims | None = None  # threads of a block
    shared: int = 0  # bytes of shared memory a block, static and dynamic
    registers: int = 0  # a thread's
    bytes: int = 0  # of a copy or set
    direction: str = ""  # of a copy: HtoD, DtoH, DtoD, PtoP or HtoH
    pageable: bool = False  # whether the host's side of a copy is pageable memory
    graph: bool = False  # whether a captured graph launched it
    origin: int = -1  # index among its process's places; -1 where none is known
    # of what a graph runs: the number of the call that was captured for it; 0 where none is known
    captured: int = 0

    @property
    def duration(self) -> Nanoseconds:
        """Return nanoseconds."""
        return self.end - self.start


def make_activity(
    kind: str, name: str, start_to_correlation: Sequence[int], **more: Any
) -> Activity:
    """Return an activity by its start, end, device, stream and correlation, and what else is known."""
    start, end, device, stream, correlation = start_to_correlation
    return Activity(kind, name, start, end, device, stream, correlation, **more)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the CUDA runtime or driver by the host."""

    name: str
    start: int
    end: int
    thread: int
    correlation: int
    origin: int = -1  # index among its process's places; -1 where none is known
    # nanoseconds since the thread's call before it that recording Python frames took, as estimated
    traced: int = 0

    @property
    def waits(self) -> bool:
        """Return whether it is there to wait for the GPU (or does so, as cudaFree)."""
        return self.name.startswith(WAITS) and not self.name.startswith(ASYNC)

    @property
    def allocates(self) -> bool:
        """Return whether it takes or gives back memory in a way that stops the host."""
        return self.name.startswith(ALLOCATES) and not self.name.startswith(ASYNC)

    @property
    def launches_kernels(self) -> bool:
        """Return whether it launches a kernel or a graph of kernels."""
        return _LAUNCH.match(self.name) is not None

    @property
    def launches_graph(self) -> bool:
        """Return whether it launches a captured graph."""
        return _GRAPH_LAUNCH.match(self.name) is not None

    @property
    def capture_phase(self) -> TextOrEmpty:
        """Begin or End where it begins or ends the capture of a graph; empty otherwise."""
        found = _CAPTURE.match(self.name)
        if found:
            return found[2]
        return ""


@dataclass(frozen=True, slots=True)
class HostSpan:
    """Something on a host thread that has a name: an operator, a range, a step, a Python frame."""

    kind: str  # op, range, step or python
    name: str  # aten::mm, an NVTX range, ProfilerStep#3, train.py(42): step
    start: int
    end: int
    thread: int
    # sizes of an operator's inputs; empty where they were not recorded
    shapes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()  # their types, in PyTorch's words
    sequence: int = (
        -1
    )  # autograd's number of an operator: its node in the backward pass has the same
    backward: bool = False  # whether it is that node, or within it
    ended: bool = True  # False of a range that was open when the recording ended
    # of an operator that computes the same in each step "same", of one that makes a gradient which
    # nothing reads "unread"; empty where it is needed, or nobody knows
    needless: str = ""


@dataclass(frozen=True)
class Device:
    """A GPU; None for what the recording does not say."""

    name: str
    cc: tuple[int, int] | None = None
    multiprocessors: int | None = None


@dataclass(frozen=True)
class Process:
    """One process of a program: a rank."""

    pid: int
    rank: int  # of a distributed program; 0 for a single process
    device: Device | None
    activities: Sequence[Activity]  # what the GPU did, in order of start
    calls: Sequence[Call]  # what the host asked for, in order of start
    spans: Sequence[HostSpan]  # names on host threads, in order of start, outer before inner
    places: Sequence[SourcePlace] = ()  # where in its Python what was launched comes from
    # from when to when recording more than usual slowed its host
    disturbed: Sequence[tuple[int, int]] = ()


@dataclass(frozen=True)
class Timeline:
    """A program's processes."""

    how: str  # cupti, torch trace or nsys
    processes: Sequence[Process]
    command: str = ""  # what was run, where that is known
    notes: tuple[str, ...] = ()  # what the reader has to say: a cut file, records that were dropped

    @property
    def is_host_slowed(self) -> bool:
        """Return whether recording slows the host so much that idle time is not what it seems."""
        return self.how == "torch trace"


def find_recording_end(
    activities: Sequence[Activity], calls: Sequence[Call], spans: Sequence[HostSpan]
) -> Nanoseconds:
    """Return when a process's recording ends: the last time that is in it."""
    last = max((activity.end for activity in activities), default=0)
    last = max(last, max((call.end for call in calls), default=last))
    return max(last, max((span.end for span in spans), default=last))


def close_open_ranges(begun: Sequence[HostSpan], end: Nanoseconds) -> list[HostSpan]:
    """Return ranges that were begun and not ended, as they are until the recording's end."""
    latest = sorted(begun, key=lambda span: span.start)[-OPEN_MOST:]
    return [replace(span, end=max(span.start, end), ended=False) for span in latest]


def note_open_ranges(processes: Sequence[Process]) -> Iterator[Sentence]:
    """Say of how many ranges nobody recorded the end."""
    unended = []
    for process in processes:
        for span in process.spans:
            if not span.ended:
                unended.append(span)
    if not unended:
        return
    name = unended[0].name[:60]
    what = "1 range was"
    if len(unended) > 1:
        what = f"{len(unended):,} ranges were"
    yield (
        f"{what} still open when the recording ended ({name}): the end of the recording is used as "
        "their end, and they mark no step unless --range names them"
    )
