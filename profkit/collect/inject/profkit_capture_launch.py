"""A kernel and what it was given  ->  copies of what it can reach, and a file that defines it alone.

What the function uses is found by name: modules are imported, constants written down, other kernel
functions of the same program taken along; those of a library that imports by itself are imported.
"""

from __future__ import annotations

import math
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

ArrayStatistics = dict[str, Any]
ByteCount = int
DeviceAddress = int
InputNumber = int
LaunchArgument = Any
NumpyArray = Any
Seconds = float
TorchTensor = Any
TritonKernel = Any

_REPLAYS = 9
_PER_GRAPH = 20
_DRAWN = ("float16", "bfloat16", "float32", "float64")  # what else there is is kept: indices, masks


@dataclass
class ReachableMemory:
    """What a kernel can reach through one pointer: the tensor's elements and what lies between."""

    name: str  # the kernel's parameter; the first one of those that were given this memory
    tensor: Any
    flat: Any  # the same memory as one axis
    before: Any  # a copy from before the launch
    after: Any = None  # a copy from after it; the same object where nothing was written
    works_in_place: bool = False
    others: list[str] = field(default_factory=list)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Return every parameter that was given this memory, such as x and out of a call in place."""
        return (self.name, *self.others)

    @property
    def is_written(self) -> bool:
        """Return whether the launch changed it."""
        return self.after is not self.before

    def describe_memory(self, flat: TorchTensor) -> dict[str, Any]:
        """Return format, sizes and statistics of the memory, of before the launch or after it."""
        known: dict[str, Any] = {
            "name": self.name,
            "dtype": str(flat.dtype).removeprefix("torch."),
            "length": flat.numel(),
            "bytes": flat.numel() * flat.element_size(),
            "shape": list(self.tensor.shape),
            "stride": list(self.tensor.stride()),
        }
        if flat.is_floating_point():
            wide = flat.float()
            finite = wide[wide.isfinite()]
            if finite.numel():
                spread = float(finite.std()) if finite.numel() > 1 else 0.0
                known |= {"mean": float(finite.mean()), "std": spread}
                known |= {"min": float(finite.min()), "max": float(finite.max())}
                known["finite"] = finite.numel() == flat.numel() and math.isfinite(spread)
        return known


class CannotCapture(Exception):
    """Why this launch is left out; the others go on."""


@dataclass
class CaptureOutcome:
    """What two launches on copies showed of a kernel: its arrays, its time, its sameness."""

    arrays: list[ReachableMemory]
    # of one launch of the program's own kernel, among many in a CUDA graph; None: it was not timed
    seconds: float | None = None
    bit_equal: bool = True  # whether a second launch on the same inputs gave the same bits
    spread: float = 0.0  # if not, the largest difference
    notes: list[str] = field(default_factory=list)


def copy_reachable_memory(
    named_tensors: Sequence[tuple[str, TorchTensor]], limit_bytes: ByteCount
) -> list[ReachableMemory]:
    """Copy all that a kernel can reach, `limit_bytes` bytes at most; CannotCapture: it is too large."""
    flats = [(name, tensor, _view_as_one_axis(tensor)) for name, tensor in named_tensors]
    _refuse_too_large_copies(
        sum(flat.numel() * flat.element_size() for *_, flat in flats), limit_bytes
    )
    arrays: dict[Any, ReachableMemory] = {}
    for name, tensor, flat in flats:
        place = (flat.data_ptr(), flat.dtype, flat.numel()) if flat.numel() else name
        if place in arrays:
            arrays[place].others.append(name)
        else:
            arrays[place] = ReachableMemory(name, tensor, flat, flat.clone())
    return list(arrays.values())


def _view_as_one_axis(tensor: TorchTensor) -> TorchTensor:
    """Return the memory from a tensor's first element to its last as one axis."""
    import torch

    span = 0
    if tensor.numel():
        span = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            span += (size - 1) * abs(stride)
    plain = tensor.detach() if hasattr(tensor, "detach") else tensor
    return torch.as_strided(plain, (span,), (1,), plain.storage_offset())


