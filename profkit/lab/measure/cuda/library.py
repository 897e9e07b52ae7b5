"""A built library  ->  calls through ctypes, the graph of one call, its plan under a profiler.

A captured graph says exactly which kernels a launcher starts, with grid, block and shared memory,
without a profiler, without counter permission and without running them.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from ctypes import byref, c_char_p, c_int, c_longlong, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.resources import demangle_names

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        CudaFunction,
        CudaGraph,
        CudaGraphNode,
        CudaStream,
        DeviceAddress,
        Dim3,
        MangledName,
        Nanoseconds,
        Seconds,
    )


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


def capture_graph(stream: CudaStream, enqueue_work: Callable[[], None]) -> CudaGraph:
    """Record what `enqueue_work` enqueues into a graph, unrun; CudaError if none can hold it."""
    graph = c_void_p()
    device.call_driver(
        "cuStreamBeginCapture_v2", c_void_p(stream), 1
    )  # 1: this thread's calls only
    with ExitStack() as failed:
        failed.callback(device.end_failed_capture, stream)
        enqueue_work()
        failed.pop_all()
    device.call_driver("cuStreamEndCapture", c_void_p(stream), byref(graph))
    return graph.value or 0


def instantiate_graph(graph: CudaGraph) -> int:
    """Return a handle by which a captured graph is launched; CudaError if the driver refuses."""
    executable = c_void_p()
    device.call_driver(
        "cuGraphInstantiateWithFlags", byref(executable), c_void_p(graph), c_ulonglong(0)
    )
    return executable.value or 0


def launch_graph(executable: int, stream: CudaStream) -> None:
    """Launch a graph on a stream."""
    device.call_driver("cuGraphLaunch", c_void_p(executable), c_void_p(stream))


class KernelNode(ctypes.Structure):
    """What a graph knows of one kernel launch."""

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

    @property
    def grid_and_block(self) -> tuple[Dim3, Dim3]:
        """Return the blocks, and the threads of one, in x, y and z."""
        columns, rows, planes = self.grid
        x, y, z = self.block
        return (columns, rows, planes), (x, y, z)


NodeAndType = tuple[int, int]  # the driver's handle of a graph's node, and CUgraphNodeType
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL


def list_graph_nodes(graph: CudaGraph) -> list[NodeAndType]:
    """Return each node of a captured graph with its type, in the order in which they were enqueued."""
    count = c_size_t()
    device.call_driver("cuGraphGetNodes", c_void_p(graph), None, byref(count))
    nodes = (c_void_p * count.value)()
    device.call_driver("cuGraphGetNodes", c_void_p(graph), nodes, byref(count))
    found = []
    for node in nodes:
        kind = c_int()
        device.call_driver("cuGraphNodeGetType", c_void_p(node), byref(kind))
        found.append((node or 0, kind.value))
    return found


def read_kernel_node(node: CudaGraphNode) -> KernelNode:
    """Return a kernel node's parameters, with the function also of a kernel of a library."""
    params = KernelNode()
    device.call_driver("cuGraphKernelNodeGetParams_v2", c_void_p(node), byref(params))
    if not params.func:
        function = c_void_p()
        device.call_driver("cuKernelGetFunction", byref(function), c_void_p(params.kernel))
        params.func = function
    return params


def read_kernel_name(kernel_handle: CudaFunction) -> MangledName:
    """Return a kernel's name, as the machine code has it."""
    name = c_char_p()
    device.call_driver("cuFuncGetName", byref(name), c_void_p(kernel_handle))
    return (name.value or b"?").decode(errors="replace")


def query_blocks_per_sm(
    kernel_handle: CudaFunction, threads_per_block: int, dynamic_smem_bytes: ByteCount
) -> int:
    """Return how many blocks fit on an SM, by the driver."""
    blocks = c_int()
    shape = c_int(threads_per_block), c_size_t(dynamic_smem_bytes)
    name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    device.call_driver(name, byref(blocks), c_void_p(kernel_handle), *shape)
    return blocks.value


def read_kernel_attribute(kernel_handle: CudaFunction, attribute_number: int) -> int:
    """Return an attribute of a kernel by the driver's number for it."""
    value = c_int()
    device.call_driver(
        "cuFuncGetAttribute", byref(value), c_int(attribute_number), c_void_p(kernel_handle)
    )
    return value.value


