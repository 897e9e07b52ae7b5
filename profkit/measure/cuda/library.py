"""A built library  ->  functions to call through ctypes, and the plan of one call under a profiler."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.cuda import device


class Args(ctypes.Structure):
    """ProfkitArgs of kernels/common/variant.cuh: what a variant's one C function is given.

    Behind the struct that CUDA variants know lies room for more arrays, which the launchers of
    other languages read too: a captured kernel has as many as it has.
    """

    _fields_ = (
        ("input", ctypes.c_void_p * 4),
        ("out", ctypes.c_void_p * 2),
        ("size", ctypes.c_longlong * 6),
        ("stride", ctypes.c_longlong * 6),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("more_input", ctypes.c_void_p * 28),
        ("more_out", ctypes.c_void_p * 14),
    )

    @classmethod
    def filled(
        cls,
        inputs: Sequence[int],
        outputs: Sequence[int],
        values: Mapping[str, Any],
        stream: int,
    ) -> Args:
        """Arrays by their addresses on the device, and the numbers of `values`.

        Raises:
            ProfkitError: There are more arrays than it has room for.
        """
        args = cls(stream=stream)
        args._put(args.input, args.more_input, inputs)
        args._put(args.out, args.more_out, outputs)
        for name in ("size", "stride"):
            for i, n in enumerate(values.get(name, ())):
                getattr(args, name)[i] = n
        args.scale = float(values.get("scale", 1.0))
        args.causal = int(values.get("causal", False))
        return args

    def _put(self, few: Any, more: Any, addresses: Sequence[int]) -> None:
        if len(addresses) > len(few) + len(more):
            raise ProfkitError(
                f"a problem has more than {len(few) + len(more)} arrays of a kind",
                "pack several into one",
            )
        for i, address in enumerate(addresses):
            if i < len(few):
                few[i] = address
            else:
                more[i - len(few)] = address


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

    def program(self, folder: Path) -> list[str]:
        """The program that makes this call, told by a file that is written into the folder."""
        path = folder / "plan.json"
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return [sys.executable, "-m", "profkit.measure.profile.launch", str(path)]


def read_plan(path: Path) -> Plan:
    """The plan that `program` wrote."""
    return Plan(**json.loads(path.read_text(encoding="utf-8")))
