"""Work on a stream  ->  a CUDA graph: to replay it, and to read what it launches.

A captured graph says exactly which kernels a launcher starts, with grid, block and shared memory,
without a profiler, without counter permission and without running them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass

from profkit.measure.cuda import device
from profkit.measure.cuda.names import demangle


@dataclass(frozen=True)
class GraphLaunch:
    """One kernel launch, read from a captured graph. Sizes in bytes."""

    kernel: str
    grid: tuple[int, int, int]  # blocks in x, y and z
    block: tuple[int, int, int]  # threads in x, y and z
    dynamic_smem: int  # dynamic shared memory per block
    static_smem: int  # static shared memory per block
    regs: int  # registers per thread
    blocks_per_sm: int  # how many blocks fit on an SM at once, says the driver


def capture(stream: int, body: Callable[[], None]) -> int:
    """Record what `body` enqueues on the stream into a graph, without running it.

    Raises:
        CudaError: The body did what a graph cannot hold, waiting for the device for example.
    """
    graph = c_void_p()
    device.call("cuStreamBeginCapture_v2", c_void_p(stream), 1)  # 1: this thread's calls only
    whole = False
    try:
        body()
        whole = True
    finally:
        if not whole:
            device.abandon_capture(stream)
    device.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
    return graph.value or 0


def instantiate(graph: int) -> int:
    """Make a captured graph launchable."""
    executable = c_void_p()
    device.call("cuGraphInstantiateWithFlags", byref(executable), c_void_p(graph), c_ulonglong(0))
    return executable.value or 0


def replay(executable: int, stream: int) -> None:
    """Launch a graph on a stream."""
    device.call("cuGraphLaunch", c_void_p(executable), c_void_p(stream))


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


def graph_launches(graph: int) -> list[GraphLaunch]:
    """The kernel launches of a captured graph, in the order in which they were enqueued."""
    count = c_size_t()
    device.call("cuGraphGetNodes", c_void_p(graph), None, byref(count))
    nodes = (c_void_p * count.value)()
    device.call("cuGraphGetNodes", c_void_p(graph), nodes, byref(count))
    return [launch for node in nodes if (launch := _launch(node or 0)) is not None]


def _launch(node: int) -> GraphLaunch | None:
    kind, params = c_int(), _KernelNode()
    device.call("cuGraphNodeGetType", c_void_p(node), byref(kind))
    if kind.value != 0:  # CU_GRAPH_NODE_TYPE_KERNEL
        return None
    device.call("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(params))
    function = c_void_p(params.func)
    if not params.func:
        device.call("cuKernelGetFunction", byref(function), c_void_p(params.kernel))
    name, blocks = c_char_p(), c_int()
    device.call("cuFuncGetName", byref(name), function)
    block = tuple(params.block)
    device.call(
        "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        *(byref(blocks), function, c_int(block[0] * block[1] * block[2]), c_size_t(params.smem)),
    )
    mangled = (name.value or b"?").decode(errors="replace")
    return GraphLaunch(
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
    device.call("cuFuncGetAttribute", byref(value), c_int(number), function)
    return value.value
