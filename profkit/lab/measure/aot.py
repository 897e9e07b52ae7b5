"""A kernel file in Python and its problem  ->  the plan of its launches; the process that runs it.

`python -m profkit.lab.measure.aot REQUEST.json` is started by languages/triton.py. The
file's own code runs here and nowhere else, without a GPU and for as long as that allows: while its
launch function runs, Triton has a driver (DriverBase, the interface of its own back ends) that knows
the target, takes the machine code and starts nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import struct
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.collect.process import exit_when_parent_ends
from profkit.errors import ProfkitError
from profkit.evidence.users_code import import_python_file_as
from profkit.lab.measure.cuda.resources import LIMITS
from profkit.lab.measure.languages import plan as plans
from profkit.lab.measure.languages.language import CompileJob
from profkit.lab.measure.languages.plan import (
    CallPlan,
    CasePlan,
    DeviceArray,
    KernelStart,
    LaunchArgs,
    PlaceKind,
    make_array_at_coded_address,
)
from profkit.lab.measure.languages.triton import CASE, LAUNCH
from profkit.lab.measure.variants import problem

if TYPE_CHECKING:
    from profkit.units import (
        DeviceArrayOrNumber,
        ExitStatus,
        TritonMetadata,
        TritonSource,
    )


ShapesAndTypes = Sequence[tuple[Sequence[int], Any]]
# How a value lies in a kernel's parameters, by Triton's name of its type.
_WHOLE = ((1, "b"), (8, "b"), (16, "h"), (32, "i"), (64, "q"))
_PACKED = {
    **{f"i{bits}": f"<{code}" for bits, code in _WHOLE},
    **{f"u{bits}": f"<{code.upper()}" for bits, code in _WHOLE},
    **{"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"},
}


def _run_compile_request(arguments: list[str]) -> ExitStatus:
    """Do what a request says; what goes wrong ends in a traceback, or in one line."""
    exit_when_parent_ends()
    request_file = Path(arguments[0])
    request = json.loads(request_file.read_text(encoding="utf-8"))
    path = Path(request.pop("path"))
    folder = Path(request.pop("problem"))
    warnings.simplefilter("ignore")
    try:
        plan = _plan_all_cases(CompileJob(path=path, problem=folder, **request))
    except ProfkitError as error:
        if error.hint:
            hint = f"; {error.hint}"
        else:
            hint = ""
        sys.stderr.write(f"{error.message}{hint}\n")
        return 2
    place = request_file.parent
    for i, image in enumerate(plan.images):
        (place / f"image{i}.cubin").write_bytes(image.cubin)
    written = {
        "plan.h": plan.write_c_tables(),
        "plan.json": json.dumps(plan.to_json()),
        "ptxas.log": "".join(image.log for image in plan.images),
    }
    for name, text in written.items():
        (place / name).write_text(text, encoding="utf-8")
    return 0


def _make_arrays(place_kind: PlaceKind, types: ShapesAndTypes) -> list[DeviceArray]:
    """Return arrays of these shapes and types, at addresses that stand for a place of a kind."""
    arrays = []
    for number, (shape, dtype) in enumerate(types):
        arrays.append(make_array_at_coded_address(place_kind, number, str(dtype), shape))
    return arrays


def _plan_all_cases(job: CompileJob) -> CallPlan:
    """Run a file's launch function at every case of its problem."""
    if not problem.is_complete_problem_folder(job.problem):
        raise ProfkitError(
            f"{job.problem} has no problem.py with cases",
            "a function is compiled for the arrays of its problem's cases",
        )
    loaded = problem.load_problem(job.problem)
    plan = CallPlan()
    launch = _import_launch_function(job)
    recorder = RecordingTritonDriver(plan, job.arch)
    types_of = _make_input_types_getter(loaded, job.grid)
    for name, case in {**loaded.cases, **loaded.checks}.items():
        sys.stderr.write(f"{CASE}{name}\n")
        values = dict(loaded.module.arguments(case))
        args = LaunchArgs(values, job.arch, job.sms)
        inputs = _make_arrays("in", types_of(case))
        outputs = _make_arrays("out", loaded.module.outputs(case))
        try:
            with recorder.record_starts(args) as starts:
                launch(*inputs, *outputs, args)
        except NotImplementedError:  # as CUDA variants say cudaErrorNotSupported
            plan.cases.append(CasePlan(name, values))
            continue
        if not starts:
            raise ProfkitError(f"{LAUNCH} started no kernel", "kernel[grid](...) starts one")
        plan.cases.append(CasePlan(name, values, tuple(starts), tuple(args.requested)))
    return plan