def list_kernel_launches_of_graph(graph: CudaGraph) -> list[GraphLaunch]:
    """Return the kernel launches of a captured graph, in the order in which they were enqueued."""
    launches = []
    for node, kind in list_graph_nodes(graph):
        if kind == KERNEL_NODE:
            launches.append(_make_graph_launch(read_kernel_node(node)))
    return launches


def _make_graph_launch(node: KernelNode) -> GraphLaunch:
    mangled = read_kernel_name(node.func)
    grid, block = node.grid_and_block
    return GraphLaunch(
        kernel=demangle_names([mangled])[mangled],
        grid=grid,
        block=block,
        dynamic_smem=node.smem,
        static_smem=read_kernel_attribute(node.func, 1),
        regs=read_kernel_attribute(node.func, 4),
        blocks_per_sm=query_blocks_per_sm(node.func, prod(block), node.smem),
    )


class Numbers(NamedTuple):
    """What a launch is given beside its arrays, where problem.py says nothing of it too."""

    size: Sequence[int] = ()
    stride: Sequence[int] = ()  # of the first input, in elements
    scale: float = 1.0
    causal: int = 0

    @classmethod
    def from_problem_arguments(cls, values: Mapping[str, Any]) -> Numbers:
        """Return the numbers that problem.py's `arguments` gives, without other keys."""
        numbers = {}
        for name in cls._fields:
            if name in values:
                numbers[name] = values[name]
        return cls(**numbers)


class Args(ctypes.Structure):
    """ProfkitArgs of kernels/common/variant.cuh: what a variant's one C function is given.

    Behind the struct that CUDA variants know lies room for more arrays, which the launchers of
    other languages read too: a captured kernel has as many as it has.
    """

    _fields_ = (
        ("input", c_void_p * 4),
        ("out", c_void_p * 2),
        ("size", c_longlong * 6),
        ("stride", c_longlong * 6),
        ("scale", ctypes.c_float),
        ("causal", c_int),
        ("stream", c_void_p),
        ("more_input", c_void_p * 28),
        ("more_out", c_void_p * 14),
    )

    @classmethod
    def from_addresses(
        cls,
        inputs: Sequence[DeviceAddress],
        outputs: Sequence[DeviceAddress],
        values: Mapping[str, Any],
        stream: CudaStream,
    ) -> Args:
        """Return arrays by device address and the numbers of `values`; ProfkitError if too many."""
        args = cls(stream=stream)
        args._store_addresses(args.input, args.more_input, inputs)
        args._store_addresses(args.out, args.more_out, outputs)
        numbers = Numbers.from_problem_arguments(values)
        for i, n in enumerate(numbers.size):
            args.size[i] = n
        for i, n in enumerate(numbers.stride):
            args.stride[i] = n
        args.scale, args.causal = float(numbers.scale), int(numbers.causal)
        return args

    def _store_addresses(self, few: Any, more: Any, addresses: Sequence[int]) -> None:
        if len(addresses) > len(few) + len(more):
            raise ProfkitError(
                f"a problem has more than {len(few) + len(more)} arrays of a kind",
                "pack several into one",
            )
        first = addresses[: len(few)]
        rest = addresses[len(few) :]
        few[: len(first)] = first
        more[: len(rest)] = rest


def load_launcher_library(path: Path, are_all_symbols_defined: bool = True) -> ctypes.CDLL:
    """Load the library of a variant; raise ProfkitError where it has no profkit_launch.

    One that is not whole was made of a file of a program: functions that other files have are looked up
    when they are called, and a launcher calls none of them.
    """
    try:
        handle = None if are_all_symbols_defined else _open_library_with_late_symbols(path)
        library = ctypes.CDLL(str(path), handle=handle)
        library.profkit_launch.argtypes = [ctypes.POINTER(Args)]
        library.profkit_launch.restype = ctypes.c_int
    except OSError as error:
        raise ProfkitError(f"cannot load {path}: {error}") from error
    except AttributeError as error:
        raise ProfkitError(
            f"{path} has no profkit_launch",
            'the variant must define extern "C" int profkit_launch(const ProfkitArgs*)',
        ) from error
    return library


def _open_library_with_late_symbols(path: Path) -> int | None:
    """Open a library whose functions are looked up when they are called: ctypes looks up all at once."""
    open_library = ctypes.CDLL(None).dlopen
    open_library.argtypes = (ctypes.c_char_p, c_int)
    open_library.restype = ctypes.c_void_p
    opened: int | None = open_library(str(path).encode(), os.RTLD_LAZY)
    return opened  # without one, ctypes tries again and says why


def _raise_cuda_error_if_failed(code: int, what: str) -> None:
    if code:
        raise device.CudaError(code, what)


