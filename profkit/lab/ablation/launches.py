"""One call, captured  ->  its kernel launches, to be made again with other code or another shape.

What a call enqueues is read out of a CUDA graph that is never run: every launch with its parameters,
which the graph keeps. A kernel of the same name out of another module takes the same parameters.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device, library

if TYPE_CHECKING:
    from profkit.units import (
        AxisNumber,
        ByteCount,
        CudaFunction,
        CudaGraphNode,
        CudaModule,
        CudaStream,
        DeviceAddress,
        Dim3,
        MachineCode,
        MangledName,
        Seconds,
    )


_MEMSET_NODE = 2  # of CUgraphNodeType
_CLUSTER, _COOPERATIVE = 4, 2  # of CUlaunchAttributeID
# Of CUfunction_attribute.
STATIC_SHARED = 1
LOCAL = 3
REGISTERS = 4
_MOST_SHARED = 8
_CARVEOUT = 9
_OTHER_CLUSTERS = 14
_POLL = 0.0005  # seconds between two looks at a launch that may hang


class _MemsetNode(ctypes.Structure):
    _fields_ = (
        ("to", c_ulonglong),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_uint), ("pad", c_uint), ("value", c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("smem", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel launch of a call."""

    name: str  # as the machine code has it
    function: int  # CUfunction
    kernel: int  # CUkernel; 0 where it belongs to no library
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem: int  # dynamic shared memory, bytes
    parameters: int  # address of an array of addresses
    extra: int
    cluster: tuple[int, int, int]
    cooperative: bool

    @property
    def threads(self) -> int:
        return prod(self.block)

    @property
    def blocks(self) -> int:
        return prod(self.grid)

    def count_blocks(
        self, function: CudaFunction = 0, dynamic_smem_bytes: ByteCount | None = None
    ) -> int:
        """Return how many of its blocks fit on an SM, with other code or other shared memory too."""
        used = self.smem if dynamic_smem_bytes is None else dynamic_smem_bytes
        return library.query_blocks_per_sm(function or self.function, self.threads, used)


@dataclass(frozen=True)
class MemoryFill:
    """Memory that a call sets to one value."""

    to: int
    value: int
    element: int  # bytes
    count: int


@dataclass(frozen=True)
class CapturedCall:
    """What one call enqueues, in order. The graph is kept: it owns the parameters."""

    graph: int
    steps: tuple[KernelLaunch | MemoryFill, ...]

    @property
    def kernel_launches(self) -> list[KernelLaunch]:
        return [step for step in self.steps if isinstance(step, KernelLaunch)]

    @property
    def names(self) -> set[MangledName]:
        return {launch.name for launch in self.kernel_launches}


def capture_call(call: Callable[[CudaStream], None]) -> CapturedCall:
    """Capture one call; ProfkitError where it does what cannot be made again."""
    stream = device.create_non_blocking_stream()
    for _ in range(2):  # the first call may load modules, which a capture forbids
        call(stream)
    device.wait_for_gpu_or_stream()
    graph = library.capture_graph(stream, lambda: call(stream))
    steps = [_read_node(node, kind) for node, kind in library.list_graph_nodes(graph)]
    return CapturedCall(graph, tuple(steps))


def _read_node(node: CudaGraphNode, node_type: int) -> KernelLaunch | MemoryFill:
    if node_type == library.KERNEL_NODE:
        return _read_kernel_launch(node)
    if node_type == _MEMSET_NODE:
        params = _MemsetNode()
        device.call_driver("cuGraphMemsetNodeGetParams", c_void_p(node), byref(params))
        if params.height <= 1:
            return MemoryFill(params.to, params.value, params.element, params.width)
    raise ProfkitError(
        "a call that copies memory or calls the host cannot be made again piece by piece",
        "ablate a variant that only launches kernels",
    )


def _read_kernel_launch(node: CudaGraphNode) -> KernelLaunch:
    params = library.read_kernel_node(node)
    grid, block = params.grid_and_block
    cluster = _read_launch_attribute(node, _CLUSTER)
    return KernelLaunch(
        name=library.read_kernel_name(params.func),
        function=params.func,
        kernel=params.kernel or 0,
        grid=grid,
        block=block,
        smem=params.smem,
        parameters=params.params or 0,
        extra=params.extra or 0,
        cluster=(cluster[0], cluster[1], cluster[2]),
        cooperative=bool(_read_launch_attribute(node, _COOPERATIVE)[0]),
    )