def _refuse_too_large_copies(size_bytes: ByteCount, limit_bytes: ByteCount) -> None:
    """Raise CannotCapture if so many bytes are not wanted, or no copies of them fit on the GPU."""
    import torch

    if size_bytes > limit_bytes:
        raise CannotCapture(f"its arrays have {size_bytes / 1e6:,.0f} MB, more than --limit")
    free, _ = torch.cuda.mem_get_info()
    if 6 * size_bytes > free:
        raise CannotCapture(
            f"its arrays have {size_bytes / 1e6:,.0f} MB, too much for copies on this GPU"
        )


def note_written_arrays(arrays: Sequence[ReachableMemory]) -> None:
    """Note which arrays a launch has changed; CannotCapture: one shares memory with another."""
    for one in arrays:
        one.after = one.before if _is_bit_equal(one.flat, one.before) else one.flat.clone()
    for one in arrays:
        if not one.is_written:
            continue
        for other in arrays:
            if other is not one and _is_overlapping(one.flat, other.flat):
                raise CannotCapture(f"{one.name} is written and shares memory with {other.name}")


def launch_twice_and_compare(
    arrays: Sequence[ReachableMemory], launch: Callable[[dict[str, TorchTensor]], None]
) -> CaptureOutcome:
    """Launch twice on copies: note what it needs of what it overwrites, and how results differ."""
    outcome = CaptureOutcome(list(arrays))
    if not any(a.is_written for a in arrays):
        raise CannotCapture("it changed nothing: what it writes was there before")
    _note_arrays_used_in_place(arrays, launch)
    copies = {a.name: a.before.clone() for a in arrays}
    _launch_on_copies(arrays, copies, launch)
    for array in arrays:
        if not _is_bit_equal(copies[array.name], array.after):
            outcome.bit_equal = False
            apart = _measure_largest_difference(copies[array.name], array.after)
            if apart is None:
                raise CannotCapture(f"{array.name} is finite in one launch, not in another")
            outcome.spread = max(outcome.spread, apart)
    return outcome


def _note_arrays_used_in_place(
    arrays: Sequence[ReachableMemory], launch: Callable[[dict[str, TorchTensor]], None]
) -> None:
    """Launch over poisoned outputs: one that comes out otherwise is read as well as written."""
    copies = {}
    for array in arrays:
        if array.is_written:
            copies[array.name] = _make_poisoned_copy(array.before)
        else:
            copies[array.name] = array.before.clone()
    _launch_on_copies(arrays, copies, launch)
    for array in arrays:
        if array.is_written:
            array.works_in_place = not _is_bit_equal(copies[array.name], array.after)


def rerun_outputs_on_drawn_inputs(
    outcome: CaptureOutcome,
    launch: Callable[[dict[str, TorchTensor]], None],
    draw_values: Callable[[ArrayStatistics, InputNumber], NumpyArray],
) -> dict[InputNumber, TorchTensor] | None:
    """Launch on inputs that are drawn, and keep those outputs instead; None where they are not finite.

    `draw_values`: (about an input, its number) -> it, as numpy has it.
    """
    inputs = list_inputs(outcome.arrays)
    kept = _draw_inputs(inputs, draw_values)
    tensors: dict[str, Any] = {}
    for i, array in enumerate(inputs):
        tensors[array.name] = kept.get(i, array.before)
    for array in outcome.arrays:
        if array.name not in tensors:
            tensors[array.name] = _make_poisoned_copy(array.before)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    _launch_on_copies(outcome.arrays, copies, launch)
    written = list_outputs(outcome.arrays)
    for array in written:
        result = copies[array.name]
        if result.is_floating_point() and not bool(result.isfinite().all()):
            return None
    for array in written:
        array.after = copies[array.name]
    return kept


def _draw_inputs(
    inputs: Sequence[ReachableMemory],
    draw_values: Callable[[ArrayStatistics, InputNumber], NumpyArray],
) -> dict[InputNumber, TorchTensor]:
    """Return number of an input -> what is drawn for it; nothing for indices and masks."""
    import torch

    found: dict[int, Any] = {}
    for i, array in enumerate(inputs):
        about = array.describe_memory(array.before)
        if about.get("finite") and about["dtype"] in _DRAWN:
            values = torch.from_numpy(draw_values(about, i)).to(array.before.device)
            found[i] = values.view(array.before.dtype)
    return found


