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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from profkit.lab.measure import data
from profkit.lab.measure.check import judge_output_values
from profkit.lab.measure.cuda.device import NOT_SUPPORTED
from profkit.lab.measure.data import choose_storage_type, decode_stored_values
from profkit.lab.measure.variants import problem, variants
from tests.found import find_files
from tests.shared import find_folder, make_once

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
EMULATOR = Path(__file__).parent / "emulator"
WARNINGS = ("-Wall", "-Wno-unknown-pragmas", "-Wno-attributes")
FLAGS = ("-std=c++17", "-O1", "-g1", *WARNINGS)
# What no kernel's code is in: the scheduler, which tells the sanitizers what it does, and the checks.
UNWATCHED = ("-std=c++17", "-O3", "-g1", *WARNINGS, "-Wno-class-memaccess")
SANITIZERS = {
    "races": ("-fsanitize=thread",),
    "bounds": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
}
FINDING = re.compile(r"WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error|emulator: .*")
# All threads of a kernel are fibers of one: nothing runs any more in the second that ThreadSanitizer
# waits at the end for races there.
AROUND = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0",
    "TSAN_OPTIONS": "history_size=4:atexit_sleep_ms=0",
}
# Seconds of a processor for all cases of a kernel: on a busy machine they took ten minutes by the clock.
LIMITED = ("prlimit", "--cpu=1800")
# Copies and products as late as they may be, as early, and threads in another order.
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
def _scratch() -> Path:
    """The folder of what is made once a session, with the emulator's headers over those with PTX."""

    def fill(common: Path) -> None:
        shutil.copytree(KERNELS / "common", common)
        shutil.copytree(EMULATOR / "common", common, dirs_exist_ok=True)

    folder = find_folder() / "emulated"
    folder.mkdir(exist_ok=True)
    return make_once(folder / "common", fill).parent


def headers(sanitizer: str = "") -> tuple[str, ...]:
    """What g++ is told so that it finds all headers, those of a sanitizer read already."""
    folder = _scratch()
    places = (f"-I{folder}/common", f"-I{EMULATOR}", "-isystem", str(cuda_include()))
    if not sanitizer:
        return (*places, "-include", "emulator.h")

    def read(part: Path) -> None:
        part.mkdir()
        shutil.copy(EMULATOR / "emulator.h", part)
        _run(
            "g++",
            *FLAGS,
            *SANITIZERS[sanitizer],
            *places,
            "-x",
            "c++-header",
            "-o",
            str(part / "emulator.h.gch"),
            str(part / "emulator.h"),
        )

    first = make_once(folder / f"headers-{sanitizer}", read)
    return (f"-I{first}", *places, "-include", "emulator.h")


@functools.cache
def _object(name: str) -> str:
    """What a program has beside its variant: the machine, or one of the two checks."""

    def make(part: Path) -> None:
        _run("g++", *UNWATCHED, *headers(), "-c", "-o", str(part), str(EMULATOR / f"{name}.cpp"))

    return str(make_once(_scratch() / f"{name}.o", make))


def build(source: str, folder: Path, sanitizer: str) -> Path:
    """Compile one variant, given as text, into a program.

    Args:
        source: The .cu file's content.
        folder: Where to; it is filled.
        sanitizer: A key of SANITIZERS.
    """
    family = folder / "attention" / "family"
    family.mkdir(parents=True)
    (folder / "common").symlink_to(_scratch() / "common")
    variant, program = family / "variant.cpp", folder / "program"
    variant.write_text(source)
    for other in find_files(KERNELS / "attention", "**/*.cu*"):  # a variant may include another one
        shutil.copy(other, family)
    flags = (*FLAGS, *SANITIZERS[sanitizer])
    objects = _object("attention_check"), _object("emulator")
    _run("g++", *flags, *headers(sanitizer), "-o", str(program), str(variant), *objects)
    return program


@functools.cache
def _kernels() -> Path:
    """All kernels beside the emulator's headers, where they find each other."""

    def fill(tree: Path) -> None:
        shutil.copytree(
            KERNELS, tree, ignore=shutil.ignore_patterns("common", "README.md", "*.png")
        )
        (tree / "common").symlink_to(_scratch() / "common")

    return make_once(_scratch() / "kernels", fill)