def call_launcher(library: ctypes.CDLL, args: Args) -> None:
    """Start the work; raises CudaError with what the launcher returned."""
    _raise_cuda_error_if_failed(library.profkit_launch(byref(args)), "profkit_launch")


class Support:
    """support.cu, loaded. Without a GPU nothing is allocated, and `flush` must not be used."""

    def __init__(self, path: Path, gpu: device.Gpu | None = None) -> None:
        self._lib = ctypes.CDLL(str(path))
        self._lib.profkit_repeat.restype = self._lib.profkit_bare.restype = c_longlong
        self._blocks = self._size = self._buffer = 0
        if gpu:
            self._blocks = 4 * gpu.sms
            self._size = 2 * gpu.l2  # bytes
            self._buffer = device.allocate_device_memory(self._size)
            device.fill_device_memory(self._buffer, 0, self._size)
        self.pop: Callable[[], None] = self._lib.profkit_range_pop  # close an NVTX range

    def push_nvtx_range(self, text: str) -> None:
        """Begin an NVTX range."""
        self._lib.profkit_range_push(text.encode())

    def keep_stream_busy(self, nanoseconds: Nanoseconds, stream: CudaStream) -> None:
        """Keep a stream busy for so long."""
        _raise_cuda_error_if_failed(
            self._lib.profkit_spin(c_longlong(nanoseconds), c_void_p(stream)), "spin"
        )

    def flush_l2_cache(self, stream: CudaStream) -> None:
        """Read a buffer larger than the L2, so that the next call finds nothing of its own in it."""
        sizes = c_void_p(self._buffer), c_size_t(self._size), c_int(self._blocks)
        _raise_cuda_error_if_failed(self._lib.profkit_flush(*sizes, c_void_p(stream)), "flush")

    def copy_after_delay(
        self,
        target_pointer: DeviceAddress,
        source_pointer: DeviceAddress,
        size_bytes: ByteCount,
        delay_ns: Nanoseconds,
        stream: CudaStream,
    ) -> None:
        """Copy bytes late, having let the next kernel begin."""
        places = c_void_p(target_pointer), c_void_p(source_pointer), c_size_t(size_bytes)
        _raise_cuda_error_if_failed(
            self._lib.profkit_put(*places, c_longlong(delay_ns), c_void_p(stream)), "put"
        )

    def time_launcher_on_host(self, library: ctypes.CDLL, args: Args, call_count: int) -> Seconds:
        """Return the host's seconds per call of a launcher."""
        error = c_int()
        function = ctypes.cast(library.profkit_launch, c_void_p)
        took = self._lib.profkit_repeat(function, byref(args), call_count, byref(error))
        _raise_cuda_error_if_failed(error.value, "profkit_launch")
        return float(took) / call_count * 1e-9

    def time_empty_kernel(self, launch_count: int, stream: CudaStream) -> Seconds:
        """Return the host's seconds per start of an empty kernel."""
        error = c_int()
        took = self._lib.profkit_bare(launch_count, c_void_p(stream), byref(error))
        _raise_cuda_error_if_failed(error.value, "an empty kernel")
        return float(took) / launch_count * 1e-9


@dataclass(frozen=True)
class LaunchPlan:
    """One call of a variant or a reference, which a process of its own makes."""

    label: str  # of its NVTX range
    support: str  # the library of support.cu
    library: str | None = None  # the variant's library; None of a reference
    inputs: tuple[str, ...] = ()  # a file for each input
    outputs: tuple[int, ...] = ()  # bytes of each output
    # (output, input): what is worked on in place holds that input at first
    begins: tuple[tuple[int, int], ...] = ()
    # size, stride, scale and causal for ProfkitArgs
    values: dict[str, Any] = field(default_factory=dict)  # what problem.py says, as it says it
    reference: str | None = None  # the reference's name; None of a variant
    problem: str = ""
    build: str = ""
    case: str = ""
    # whether there is a profiler: then one call runs outside of its window first
    profile: bool = True

    def write_program(self, folder: Path) -> list[str]:
        """Return the program that makes this call, told by a file that is written into the folder."""
        from profkit.interpreter import encode_import_folders, make_command_from_file

        path = folder / "plan.json"
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        packages = (
            folder / "packages.json"
        )  # a record keeps the command: short, and no paths of ours
        packages.write_text(encode_import_folders(), encoding="utf-8")
        return make_command_from_file(str(packages), "profkit.lab.measure.launch", str(path))
