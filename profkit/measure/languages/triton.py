"""Triton: a Python file whose launch function starts functions that `triton.jit` compiles.

Compiled without a GPU, in a process of its own with a time limit (profkit.measure.aot):
while a launch function runs there, Triton has a driver (DriverBase, the interface of its own back
ends) that knows the target, takes the machine code and starts nothing. What was to be started is left
as plan.h, plan.json and the kernels' machine code; a C compiler makes the library of these and
player.c.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure import process
from profkit.measure.cuda.resources import LIMITS
from profkit.measure.languages import plan, python_source
from profkit.measure.languages.language import CompileJob, Language, Programs, package_version

PLAYER = Path(__file__).with_name("player.c")
CASE = "at case "  # the compiling process begins a line with it before it runs a case
_WORKER = (sys.executable, "-m", "profkit.measure.aot")
_TIMEOUT = 300.0  # seconds for one file: every case of its problem is compiled
_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of Linux, and of Linux under Windows
# How a value lies in a kernel's parameters, by Triton's name of its type.
_WHOLE = ((1, "b"), (8, "b"), (16, "h"), (32, "i"), (64, "q"))
_PACKED = {
    **{f"i{bits}": f"<{code}" for bits, code in _WHOLE},
    **{f"u{bits}": f"<{code.upper()}" for bits, code in _WHOLE},
    **{"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"},
}


def _missing() -> str:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton (torch brings it too)"
    if _c_compiler() is None:
        return "no C compiler (cc, gcc or clang) on PATH: install one, or say which with CC"
    return ""


def _lacking() -> str:
    here = any(Path(place).exists() for place in _GPU_FILES)
    return _missing() or ("" if here else "no GPU here: it can be built, not checked or timed")


def _c_compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang on PATH."""
    names = [os.environ.get("CC") or "", "cc", "gcc", "clang"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def _version(_: Programs | None = None) -> str:
    return f"Triton {package_version('triton') or '?'}"


def _surroundings(job: CompileJob) -> Sequence[str]:
    """The compiler, the cases that it compiles for, and how its kernels are started."""
    try:
        problem = hashlib.sha256((job.problem / "problem.py").read_bytes()).hexdigest()
    except OSError:
        problem = ""
    player = hashlib.sha256(PLAYER.read_bytes()).hexdigest()[:16]
    return (_version(), problem, player, str(job.sms))


def _compile(
    jobs: Sequence[CompileJob], work: Path, _: Programs, parallel: int | None
) -> dict[int, float]:
    """Run each file's launch function in a process of its own, at every case of its problem."""
    with ThreadPoolExecutor(parallel or process.cores()) as pool:
        runs = [pool.submit(_compile_job, job, work / str(i)) for i, job in enumerate(jobs)]
        return {i: run.result() for i, run in enumerate(runs)}


def _compile_job(job: CompileJob, stem: Path) -> float:
    """Leave <stem>.so, .o, .json and .log; in seconds."""
    began = time.monotonic()
    if error := _missing() or _failed(job, stem):
        stem.with_suffix(".log").write_text(error, encoding="utf-8")
    return time.monotonic() - began


def _failed(job: CompileJob, stem: Path) -> str:
    """Compile; what went wrong, empty if nothing did."""
    folder = stem.with_suffix(".ahead")
    folder.mkdir()
    request = {**asdict(job), "path": str(job.path), "problem": str(job.problem)}
    request_file = folder / "request.json"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    text = os.environ.get("PROFKIT_COMPILE_SECONDS", "")
    limit = float(text) if re.fullmatch(r"\d{1,6}", text) and int(text) else _TIMEOUT
    # A cache of this build's own, and what ptxas says of each kernel.
    own = {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DUMP_PTXAS_LOG": "1"}
    done = process.run_command([*_WORKER, str(request_file)], limit, {**os.environ, **own})
    if done.status is None:
        return (
            f"{job.path.name} was still compiling after {limit:.0f} s and was stopped\n"
            "PROFKIT_COMPILE_SECONDS=900 gives it longer; fewer specialisations take less: "
            "do_not_specialize, fewer cases"
        )
    if done.status:
        # The lines of the kernel that its compiler showed with an error.
        _, mark, excerpt = done.output.rpartition("CompilationError: ")
        more = f"\n{excerpt.rstrip()[:2000]}" if mark else ""
        return f"{one_line_of(done.output, job.path)} ({_version()}){more}"
    object_file, library = stem.with_suffix(".o"), stem.with_suffix(".so")
    start = [_c_compiler() or "cc", "-O2", "-fPIC"]
    inside = f"-I{folder}", f"-Wa,-I{folder}"
    built = process.run_command([*start, *inside, "-c", "-o", str(object_file), str(PLAYER)], 60)
    if built.status == 0:
        linking = ["-shared", "-o", str(library), str(object_file), "-ldl"]
        built = process.run_command([*start, *linking], 60)
    if built.status:
        return f"{start[0]} could not compile the launcher of {job.path.name}\n{built.output}"
    os.replace(folder / "plan.json", stem.with_suffix(".json"))
    os.replace(folder / "ptxas.log", stem.with_suffix(".log"))
    return ""


def one_line_of(output: str, path: Path) -> str:
    """One line out of a traceback: which line of the file, what, and at which case."""
    lines = [line for line in output.splitlines() if line.strip()]
    cases = [line.removeprefix(CASE) for line in lines if line.startswith(CASE)]
    rows = re.findall(rf'File "{re.escape(str(path))}", line (\d+)', output)
    inside = re.findall(r"CompilationError: at (\d+):\d+:", output)
    where = f":{rows[-1]}" if rows else ""
    kernel = f", line {inside[-1]} of the kernel that it starts" if inside else ""
    what = lines[-1].strip() if lines else "its process ended without a word"
    case = f" at case {cases[-1]}" if cases else ""
    return f"{path.name}{where}{kernel}: {what[:300]}{case}"


LANGUAGE = Language(
    name="Triton",
    suffix=".py",
    needs_sms=True,
    owns=lambda path, text: python_source.imports_package(path, text, "triton"),
    is_meant=python_source.is_meant,
    header=python_source.read_header,
    code_hash=python_source.code_hash,
    text_hash=python_source.text_hash,
    # the tunables as they are set in the module
    flags=lambda _, defines: tuple(f"{k}={v}" for k, v in sorted(defines.items())),
    missing=_missing,
    lacking=_lacking,
    compiler=_version,
    surroundings=_surroundings,
    compile=_compile,
)


class Recorder:
    """A GPU that is not there, as Triton asks one: its DriverBase, of which it needs these.

    One for all cases of a plan: what Triton has compiled stays compiled.
    """

    def __init__(self, call: plan.CallPlan, arch: str) -> None:
        self.images, self.arch, self.utils = call.images, arch.rstrip("af"), self
        self.args: plan.LaunchArgs
        self.starts: list[plan.KernelStart] = []
        self.printed = io.StringIO()
        self.latest: _Launcher

    @contextlib.contextmanager
    def recording(self, args: plan.LaunchArgs) -> Iterator[list[plan.KernelStart]]:
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
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", int(self.arch), 32)

    def get_active_torch_device(self) -> Any:
        raise ProfkitError(
            "the launch function asks for torch's device, and there is none while compiling",
            "memory of its own comes from args.scratch(shape, dtype)",
        )

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
        self.latest.loaded(cubin, self.printed.getvalue())
        self.printed.seek(0)
        self.printed.truncate()
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
        images = self.driver.images
        self.number = len(images)
        images.append(plan.KernelImage(self.name, self.metadata.name, cubin, log))

    def __call__(self, *args: Any) -> None:
        """Grid x, y, z, stream, function, packed metadata, launch metadata, hooks, arguments."""
        grid, meta = args[:3], self.metadata
        arguments = args[len(args) - len(self.types) :]
        if any(n < 1 for n in grid):
            return  # nothing to start, as Triton's own launcher has it
        cluster = getattr(meta, "num_ctas", 1)
        parameters: list[plan.Parameter] = []
        scratch = self.driver.args.requested
        for argument, kind in zip(arguments, self.types.values(), strict=True):
            parameters += _packed(argument, kind)
        # Two pointers that Triton adds to every kernel: memory for descriptors, and for profiles.
        for name in ("global_scratch_size", "profile_scratch_size"):
            size = getattr(meta, name, None)
            if size:
                parameters.append(plan.Parameter("scratch", len(scratch)))
                scratch.append(plan.Scratch(size * grid[0] * grid[1] * grid[2] * cluster))
            elif size is not None:
                parameters.append(plan.Parameter("value"))
        start = plan.KernelStart(
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


def _shown(source: Any, metadata: Any) -> str:
    """`attend<BLOCK=64, n%16=0>`: the function and what it was compiled for."""
    names, types = source.fn.arg_names, source.signature

    def name(key: Any) -> str:
        return str(names[key[0]] if isinstance(key, tuple) else key)

    known = [f"{name(key)}={value}" for key, value in source.constants.items()]
    whole = [name(key) for key in getattr(source, "attrs", None) or {}]
    known += [f"{n}%16=0" for n in whole if not str(types.get(n, "*")).startswith("*")]
    return f"{metadata.name}<{', '.join(known)}>"


def _packed(argument: Any, kind: Any) -> list[plan.Parameter]:
    """An argument as kernel parameters; a constant is none."""
    if isinstance(kind, tuple):
        return list(chain.from_iterable(map(_packed, argument, kind)))
    if kind == "constexpr":
        return []
    if kind.startswith("*"):
        return [plan.parameter_of(argument if isinstance(argument, int) else argument.data_ptr())]
    if kind not in _PACKED:
        raise ProfkitError(
            f"a kernel parameter of type {kind} is not known here",
            "give pointers and numbers; a descriptor is made inside the kernel: "
            "tl.make_tensor_descriptor",
        )
    bits = struct.pack(_PACKED[kind], argument)
    return [plan.Parameter("value", 0, int.from_bytes(bits, "little"))]