def _read_launch_attribute(node: CudaGraphNode, attribute_number: int) -> Sequence[int]:
    value = (c_uint * 16)()
    try:
        device.call_driver(
            "cuGraphKernelNodeGetAttribute", c_void_p(node), c_int(attribute_number), byref(value)
        )
    except device.CudaError:  # older drivers do not know every one
        return [0] * 16
    return list(value)


@dataclass(frozen=True)
class LoadedCode:
    """Machine code on the GPU, with its own table."""

    module: int
    functions: Mapping[str, int]  # name of a kernel -> CUfunction


def load_code(code: MachineCode, names: Sequence[MangledName]) -> LoadedCode:
    module = c_void_p()
    image = ctypes.create_string_buffer(code, len(code))
    device.call_driver("cuModuleLoadData", byref(module), image)
    functions = {}
    for name in names:
        function = c_void_p()
        device.call_driver("cuModuleGetFunction", byref(function), module, c_char_p(name.encode()))
        functions[name] = function.value or 0
    return LoadedCode(module.value or 0, functions)


def unload_code(loaded: LoadedCode) -> None:
    device.call_driver("cuModuleUnload", c_void_p(loaded.module))


def _get_address_and_size(
    driver_function: str, *arguments: c_void_p | c_char_p | c_ulonglong
) -> tuple[DeviceAddress, ByteCount]:
    """Return (address, bytes) that a function of the driver answers; zeros where it knows of none."""
    place = c_ulonglong()
    size = c_size_t()
    try:
        device.call_driver(driver_function, byref(place), byref(size), *arguments)
    except device.CudaError:
        return 0, 0
    return place.value, size.value


def find_global(module: CudaModule, name: str, least_bytes: ByteCount) -> DeviceAddress:
    """Return the address of an array of a module that has so many bytes at least."""
    word = c_char_p(name.encode())
    place, has = _get_address_and_size("cuModuleGetGlobal_v2", c_void_p(module), word)
    if has < least_bytes:
        raise ProfkitError(f"the rewritten module has no room for {name}")
    return place


def find_allocation_span(address: DeviceAddress) -> tuple[DeviceAddress, ByteCount]:
    """Return (first address, bytes) of what an address was allocated with; zeros if it was not."""
    return _get_address_and_size("cuMemGetAddressRange_v2", c_ulonglong(address))


def write_global(module: CudaModule, name: str, content: bytes) -> None:
    source = ctypes.create_string_buffer(content, len(content))
    place = find_global(module, name, len(content))
    device.copy_to_device(place, ctypes.addressof(source), len(content))


def copy_globals(launch: KernelLaunch, loaded: LoadedCode, names: Sequence[str]) -> None:
    """Give the arrays of a module what those of the same names hold in the original."""
    owner = c_void_p()
    ask = "cuModuleGetGlobal_v2"
    try:
        if launch.kernel:
            ask = "cuLibraryGetGlobal"
            device.call_driver("cuKernelGetLibrary", byref(owner), c_void_p(launch.kernel))
        else:
            device.call_driver("cuFuncGetModule", byref(owner), c_void_p(launch.function))
    except device.CudaError:  # its arrays cannot be found
        return
    for name in names:
        word = c_char_p(name.encode())
        here = _get_address_and_size("cuModuleGetGlobal_v2", c_void_p(loaded.module), word)
        there = _get_address_and_size(ask, owner, word)
        if here[0] and there[0] and here[1] == there[1]:
            device.copy_on_device(here[0], *there)
    device.wait_for_gpu_or_stream()


def copy_allowed_shared_memory(launch: KernelLaunch, loaded: LoadedCode) -> None:
    """Let a kernel have the shared memory that the original was allowed."""
    function = loaded.functions[launch.name]
    carveout = library.read_kernel_attribute(launch.function, _CARVEOUT)
    allow_dynamic_shared_memory(function, launch.smem)
    _set_attribute(function, _CARVEOUT, carveout)
    if prod(launch.cluster) > 1:
        _set_attribute(function, _OTHER_CLUSTERS, 1)


def allow_dynamic_shared_memory(function: CudaFunction, size_bytes: ByteCount) -> None:
    _set_attribute(function, _MOST_SHARED, size_bytes)


def _set_attribute(function: CudaFunction, attribute_number: int, value: int) -> None:
    device.call_driver(
        "cuFuncSetAttribute", c_void_p(function), c_int(attribute_number), c_int(value)
    )


