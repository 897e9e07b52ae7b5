"""The CUDA driver, through ctypes  ->  memory, streams, graphs and what a captured launch is.

No toolkit and no torch: libcuda comes with the driver, starts in milliseconds, and shares its
primary context with the CUDA runtime inside each variant and with torch in one process.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.ptxas import demangle

NOT_SUPPORTED = 801  # cudaErrorNotSupported: the variant does not handle this case
# After one of these the context is lost: nothing more can run in this process.
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 999})
# Codes that the runtime has and the driver's cuGetErrorName does not know.
_RUNTIME = {
    9: "cudaErrorInvalidConfiguration",
    13: "cudaErrorInvalidSymbol",
    98: "cudaErrorInvalidDeviceFunction",
}
_HINTS = {
    2: "something else holds the GPU's memory: nvidia-smi lists it",
    209: "the library was built for another architecture",
    700: "run it again with --sanitize: memcheck names the line",
    719: "run it again with --sanitize: memcheck names the line",
}


class CudaError(ProfkitError):
    """A CUDA call failed; code is its cudaError_t, which the driver shares where both have one."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {error_name(code)} ({code})", _HINTS.get(code, ""))
        self.code = code


@dataclass(frozen=True)
class Gpu:
    """The GPU in use. Sizes in bytes, clock rates in Hz, bandwidth in bytes/s.

    Attributes:
        name: As the driver has it.
        arch: `90` for compute capability 9.0.
        sms: Number of SMs.
        l2: Size of the L2 cache.
        sm_clock: The highest SM clock.
        dram_bandwidth: What memory clock and bus width come to (double data rate).
        driver: CUDA version that the driver supports, e.g. `13.0`.
    """

    name: str
    arch: str
    sms: int
    l2: int
    sm_clock: float
    dram_bandwidth: float
    driver: str


@dataclass(frozen=True)
class Launch:
    """One kernel launch, read from a captured graph. Sizes in bytes.

    Attributes:
        kernel: Demangled name.
        grid: Blocks in x, y and z.
        block: Threads in x, y and z.
        dynamic_smem: Dynamic shared memory per block.
        static_smem: Static shared memory per block.
        regs: Registers per thread.
        blocks_per_sm: How many blocks fit on an SM at once, says the driver.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_smem: int
    static_smem: int
    regs: int
    blocks_per_sm: int


@functools.cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ProfkitError(
            "no NVIDIA driver: libcuda.so.1 was not found",
            "run this on a machine with an NVIDIA GPU; profkit doctor says what is there",
        ) from error


def error_name(code: int) -> str:
    """CUDA's name for an error code."""
    if code in _RUNTIME:
        return _RUNTIME[code]
    name = c_char_p()
    _driver().cuGetErrorName(code, byref(name))
    return name.value.decode() if name.value else "unknown CUDA error"


def call(name: str, *args: Any) -> None:
    """Call one function of the driver; raises CudaError if it fails."""
    code = getattr(_driver(), name)(*args)
    if code:
        raise CudaError(code, name)


@functools.cache
def gpu(index: int = 0) -> Gpu:
    """Open a GPU: its primary context becomes this thread's.

    Args:
        index: As CUDA counts them, CUDA_VISIBLE_DEVICES included.
    """
    code = _driver().cuInit(0)
    if code in (100, 3, 999):
        raise ProfkitError(
            f"no usable GPU: cuInit says {error_name(code)}", "profkit doctor says what is there"
        )
    if code:
        raise CudaError(code, "cuInit")
    device, context, version = c_int(), c_void_p(), c_int()
    call("cuDeviceGet", byref(device), index)
    call("cuDevicePrimaryCtxRetain", byref(context), device)
    call("cuCtxSetCurrent", context)
    call("cuDriverGetVersion", byref(version))
    name = ctypes.create_string_buffer(256)
    call("cuDeviceGetName", name, 256, device)

    def attribute(number: int) -> int:
        value = c_int()
        call("cuDeviceGetAttribute", byref(value), number, device)
        return value.value

    return Gpu(
        name=name.value.decode(errors="replace"),
        arch=f"{attribute(75)}{attribute(76)}",
        sms=attribute(16),
        l2=attribute(38),
        sm_clock=attribute(13) * 1e3,
        dram_bandwidth=attribute(36) * 1e3 * 2 * attribute(37) / 8,
        driver=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )


def allocate(size: int) -> int:
    """Device memory of `size` bytes; freed with the process."""
    pointer = c_ulonglong()
    call("cuMemAlloc_v2", byref(pointer), c_size_t(max(size, 1)))
    return pointer.value


