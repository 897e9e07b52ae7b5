"""A built library  ->  functions to call through ctypes, and the plan of one call under a profiler."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.cuda import device
from profkit.measure.variants.variants import Args


def load_library(path: Path) -> ctypes.CDLL:
    """Load a variant's library."""
    try:
        library = ctypes.CDLL(str(path))
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


def start_launcher(library: ctypes.CDLL, args: Args) -> None:
    """Start the work; raises CudaError with what the launcher returned."""
    code = library.profkit_launch(ctypes.byref(args))
    if code:
        raise device.CudaError(code, "profkit_launch")


@dataclass(frozen=True)
class Support:
    """support.cu, loaded."""

    spin: Callable[[int, int], None]  # (nanoseconds, stream): keep the stream busy
    flush: Callable[[int], None]  # (stream): read a buffer larger than L2
    # (to, from, bytes, nanoseconds, stream): copy late, having let the next kernel begin
    put: Callable[[int, int, int, int, int], None]
    # (library, args, n): seconds of host time per call
    repeat: Callable[[ctypes.CDLL, Args, int], float]
    # (n, stream): seconds of host time per start of an empty kernel
    bare: Callable[[int, int], float]
    push: Callable[[str], None]  # (text): open an NVTX range
    pop: Callable[[], None]  # close it


def support(path: Path, gpu: device.Gpu | None = None) -> Support:
    """Load support.cu's library; without a gpu nothing is allocated, and flush must not be used."""
    lib = ctypes.CDLL(str(path))
    lib.profkit_repeat.restype = lib.profkit_bare.restype = ctypes.c_longlong
    size = 2 * gpu.l2 if gpu else 0
    buffer = device.allocate(size) if gpu else 0
    if gpu:
        device.fill(buffer, 0, size)

    def ok(code: int, what: str) -> None:
        if code:
            raise device.CudaError(code, what)

    def spin(nanoseconds: int, stream: int) -> None:
        ok(lib.profkit_spin(ctypes.c_longlong(nanoseconds), ctypes.c_void_p(stream)), "spin")

    def flush(stream: int) -> None:
        blocks = 4 * gpu.sms if gpu else 0
        sizes = ctypes.c_void_p(buffer), ctypes.c_size_t(size), ctypes.c_int(blocks)
        ok(lib.profkit_flush(*sizes, ctypes.c_void_p(stream)), "flush")

    def put(to: int, source: int, size: int, nanoseconds: int, stream: int) -> None:
        places = ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size)
        hold = ctypes.c_longlong(nanoseconds)
        ok(lib.profkit_put(*places, hold, ctypes.c_void_p(stream)), "put")

    def repeat(library: ctypes.CDLL, args: Args, n: int) -> float:
        error = ctypes.c_int()
        function = ctypes.cast(library.profkit_launch, ctypes.c_void_p)
        took = lib.profkit_repeat(function, ctypes.byref(args), n, ctypes.byref(error))
        ok(error.value, "profkit_launch")
        return float(took) / n * 1e-9

    def bare(n: int, stream: int) -> float:
        error = ctypes.c_int()
        took = lib.profkit_bare(n, ctypes.c_void_p(stream), ctypes.byref(error))
        ok(error.value, "an empty kernel")
        return float(took) / n * 1e-9

    def push(text: str) -> None:
        lib.profkit_range_push(text.encode())

    return Support(spin, flush, put, repeat, bare, push, lib.profkit_range_pop)


@dataclass(frozen=True)
class Plan:
    """One call."""

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

    def write(self, path: Path) -> None:
        """Write the plan for the program."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """The plan that `write` wrote."""
    return Plan(**json.loads(path.read_text(encoding="utf-8")))