def list_inputs(arrays: Sequence[ReachableMemory]) -> list[ReachableMemory]:
    """Return what is given to the kernel: what it reads, then what it works on in place."""
    read = []
    updated = []
    for array in arrays:
        if not array.is_written:
            read.append(array)
        elif array.works_in_place:
            updated.append(array)
    return [*read, *updated]


def list_outputs(arrays: Sequence[ReachableMemory]) -> list[ReachableMemory]:
    """Return what the kernel writes."""
    return [array for array in arrays if array.is_written]


def time_launch_in_seconds(
    arrays: Sequence[ReachableMemory], launch: Callable[[dict[str, TorchTensor]], None]
) -> Seconds:
    """Return seconds of one launch: the program's own kernel, many times in a CUDA graph, on copies."""
    import torch

    copies = _name_by_parameter(arrays, {a.name: a.before.clone() for a in arrays})
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(copies)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        for _ in range(_PER_GRAPH):
            launch(copies)
    times = []
    for _ in range(_REPLAYS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        start.record()
        graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) / 1e3 / _PER_GRAPH)
    return float(median(times))


def store_tensor(tensor: TorchTensor, path: Path) -> None:
    """Write the elements of a tensor as they are in memory, without a header."""
    import torch

    path.write_bytes(tensor.contiguous().view(torch.uint8).cpu().numpy().tobytes())


def _launch_on_copies(
    arrays: Sequence[ReachableMemory],
    copies: dict[str, TorchTensor],
    launch: Callable[[dict[str, TorchTensor]], None],
) -> None:
    import torch

    launch(_name_by_parameter(arrays, copies))
    torch.cuda.synchronize()


def _name_by_parameter(
    arrays: Sequence[ReachableMemory], copies: dict[str, TorchTensor]
) -> dict[str, TorchTensor]:
    named: dict[str, Any] = {}
    for array in arrays:
        named |= dict.fromkeys(array.parameter_names, copies[array.name])
    return named


def _make_poisoned_copy(tensor: TorchTensor) -> TorchTensor:
    import torch

    made = torch.empty_like(tensor)
    made.view(torch.uint8).fill_(0xFF)
    return made


def _measure_largest_difference(one: TorchTensor, other: TorchTensor) -> float | None:
    """Return the largest difference of finite values; None where others are not of one kind."""
    import torch

    sides = [side.double() for side in (one, other)]
    for kind in (torch.isposinf, torch.isneginf, torch.isnan):
        if not torch.equal(*map(kind, sides)):
            return None
    finite = sides[0].isfinite()
    largest = (sides[0] - sides[1])[finite].abs()
    return float(largest.max()) if largest.numel() else 0.0


def _is_bit_equal(one: TorchTensor, other: TorchTensor) -> bool:
    import torch

    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))


def _is_overlapping(one: TorchTensor, other: TorchTensor) -> bool:
    starts_before_end = one.data_ptr() < _get_address_behind_end(other)
    return bool(starts_before_end and other.data_ptr() < _get_address_behind_end(one))


def _get_address_behind_end(tensor: TorchTensor) -> DeviceAddress:
    """Return the address behind the last byte of a contiguous tensor."""
    size_bytes = tensor.numel() * tensor.element_size()
    return int(tensor.data_ptr() + size_bytes)


_LIBRARIES = ("triton", "torch")


def write_standalone_source(
    kernel: TritonKernel, unaligned_parameters: list[str]
) -> tuple[str, str]:
    """Return a file's (imports, definitions); unaligned parameters are at no multiple of 16 bytes."""
    imports: dict[str, None] = {"import triton": None, "import triton.language as tl": None}
    bodies: dict[str, str] = {}
    _add_kernel_source(kernel, imports, bodies)
    name = kernel.fn.__name__
    main = bodies.pop(name)
    options = _write_decorator_arguments(kernel, unaligned_parameters)
    if options:
        main = main.replace("@triton.jit\n", f"@triton.jit({options})\n", 1)
    return "\n".join(imports), "\n\n\n".join([*bodies.values(), main])


