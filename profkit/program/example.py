"""A step written down in a few lines  ->  a timeline of such steps: the examples of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.program.timeline import Activity, Call, Device, HostSpan, Process, Timeline

if TYPE_CHECKING:
    from profkit.units import Nanoseconds


STEPS = 6
CALL = 4_000  # nanoseconds that the host is in a call
LATENCY = 5_000  # nanoseconds from the beginning of a launch to its kernel on an idle stream
THREAD = 1
STREAM = 7
H200 = Device(name="NVIDIA H200", cc=(9, 0), multiprocessors=132)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel, and the host's own work before its launch."""

    name: str
    us: float
    host_us: float = 5.0
    op: str = ""  # the operator that launches it
    sizes: tuple[tuple[int, ...], ...] = ()  # of the operator's tensors
    types: tuple[str, ...] = ()
    needless: str = ""  # as of a HostSpan
    within: str = ""  # a range that the program names
    blocks: int = 528
    stream: int = STREAM
    after: int | None = None  # a stream that it waits for


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A copy between the host and the GPU; a pageable one holds the host until it is done."""

    bytes: int
    us: float
    direction: str = "HtoD"
    pageable: bool = True
    host_us: float = 5.0


@dataclass(frozen=True, kw_only=True)
class Wait:
    """The host waits until the GPU is done."""

    op: str = ""


@dataclass(frozen=True, kw_only=True)
class BusyHost:
    """The host is busy with something of its own."""

    us: float
    function: str  # train.py(42): augment


@dataclass(frozen=True, kw_only=True)
class View:
    """An operator that launches nothing."""

    op: str
    sizes: tuple[tuple[int, ...], ...]


Part = Kernel | Copy | Wait | BusyHost | View


class SimulatedRecorder:
    """A host and a GPU with streams, and what a recorder would have written of them."""

    def __init__(self) -> None:
        self.clock = 1_000_000  # the host's
        self.free: dict[int, int] = {}  # when each stream is done
        self.calls: list[Call] = []
        self.activities: list[Activity] = []
        self.spans: list[HostSpan] = []

    def add_step(self, step_number: int, parts: Sequence[Part]) -> None:
        """Run a step once."""
        begin = self.clock
        place = len(self.spans)
        for part in parts:
            if isinstance(part, Kernel):
                self.add_kernel(part)
            elif isinstance(part, Copy):
                self.add_copy(part)
            elif isinstance(part, Wait):
                self.add_wait(part)
            elif isinstance(part, View):
                self.add_view(part)
            else:
                self.add_host_work(part)
        mark = HostSpan("step", f"ProfilerStep#{step_number}", begin, self.clock, THREAD)
        self.spans.insert(place, mark)

    def add_call(self, name: str, end: Nanoseconds) -> int:
        """Let the host make a call that ends then, and return the call's number."""
        number = len(self.calls) + 1
        self.calls.append(Call(name, self.clock, end, THREAD, number))
        self.clock = end
        return number

    def find_start(self, stream: int) -> Nanoseconds:
        """Return when work begins that is launched now."""
        return max(self.free.get(stream, 0), self.clock + LATENCY)

    def add_kernel(self, kernel: Kernel) -> None:
        """Launch a kernel."""
        self.clock += round(kernel.host_us * 1e3)
        begin = self.clock
        start = self.find_start(kernel.stream)
        if kernel.after is not None:
            start = max(start, self.free.get(kernel.after, 0))
        number = self.add_call("cudaLaunchKernel", begin + CALL)
        if kernel.within:
            self.spans.append(HostSpan("range", kernel.within, begin, self.clock, THREAD))
        if kernel.op:
            span = HostSpan("op", kernel.op, begin, self.clock, THREAD, kernel.sizes, kernel.types)
            self.spans.append(replace(span, needless=kernel.needless))
        end = start + round(kernel.us * 1e3)
        self.free[kernel.stream] = end
        activity = Activity(
            kind="kernel",
            name=kernel.name,
            start=start,
            end=end,
            stream=kernel.stream,
            correlation=number,
            grid=(kernel.blocks, 1, 1),
            block=(256, 1, 1),
        )
        self.activities.append(activity)

    def add_copy(self, copy: Copy) -> None:
        """Copy something."""
        self.clock += round(copy.host_us * 1e3)
        start = self.find_start(STREAM)
        end = start + round(copy.us * 1e3)
        if copy.pageable:
            returns = end + 2_000
        else:
            returns = self.clock + CALL
        number = self.add_call("cudaMemcpyAsync", returns)
        self.free[STREAM] = end
        activity = Activity(
            kind="copy",
            name=f"Memcpy {copy.direction}",
            start=start,
            end=end,
            stream=STREAM,
            correlation=number,
            bytes=copy.bytes,
            direction=copy.direction,
            pageable=copy.pageable,
        )
        self.activities.append(activity)

    def add_wait(self, wait: Wait) -> None:
        """Wait for all streams."""
        begin = self.clock
        done = max(self.free.values(), default=begin)
        self.add_call("cudaStreamSynchronize", max(done, begin) + 2_000)
        if wait.op:
            self.spans.append(HostSpan("op", wait.op, begin, self.clock, THREAD))

    def add_view(self, view: View) -> None:
        """Take a part of a tensor."""
        begin = self.clock
        self.clock += 1_000
        self.spans.append(HostSpan("op", view.op, begin, self.clock, THREAD, view.sizes))

    def add_host_work(self, work: BusyHost) -> None:
        """Let the host work."""
        begin = self.clock
        self.clock += round(work.us * 1e3)
        self.spans.append(HostSpan("python", work.function, begin, self.clock, THREAD))


def run_example(parts: Sequence[Part]) -> Timeline:
    """Return what a recorder that slows nothing would have written of some such steps."""
    recorder = SimulatedRecorder()
    for number in range(STEPS):
        recorder.add_step(number, parts)
    process = Process(
        pid=1,
        rank=0,
        device=H200,
        activities=sorted(recorder.activities, key=lambda activity: activity.start),
        calls=recorder.calls,
        spans=recorder.spans,
    )
    return Timeline(how="nsys", processes=[process])