def emulate(
    file: Path,
    cases: Sequence[str],
    folder: Path,
    sanitizer: str,
    schedules: Sequence[Mapping[str, str]] = ({},),
) -> Emulated:
    """Build a variant of any problem, and run and judge it on cases of its problem.py.

    Args:
        file: The .cu file.
        cases: Names of cases, with seed 0.
        folder: Where to; it is filled.
        sanitizer: A key of SANITIZERS.
        schedules: EMU_EARLY, EMU_ORDER, EMU_SMS, for each time that the cases are run: see
            emulator.cpp.
    """
    flags = (*FLAGS, *SANITIZERS[sanitizer])
    folder.mkdir(parents=True, exist_ok=True)
    program, source = folder / "program", _kernels() / file.relative_to(KERNELS)
    objects = _object("problem_check"), _object("emulator")
    _run(
        "g++",
        *flags,
        *headers(sanitizer),
        "-o",
        str(program),
        "-x",
        "c++",
        str(source),
        "-x",
        "none",
        *objects,
    )
    asked = problem.load_problem(variants.find_problem_folder_of_kernel(file))
    each = [data.load_or_compute_case_data(asked, case, 0, _inputs()) for case in cases]
    work = [(at, folder / f"{at.case}-{n}-out") for n, _ in enumerate(schedules) for at in each]
    told = iter([_told(asked, at, out) for at, out in work])
    lines = in_turn(*((schedule, [next(told) for _ in each]) for schedule in schedules))
    (folder / "launches").write_text("".join(f"{line}\n" for line in lines))
    done = subprocess.run(
        [*LIMITED, program, folder / "launches"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **AROUND},
    )
    text = done.stdout + done.stderr
    errors = [int(x) for x in re.findall(r"launch error=(\d+)", text)]
    faults = [text] if done.returncode or len(errors) != len(work) else []
    ran = [one for one, error in zip(work, errors, strict=False) if error == 0]
    for at, out in ran:
        outs = [
            decode_stored_values(
                np.fromfile(f"{out}{i}", choose_storage_type(dtype)).reshape(shape), dtype
            )
            for i, (shape, dtype) in enumerate(at.outputs)
        ]
        faults += [f"{out.name}: {f}" for f in judge_output_values(asked, at, outs).faults]
    faults += [f"error {e}" for e in errors if e not in (0, NOT_SUPPORTED)]
    return Emulated(tuple(at.case for at, _ in ran), faults, FINDING.findall(text), text)


@functools.cache
def _inputs() -> Path:
    """Where this worker keeps the inputs and references of cases: every variant is given the same."""
    folder = _scratch() / f"data-{os.getpid()}"
    folder.mkdir()
    return folder


def _told(asked: problem.Problem, at: data.CaseData, out: Path) -> str:
    """A launch as problem_check.cpp reads it."""
    values = asked.module.arguments(asked.get_case(at.case))
    six = [[*values.get(key, ()), *[0] * 6][:6] for key in ("size", "stride")]
    files = [
        (at.folder / f"in{i}", (at.folder / f"in{i}").stat().st_size) for i in range(len(at.shapes))
    ]
    files += [(f"{out}{i}", size) for i, size in enumerate(at.list_output_sizes())]
    numbers = (
        values.get("scale", 1.0),
        int(values.get("causal", False)),
        *six[0],
        *six[1],
        len(at.shapes),
        len(at.outputs),
    )
    return " ".join(map(str, (*numbers, *(word for file in files for word in file))))


def in_turn(*turns: tuple[Mapping[str, str], Sequence[str]]) -> tuple[str, ...]:
    """What one process is told that does several turns: settings and cases, each after the other.

    A process for each would spend half its time on memory for ThreadSanitizer's threads.
    """
    words: list[str] = []
    before: Mapping[str, str] = {}
    for settings, cases in turns:
        words += [f"{name}=" for name in before if name not in settings]
        words += [f"{name}={value}" for name, value in settings.items()]
        words += cases
        before = settings
    return tuple(words)


def run(program: Path, cases: tuple[str, ...], **env: str) -> Outcome:
    """Run cases B,H,S,D,causal,scale,seed.

    Args:
        program: What build() made.
        cases: One string a case, or what in_turn() made of them.
        env: EMU_EARLY, EMU_ORDER, EMU_SMS, EMU_INPUTS: see emulator.cpp and attention_check.cpp.
    """
    around = {**os.environ, **AROUND, **env}
    done = subprocess.run(
        [*LIMITED, program, *cases], capture_output=True, text=True, env=around, check=False
    )
    text = done.stdout + done.stderr
    worst = [float(x) for x in re.findall(r"worst=(\S+)", text)]
    return Outcome(
        right=done.returncode == 0 and len(worst) == sum("=" not in case for case in cases),
        worst=max(worst, default=float("inf")),
        findings=FINDING.findall(text),
        shared=[int(x) for x in re.findall(r"shared=(\d+)", text)],
        text=text,
    )


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