def _write_decorator_arguments(kernel: TritonKernel, unaligned_parameters: Sequence[str]) -> str:
    """Return what the decorator of a kernel is called with."""
    any_alignment = {str(name) for name in getattr(kernel, "do_not_specialize_on_alignment", ())}
    any_alignment.update(unaligned_parameters)
    options = []
    if any_value := list(getattr(kernel, "do_not_specialize", ())):
        options.append(f"do_not_specialize={any_value!r}")
    if any_alignment:
        options.append(f"do_not_specialize_on_alignment={sorted(any_alignment)!r}")
    return ", ".join(options)


def _add_kernel_source(
    kernel: TritonKernel, imports: dict[str, None], bodies: dict[str, str]
) -> None:
    function = kernel.fn
    name = function.__name__
    if name in bodies:
        return
    source = _get_source(kernel)
    bodies[name] = ""  # a function that uses itself ends here
    space = function.__globals__
    for used in sorted(_list_used_names(source) - {"tl", "triton"}):
        if used in space:
            _add_used_name(used, space[used], imports, bodies)
    del bodies[name]  # what is used comes first
    bodies[name] = f"@triton.jit\n{source}"


def _add_used_name(name: str, value: Any, imports: dict[str, None], bodies: dict[str, str]) -> None:
    module = getattr(getattr(value, "fn", value), "__module__", "") or ""
    is_of_library = module.partition(".")[0] in _LIBRARIES
    if isinstance(value, ModuleType):
        imports[_write_import(value, name)] = None
    elif hasattr(value, "fn") and hasattr(value, "arg_names"):  # a JITFunction
        if name != value.fn.__name__:
            raise CannotCapture(f"{value.fn.__name__} is called {name}")
        if is_of_library:
            imports[f"from {module} import {name}"] = None
        else:
            _add_kernel_source(value, imports, bodies)
    elif type(value).__name__ == "constexpr":
        bodies.setdefault(name, f"{name} = tl.constexpr({_write_literal(value.value, name)})")
    elif isinstance(value, int | float | str | bool | None):
        bodies.setdefault(name, f"{name} = {_write_literal(value, name)}")
    elif is_of_library and hasattr(sys.modules.get(module), name):
        imports[f"from {module} import {name}"] = None
    else:
        raise CannotCapture(
            f"it uses {name}, a {type(value).__name__} of {module or 'the program'}"
        )


def _write_literal(value: LaunchArgument, name: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, int | float | str | bool):
        return repr(value)
    raise CannotCapture(f"{name} is a {type(value).__name__}")


def _write_import(module: ModuleType, name: str) -> str:
    full = module.__name__
    parent, _, last = full.rpartition(".")
    if full == name:
        return f"import {full}"
    return f"from {parent} import {last} as {name}" if parent else f"import {full} as {name}"


def _get_source(kernel: TritonKernel) -> str:
    text = textwrap.dedent(kernel.src)
    start = re.search(r"^def\s", text, re.M)
    if start is None:
        raise CannotCapture("its source is not known")
    return text[start.start() :].rstrip()


def _list_used_names(source: str) -> set[str]:
    """Return the names that a function takes from its module: no parameters, no variables."""
    whole = symtable.symtable(source, "kernel", "exec")
    names = set()
    for symbol in whole.get_symbols():
        if symbol.is_referenced():
            names.add(symbol.get_name())
    inner = list(whole.get_children())
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        for symbol in scope.get_symbols():
            if symbol.is_global():
                names.add(symbol.get_name())
    return names


def is_block_size(name: str, value: LaunchArgument) -> bool:
    """Return whether an argument is a block size: a power of two by its name."""
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*BLOCK[A-Z0-9_]*|BLOCK[A-Z0-9_]*", name):
        return False
    return isinstance(value, int) and value > 1 and value & (value - 1) == 0


def describe_parameter(
    name: str, value: LaunchArgument, array_by_parameter: dict[str, str]
) -> dict[str, Any]:
    """Return how a variant's launch function writes an argument, which may be an array."""
    if name in array_by_parameter:
        return {"name": name, "array": array_by_parameter[name]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"name": name, "value": value}
    if type(value).__name__ == "dtype" and hasattr(value, "primitive_bitwidth"):
        return {"name": name, "code": f"tl.{_DTYPES.get(str(value), str(value))}"}
    raise CannotCapture(f"its argument {name} is a {type(value).__name__}")


_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
