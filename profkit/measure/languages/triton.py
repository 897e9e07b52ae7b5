"""Triton: a Python file whose launch function starts functions that `triton.jit` compiles.

Compiled without a GPU: while a launch function runs, Triton has a driver (DriverBase, the interface
of its own back ends) that knows the target, takes the machine code and starts nothing.
"""

from __future__ import annotations

import contextlib
import io
import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.cuda.resources import LIMITS
from profkit.measure.languages.plan import (
    CallPlan,
    KernelImage,
    KernelStart,
    LaunchArgs,
    Parameter,
    Scratch,
    parameter_of,
)
from profkit.measure.languages.python_source import PythonKernels

# How a value lies in a kernel's parameters, by Triton's name of its type.
_WHOLE = ((1, "b"), (8, "b"), (16, "h"), (32, "i"), (64, "q"))
_PACKED = {
    **{f"i{bits}": f"<{code}" for bits, code in _WHOLE},
    **{f"u{bits}": f"<{code.upper()}" for bits, code in _WHOLE},
    **{"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"},
}


class Triton(PythonKernels):
    """Triton 3."""

    name, package = "Triton", "triton"
    install = "pip install triton (torch brings it too)"

    def environment(self, folder: Path) -> dict[str, str]:
        """A cache of this build's own, and what ptxas says of each kernel."""
        return {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DUMP_PTXAS_LOG": "1"}

    @contextlib.contextmanager
    def recording(self, plan: CallPlan, args: LaunchArgs) -> Iterator[list[KernelStart]]:
        """Write down what is started inside."""
        from triton.runtime import driver

        starts: list[KernelStart] = []
        printed = io.StringIO()
        driver.set_active(_shared_driver(plan, args, starts, printed))
        with contextlib.redirect_stdout(printed):
            yield starts


LANGUAGE = Triton()
_DRIVERS: dict[int, _Ahead] = {}


def _shared_driver(
    plan: CallPlan, args: LaunchArgs, starts: list[Any], printed: io.StringIO
) -> Any:
    """The driver of this plan, at another case: what Triton has compiled stays compiled."""
    driver = _DRIVERS.setdefault(id(plan), _Ahead(plan, args.arch))
    driver.args, driver.starts, driver.said = args, starts, printed
    return driver


class _Ahead:
    """A GPU that is not there, as Triton asks one: its DriverBase, of which it needs these."""

    def __init__(self, plan: CallPlan, arch: str) -> None:
        self.plan, self.arch, self.utils = plan, arch.rstrip("af"), self
        self.args: LaunchArgs
        self.starts: list[KernelStart] = []
        self.said = io.StringIO()
        self.latest: _Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", int(self.arch), 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        raise ProfkitError(
            "the launch function asks for torch's device, and there is none while compiling",
            "memory of its own comes from args.scratch(shape, dtype)",
        )

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_benchmarker(self) -> Any:
        raise ProfkitError(
            "@triton.autotune chooses by timing, and compiling times nothing",
            "say the choices in the header, tune: BLOCK=64,128, and start the kernel with BLOCK",
        )

    def get_device_properties(self, _device: int) -> dict[str, int]:
        limits = LIMITS.get(self.arch, LIMITS["90"])
        return {
            "max_shared_mem": limits.smem - limits.reserved,
            "multiprocessor_count": self.args.sms,
        }

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        self.latest = _Launcher(self, source, metadata)
        return self.latest

    def load_binary(self, _name: str, cubin: bytes, *_: Any) -> tuple[int, int, int, int, int]:
        # Called right after launcher_cls, for the same kernel.
        self.latest.loaded(cubin, self.said.getvalue())
        self.said.seek(0)
        self.said.truncate()
        return 1, 1, 0, 0, 1024  # handles that nobody uses; registers, spills, threads


class _Launcher:
    """What Triton calls to start one kernel: it writes the start down."""

    def __init__(self, driver: Any, source: Any, metadata: Any) -> None:
        self.driver, self.metadata = driver, metadata
        self.types: Mapping[str, Any] = source.signature
        self.name = _shown(source, metadata)
        self.number = -1

    def loaded(self, cubin: bytes, printed: str) -> None:
        """The kernel's machine code, and what ptxas said of it, under the name that tables show."""
        entry = f"entry function '{self.metadata.name}'"
        log = printed.replace(entry, f"entry function '{self.name}'")
        images = self.driver.plan.images
        self.number = len(images)
        images.append(KernelImage(self.name, self.metadata.name, cubin, log))

    def __call__(self, *given: Any) -> None:
        """Grid x, y, z, stream, function, packed metadata, launch metadata, hooks, arguments."""
        grid, meta = given[:3], self.metadata
        arguments = given[len(given) - len(self.types) :]
        if any(n < 1 for n in grid):
            return  # nothing to start, as Triton's own launcher has it
        cluster = getattr(meta, "num_ctas", 1)
        parameters: list[Parameter] = []
        for argument, kind in zip(arguments, self.types.values(), strict=True):
            parameters += _packed(argument, kind)
        # Two pointers that Triton adds to every kernel: memory for descriptors, and for profiles.
        for name in ("global_scratch_size", "profile_scratch_size"):
            size = getattr(meta, name, None)
            if size is not None:
                parameters.append(self._own_memory(size * grid[0] * grid[1] * grid[2] * cluster))
        start = KernelStart(
            image=self.number,
            grid=grid,
            block=(32 * meta.num_warps, 1, 1),
            dynamic_smem=meta.shared,
            parameters=tuple(parameters),
            cluster=cluster,
            cooperative=bool(getattr(meta, "launch_cooperative_grid", False)),
            dependent=bool(getattr(meta, "launch_pdl", False)),
        )
        self.driver.starts.append(start)

    def _own_memory(self, size: int) -> Parameter:
        if not size:
            return Parameter("value")
        self.driver.args.asked.append(Scratch(size))
        return Parameter("scratch", len(self.driver.args.asked) - 1)


def _shown(source: Any, metadata: Any) -> str:
    """`attend<BLOCK=64, n%16=0>`: the function and what it was compiled for."""
    names, types = source.fn.arg_names, source.signature

    def name(key: Any) -> str:
        return str(names[key[0]] if isinstance(key, tuple) else key)

    known = [f"{name(key)}={value}" for key, value in source.constants.items()]
    whole = [name(key) for key in getattr(source, "attrs", None) or {}]
    known += [f"{n}%16=0" for n in whole if not str(types.get(n, "*")).startswith("*")]
    return f"{metadata.name}<{', '.join(known)}>"


def _packed(argument: Any, kind: Any) -> list[Parameter]:
    """An argument as kernel parameters; a constant is none."""
    if isinstance(kind, tuple):
        return list(chain.from_iterable(map(_packed, argument, kind)))
    if kind == "constexpr":
        return []
    if kind.startswith("*"):
        return [parameter_of(argument if isinstance(argument, int) else argument.data_ptr())]
    if kind not in _PACKED:
        raise ProfkitError(
            f"a kernel parameter of type {kind} is not known here",
            "give pointers and numbers; a descriptor is made inside the kernel: "
            "tl.make_tensor_descriptor",
        )
    bits = struct.pack(_PACKED[kind], argument)
    return [Parameter("value", 0, int.from_bytes(bits, "little"))]