@dataclass(frozen=True)
class Shape:
    """Of how many blocks one is launched, and with what."""

    part: int = 1
    axis: int | None = None  # of the grid, along which that is; None: the longest
    more_shared: int = 0  # bytes of dynamic shared memory besides


WHOLE = Shape()


@dataclass(frozen=True)
class Replay:
    """How a call is made again: with which code, and in which shape."""

    call: CapturedCall
    # name of a kernel -> the function that is launched in its place
    functions: Mapping[str, int] = field(default_factory=dict)
    smem: Mapping[str, int] = field(default_factory=dict)  # dynamic shared memory, where another
    shape: Shape = WHOLE

    def enqueue_call(self, stream: CudaStream) -> None:
        for step in self.call.steps:
            if isinstance(step, MemoryFill):
                _fill_memory(step, stream)
                continue
            grid = step.grid
            if self.shape.part > 1:
                grid = shrink_grid(grid, self.shape.part, self.shape.axis)
            function = self.functions.get(step.name, step.function)
            smem = self.smem.get(step.name, step.smem + self.shape.more_shared)
            _launch_kernel(step, function, grid, smem, stream)


def shrink_grid(grid: Dim3, grid_divisor: int, axis: int | None = None) -> Dim3:
    """Return one of so many blocks, along an axis or the longest; one block stays one."""
    if axis is None:
        axis = rank_axes_longest_first(grid)[0]
    sizes = list(grid)
    sizes[axis] = max(1, sizes[axis] // grid_divisor)
    return sizes[0], sizes[1], sizes[2]


def rank_axes_longest_first(grid: Dim3) -> list[AxisNumber]:
    """Return the axes of a grid, the longest first."""
    return sorted(range(3), key=lambda axis: -grid[axis])


def _fill_memory(fill: MemoryFill, stream: CudaStream) -> None:
    bits = 8 * fill.element
    name = f"cuMemsetD{bits}Async"
    number = {8: ctypes.c_ubyte, 16: ctypes.c_ushort, 32: c_uint}[bits](fill.value)
    device.call_driver(name, c_ulonglong(fill.to), number, c_size_t(fill.count), c_void_p(stream))


def _launch_kernel(
    launch: KernelLaunch,
    function: CudaFunction,
    grid: Dim3,
    dynamic_smem_bytes: ByteCount,
    stream: CudaStream,
) -> None:
    attributes = (_Attribute * 2)()
    given = []
    if prod(launch.cluster) > 1:
        given.append((_CLUSTER, launch.cluster))
    if launch.cooperative:
        given.append((_COOPERATIVE, (1, 0, 0)))
    for attribute, (number, value) in zip(attributes, given, strict=False):
        attribute.id = number
        attribute.value[0:3] = value
    config = _Config(
        smem=dynamic_smem_bytes, stream=stream, attributes=attributes, count=len(given)
    )
    config.grid[:] = grid
    config.block[:] = launch.block
    pointers = c_void_p(function), c_void_p(launch.parameters), c_void_p(launch.extra)
    device.call_driver("cuLaunchKernelEx", byref(config), *pointers)


class Hung(ProfkitError):
    """A launch that did not end in time; the process is of no more use."""


_NOT_READY = 600


def run_with_timeout(
    enqueue: Callable[[CudaStream], None], stream: CudaStream, timeout_s: Seconds
) -> None:
    """Make a call and wait for it, but no longer than `timeout_s`."""
    event = device.create_event()
    enqueue(stream)
    device.record_event(event, stream)
    until = time.monotonic() + timeout_s
    while True:
        try:
            return device.call_driver("cuEventQuery", c_void_p(event))
        except device.CudaError as error:
            if error.code != _NOT_READY:
                raise
        if time.monotonic() > until:
            raise Hung(f"it did not finish within {timeout_s:.1f} s")
        time.sleep(_POLL)


def pack_64_bit_words(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}Q", *words)


def download_bytes(address: DeviceAddress, size_bytes: ByteCount) -> bytes:
    """Return bytes from the GPU."""
    content = (ctypes.c_ubyte * size_bytes)()
    device.copy_to_host(ctypes.addressof(content), address, size_bytes)
    return bytes(content)


def download_64_bit_words(address: DeviceAddress, count: int) -> Sequence[int]:
    """Return words of 8 bytes from the GPU."""
    return struct.unpack(f"<{count}Q", download_bytes(address, 8 * count))
