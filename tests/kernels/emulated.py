"""A .cu file  ->  a program that runs it on the CPU, and what that program said.

emulator/ holds the machine (every CUDA thread is a fiber) and stand-ins for the headers that hold
PTX; everything else that runs is the variant itself. See emulator/emulator.h.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from profkit.measure.check import data
from profkit.measure.check.check import judge_values
from profkit.measure.check.dtypes import held_as, values_of
from profkit.measure.cuda.device import NOT_SUPPORTED
from profkit.measure.variants import problem, variants

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
EMULATOR = Path(__file__).parent / "emulator"
FLAGS = ("-std=c++17", "-O1", "-g1", "-Wall", "-Wno-unknown-pragmas", "-Wno-attributes")
SANITIZERS = {
    "races": ("-fsanitize=thread",),
    "bounds": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
}
FINDING = re.compile(r"WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error|emulator: .*")
# Copies and products as late as they may be, as early, and threads in another order.
AROUND = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0",
    "TSAN_OPTIONS": "history_size=4",
}
SCHEDULES: dict[str, dict[str, str]] = {
    "late": {},
    "early": {"EMU_EARLY": "1"},
    "shuffled": {"EMU_ORDER": "7"},
}


@dataclass(frozen=True)
class Outcome:
    """What one run of the program said.

    Attributes:
        right: Every case within tolerance, inputs unchanged.
        worst: The largest error over the tolerance there; infinite for NaN.
        findings: What a sanitizer or the emulator itself reported.
        shared: Dynamic shared memory of each launch, in bytes.
        text: Everything.
    """

    right: bool
    worst: float
    findings: list[str]
    shared: list[int]
    text: str


@dataclass(frozen=True)
class Emulated:
    """What a variant did on cases of its problem.

    Attributes:
        ran: The cases that it supports.
        faults: What is wrong with its values, or how it ended.
        findings: What a sanitizer or the emulator itself reported.
        text: Everything that it printed.
    """

    ran: tuple[str, ...]
    faults: list[str]
    findings: list[str]
    text: str


@functools.cache
def cuda_include() -> Path:
    """The folder of cuda_fp16.h; skips the test where there is no toolkit or no g++."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs g++ and the headers of a CUDA toolkit")
    # The compiler itself says where: nvcc on the path may be a script or a link.
    said = subprocess.run(
        [nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True, check=True
    ).stderr
    for folder in re.findall(r'"?-(?:I|isystem)"?\s*"?([^"\s]+)', said):
        if (Path(folder) / "cuda_fp16.h").is_file():
            return Path(folder)
    raise AssertionError(f"nvcc names no folder with cuda_fp16.h:\n{said}")


@functools.cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes when the process ends, with the emulator's headers over those with PTX."""
    folder = tempfile.TemporaryDirectory(prefix="emulated-")
    common = Path(folder.name) / "common"
    shutil.copytree(KERNELS / "common", common)
    shutil.copytree(EMULATOR / "common", common, dirs_exist_ok=True)
    return folder


def headers() -> tuple[str, ...]:
    """What g++ is told so that it finds all headers."""
    places = (f"-I{_scratch().name}/common", f"-I{EMULATOR}", "-isystem", str(cuda_include()))
    return (*places, "-include", "emulator.h")


@functools.cache
def _machine(sanitizer: str) -> dict[str, str]:
    """The objects that a program has beside its variant: the machine, and one of the two checks."""
    units = {  # the scheduler tells the sanitizers what it does, and is not watched itself
        "attention_check": SANITIZERS[sanitizer],
        "problem_check": SANITIZERS[sanitizer],
        "emulator": (),
    }
    made = {name: f"{_scratch().name}/{name}-{sanitizer}.o" for name in units}
    for name, flags in units.items():
        _run(
            "g++", *FLAGS, *flags, *headers(), "-c", "-o", made[name], str(EMULATOR / f"{name}.cpp")
        )
    return made


def build(source: str, folder: Path, sanitizer: str) -> Path:
    """Compile one variant, given as text, into a program.

    Args:
        source: The .cu file's content.
        folder: Where to; it is filled.
        sanitizer: A key of SANITIZERS.
    """
    family = folder / "attention" / "family"
    family.mkdir(parents=True)
    (folder / "common").symlink_to(f"{_scratch().name}/common")
    variant, program = family / "variant.cpp", folder / "program"
    variant.write_text(source)
    for other in (KERNELS / "attention").rglob("*.cu*"):  # a variant may include another one
        shutil.copy(other, family)
    flags = (*FLAGS, *SANITIZERS[sanitizer])
    machine = _machine(sanitizer)
    objects = machine["attention_check"], machine["emulator"]
    _run("g++", *flags, *headers(), "-o", str(program), str(variant), *objects)
    return program


@functools.cache
def _kernels() -> Path:
    """All kernels beside the emulator's headers, where they find each other."""
    tree = Path(_scratch().name) / "kernels"
    shutil.copytree(KERNELS, tree, ignore=shutil.ignore_patterns("common"))
    (tree / "common").symlink_to(f"{_scratch().name}/common")
    return tree


def emulate(file: Path, cases: Sequence[str], folder: Path, sanitizer: str, **env: str) -> Emulated:
    """Build a variant of any problem, and run and judge it on cases of its problem.py.

    Args:
        file: The .cu file.
        cases: Names of cases, with seed 0.
        folder: Where to; it is filled.
        sanitizer: A key of SANITIZERS.
        env: EMU_EARLY, EMU_ORDER, EMU_SMS: see emulator.cpp.
    """
    flags, machine = (*FLAGS, *SANITIZERS[sanitizer]), _machine(sanitizer)
    folder.mkdir(parents=True, exist_ok=True)
    program, source = folder / "program", _kernels() / file.relative_to(KERNELS)
    objects = machine["problem_check"], machine["emulator"]
    if not program.exists():
        _run("g++", *flags, *headers(), "-o", str(program), "-x", "c++", str(source),
             "-x", "none", *objects)  # fmt: skip
    asked = problem.load_problem(variants.problem_of(file))
    work = [data.prepare_data(asked, case, 0, folder) for case in cases]
    (folder / "launches").write_text("".join(_told(asked, at) for at in work))
    around = {**os.environ, **AROUND, **env}
    done = subprocess.run(
        [program, folder / "launches"], capture_output=True, text=True, env=around, timeout=600,
        check=False,
    )  # fmt: skip
    text = done.stdout + done.stderr
    errors = [int(x) for x in re.findall(r"launch error=(\d+)", text)]
    faults = [text] if done.returncode or len(errors) != len(work) else []
    ran = [at for at, error in zip(work, errors, strict=False) if error == 0]
    for at in ran:
        outs = [
            values_of(np.fromfile(at.folder / f"out{i}", held_as(dtype)).reshape(shape), dtype)
            for i, (shape, dtype) in enumerate(at.outputs)
        ]
        faults += [f"{at.case}: {f}" for f in judge_values(asked, at, outs).faults]
    faults += [f"error {e}" for e in errors if e not in (0, NOT_SUPPORTED)]
    return Emulated(tuple(at.case for at in ran), faults, FINDING.findall(text), text)


def _told(asked: problem.Problem, at: data.Data) -> str:
    """A launch as problem_check.cpp reads it."""
    values = asked.module.arguments(asked.case(at.case))
    six = [[*values.get(key, ()), *[0] * 6][:6] for key in ("size", "stride")]
    files = [(at.folder / f"in{i}", (at.folder / f"in{i}").stat().st_size)
             for i in range(len(at.shapes))]  # fmt: skip
    files += [(at.folder / f"out{i}", size) for i, size in enumerate(at.output_bytes())]
    numbers = (values.get("scale", 1.0), int(values.get("causal", False)), *six[0], *six[1],
               len(at.shapes), len(at.outputs))  # fmt: skip
    return " ".join(map(str, (*numbers, *(word for file in files for word in file)))) + "\n"


def run(program: Path, cases: tuple[str, ...], **env: str) -> Outcome:
    """Run cases B,H,S,D,causal,scale,seed.

    Args:
        program: What build() made.
        cases: One string a case.
        env: EMU_EARLY, EMU_ORDER, EMU_SMS, EMU_INPUTS: see emulator.cpp and attention_check.cpp.
    """
    around = {**os.environ, **AROUND, **env}
    done = subprocess.run(
        [program, *cases], capture_output=True, text=True, env=around, timeout=600, check=False
    )
    text = done.stdout + done.stderr
    worst = [float(x) for x in re.findall(r"worst=(\S+)", text)]
    return Outcome(
        right=done.returncode == 0 and len(worst) == len(cases),
        worst=max(worst, default=float("inf")),
        findings=FINDING.findall(text),
        shared=[int(x) for x in re.findall(r"shared=(\d+)", text)],
        text=text,
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