def _import_launch_function(job: CompileJob) -> Callable[..., None]:
    """Import a file, set its tunables as its header does, and return its launch function."""
    module = import_python_file_as(job.path, f"_profkit_{job.path.stem}")
    for name, text in job.defines.items():
        setattr(module, name, parse_like_default(getattr(module, name), text))
    launch: Callable[..., None] = getattr(module, LAUNCH)
    return launch


def parse_like_default(default_value: Any, text: str) -> Any:
    """Return a tunable's value out of a header, of the kind that the file's own default is."""
    kind = type(getattr(default_value, "value", default_value))
    value: Any = text
    if kind is bool:
        value = text in ("1", "True", "true")
    elif kind in (int, float, str):
        value = kind(text)
    # tl.constexpr and its like wrap a value
    if hasattr(default_value, "value"):
        return type(default_value)(value)
    return value


def _make_input_types_getter(
    loaded: problem.Problem, inputs_key: str | None
) -> Callable[[Any], ShapesAndTypes]:
    """Return case -> (shape, dtype) of each input.

    Without the problem's `input_types`, the types are those of the smallest case, and each has one
    axis of unknown length.
    """
    if hasattr(loaded.module, "input_types"):
        declared: Callable[[Any], ShapesAndTypes] = loaded.module.input_types
        return declared
    small = min({**loaded.cases, **loaded.checks}.values(), key=loaded.module.operations)
    types: ShapesAndTypes = [
        ((0,), str(a.dtype)) for a in loaded.module.inputs(small, 0, inputs_key)
    ]
    return lambda _: types


class RecordingTritonDriver:
    """A GPU that is not there, as Triton asks one: its DriverBase, of which it needs these.

    One for all cases of a plan: what Triton has compiled stays compiled.
    """

    def __init__(self, call: CallPlan, arch: str) -> None:
        self.images, self.arch, self.utils = call.images, arch.rstrip("af"), self
        self.args: LaunchArgs
        self.starts: list[KernelStart] = []
        self.printed = io.StringIO()
        self.latest: _RecordingLauncher

    @contextlib.contextmanager
    def record_starts(self, args: LaunchArgs) -> Iterator[list[KernelStart]]:
        """Compile what is started inside, and write it down instead of starting it."""
        from triton.runtime import driver

        self.args, self.starts, self.printed = args, [], io.StringIO()
        driver.set_active(self)
        with contextlib.redirect_stdout(self.printed):
            yield self.starts

    is_active = staticmethod(lambda: True)
    get_current_device = get_current_stream = staticmethod(lambda _device=0: 0)
    map_python_to_cpp_type = staticmethod(lambda kind: kind)

    def get_current_target(self) -> Any:
        """Return the GPU that kernels are compiled for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", int(self.arch), 32)

    def get_active_torch_device(self) -> Any:
        """Refuse: nothing is on a GPU while kernels are compiled."""
        raise ProfkitError(
            "the launch function asks for torch's device, and there is none while compiling",
            "memory of its own comes from args.scratch(shape, dtype)",
        )

    def get_benchmarker(self) -> Any:
        """Refuse: nothing is timed while kernels are compiled."""
        raise ProfkitError(
            "@triton.autotune chooses by timing, and compiling times nothing",
            "say the choices in the header, tune: BLOCK=64,128, and start the kernel with BLOCK",
        )

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Return the sizes of the GPU that kernels are compiled for."""
        limits = LIMITS.get(self.arch, LIMITS["90"])
        return {
            "max_shared_mem": limits.smem - limits.reserved,
            "multiprocessor_count": self.args.sms,
        }

    def launcher_cls(self, source: TritonSource, metadata: TritonMetadata) -> Any:
        """Make the launcher of a kernel, and remember it for load_binary."""
        self.latest = _RecordingLauncher(self, source, metadata)
        return self.latest

    def load_binary(self, _name: str, cubin: bytes, *_: Any) -> tuple[int, int, int, int, int]:
        """Keep the machine code of the kernel whose launcher was made last."""
        # Called right after launcher_cls, for the same kernel.
        self.latest.keep_machine_code(cubin, self.printed.getvalue())
        self.printed.seek(0)
        self.printed.truncate()
        return 1, 1, 0, 0, 1024  # handles that nobody uses; registers, spills, threads