def free(pointer: int) -> None:
    """Give device memory back."""
    call("cuMemFree_v2", c_ulonglong(pointer))


def upload(pointer: int, address: int, size: int) -> None:
    """Copy `size` bytes from a host address to the device."""
    call("cuMemcpyHtoD_v2", c_ulonglong(pointer), c_void_p(address), c_size_t(size))


def download(address: int, pointer: int, size: int) -> None:
    """Copy `size` bytes from the device to a host address."""
    call("cuMemcpyDtoH_v2", c_void_p(address), c_ulonglong(pointer), c_size_t(size))


def fill(pointer: int, byte: int, size: int) -> None:
    """Set device memory to one byte, finished on return."""
    call("cuMemsetD8_v2", c_ulonglong(pointer), ctypes.c_ubyte(byte), c_size_t(size))
    call("cuCtxSynchronize")


def synchronize(stream: int | None = None) -> None:
    """Wait for a stream, or for everything."""
    if stream is None:
        call("cuCtxSynchronize")
    else:
        call("cuStreamSynchronize", c_void_p(stream))


def new_stream() -> int:
    """A stream that does not wait for the default stream, nor that for it."""
    stream = c_void_p()
    call("cuStreamCreate", byref(stream), 1)
    return stream.value or 0


def new_event() -> int:
    """An event that keeps the time."""
    event = c_void_p()
    call("cuEventCreate", byref(event), 0)
    return event.value or 0


def record(event: int, stream: int) -> None:
    """Mark this point of the stream."""
    call("cuEventRecord", c_void_p(event), c_void_p(stream))


def elapsed(start: int, stop: int) -> float:
    """Seconds between two events that have happened; the step is about half a microsecond."""
    milliseconds = c_float()
    call("cuEventElapsedTime", byref(milliseconds), c_void_p(start), c_void_p(stop))
    return milliseconds.value * 1e-3


def capture(stream: int, body: Callable[[], None]) -> int:
    """Record what `body` enqueues on the stream into a graph, without running it.

    Raises:
        CudaError: The body did what a graph cannot hold, waiting for the device for example.
    """
    graph = c_void_p()
    call("cuStreamBeginCapture_v2", c_void_p(stream), 1)  # 1: this thread's calls only
    try:
        body()
    except BaseException:
        _driver().cuStreamEndCapture(c_void_p(stream), byref(graph))
        raise
    call("cuStreamEndCapture", c_void_p(stream), byref(graph))
    return graph.value or 0


def instantiate(graph: int) -> int:
    """Make a captured graph launchable."""
    executable = c_void_p()
    call("cuGraphInstantiateWithFlags", byref(executable), c_void_p(graph), c_ulonglong(0))
    return executable.value or 0


def replay(executable: int, stream: int) -> None:
    """Launch a graph on a stream."""
    call("cuGraphLaunch", c_void_p(executable), c_void_p(stream))


class _KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("smem", c_uint),
        ("params", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


def launches(graph: int) -> list[Launch]:
    """The kernel launches of a captured graph, in the order in which they were enqueued."""
    count = c_size_t()
    call("cuGraphGetNodes", c_void_p(graph), None, byref(count))
    nodes = (c_void_p * count.value)()
    call("cuGraphGetNodes", c_void_p(graph), nodes, byref(count))
    return [found for node in nodes if (found := _launch(node or 0)) is not None]


def _launch(node: int) -> Launch | None:
    kind, params = c_int(), _KernelNode()
    call("cuGraphNodeGetType", c_void_p(node), byref(kind))
    if kind.value != 0:  # CU_GRAPH_NODE_TYPE_KERNEL
        return None
    call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(params))
    function = c_void_p(params.func)
    if not params.func:
        call("cuKernelGetFunction", byref(function), c_void_p(params.kernel))
    name, blocks = c_char_p(), c_int()
    call("cuFuncGetName", byref(name), function)
    block = tuple(params.block)
    call(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        *(byref(blocks), function, c_int(block[0] * block[1] * block[2]), c_size_t(params.smem)),
    )
    mangled = (name.value or b"?").decode(errors="replace")
    return Launch(
        kernel=demangle([mangled])[mangled],
        grid=(params.grid[0], params.grid[1], params.grid[2]),
        block=(params.block[0], params.block[1], params.block[2]),
        dynamic_smem=params.smem,
        static_smem=_attribute(function, 1),
        regs=_attribute(function, 4),
        blocks_per_sm=blocks.value,
    )


def _attribute(function: c_void_p, number: int) -> int:
    value = c_int()
    call("cuFuncGetAttribute", byref(value), c_int(number), function)
    return value.value