class _RecordingLauncher:
    """What Triton calls to start one kernel: it writes the start down."""

    def __init__(self, driver: Any, source: TritonSource, metadata: TritonMetadata) -> None:
        self.driver = driver
        self.metadata = metadata
        self.types: Mapping[str, Any] = source.signature
        self.name = _describe_kernel_with_constants(source, metadata)
        self.number = -1

    def keep_machine_code(self, cubin: bytes, ptxas_output: str) -> None:
        """Keep a kernel's machine code, and what ptxas said of it, under the name that tables show."""
        entry = f"entry function '{self.metadata.name}'"
        log = ptxas_output.replace(entry, f"entry function '{self.name}'")
        images = self.driver.images
        self.number = len(images)
        images.append(plans.KernelImage(self.name, self.metadata.name, cubin, log))

    def __call__(self, *args: Any) -> None:
        """Grid x, y, z, stream, function, packed metadata, launch metadata, hooks, arguments."""
        grid = args[:3]
        meta = self.metadata
        arguments = args[len(args) - len(self.types) :]
        if any(n < 1 for n in grid):
            return  # nothing to start, as Triton's own launcher has it
        cluster = getattr(meta, "num_ctas", 1)
        parameters: list[plans.Parameter] = []
        scratch = self.driver.args.requested
        for argument, kind in zip(arguments, self.types.values(), strict=True):
            parameters += _pack_argument(argument, kind)
        # Two pointers that Triton adds to every kernel: memory for descriptors, and for profiles.
        for name in ("global_scratch_size", "profile_scratch_size"):
            size = getattr(meta, name, None)
            if size:
                parameters.append(plans.Parameter("scratch", len(scratch)))
                scratch.append(plans.Scratch(size * grid[0] * grid[1] * grid[2] * cluster))
            elif size is not None:
                parameters.append(plans.Parameter("value"))
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


def _describe_kernel_with_constants(source: TritonSource, metadata: TritonMetadata) -> str:
    """Return a function and what it was compiled for: `attend<BLOCK=64, n%16=0>`."""
    names = source.fn.arg_names
    types = source.signature

    def name_key(key: Any) -> str:
        return str(names[key[0]] if isinstance(key, tuple) else key)

    known = [f"{name_key(key)}={value}" for key, value in source.constants.items()]
    for key in getattr(source, "attrs", None) or {}:
        name = name_key(key)
        is_pointer = str(types.get(name, "*")).startswith("*")
        if not is_pointer:
            known.append(f"{name}%16=0")
    return f"{metadata.name}<{', '.join(known)}>"


def _pack_argument(argument: DeviceArrayOrNumber, kind: Any) -> list[plans.Parameter]:
    """Return an argument as kernel parameters; a constant is none."""
    if isinstance(kind, tuple):
        return list(chain.from_iterable(map(_pack_argument, argument, kind)))
    if kind == "constexpr":
        return []
    if kind.startswith("*"):
        return [
            plans.decode_array_address(
                argument if isinstance(argument, int) else argument.data_ptr()
            )
        ]
    if kind not in _PACKED:
        raise ProfkitError(
            f"a kernel parameter of type {kind} is not known here",
            "give pointers and numbers; a descriptor is made inside the kernel: "
            "tl.make_tensor_descriptor",
        )
    bits = struct.pack(_PACKED[kind], argument)
    return [plans.Parameter("value", 0, int.from_bytes(bits, "little"))]


if __name__ == "__main__":
    sys.exit(_run_compile_request(sys.argv[1:]))
