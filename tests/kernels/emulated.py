"""A .cu file  ->  a program that runs it on the CPU, and what that program said.

emulator/ holds the machine (every CUDA thread is a fiber) and stand-ins for the headers that hold
PTX; everything else that runs is the variant itself. See emulator/emulator.h.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels"
EMULATOR = Path(__file__).parent / "emulator"
FLAGS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wno-unknown-pragmas", "-Wno-attributes")
SANITIZERS = {
    "races": ("-fsanitize=thread",),
    "bounds": ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
}
FINDING = re.compile(r"WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error|emulator: .*")
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


def cuda_include() -> Path:
    """The folder of cuda_fp16.h; skips the test where there is no toolkit or no g++."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or shutil.which("g++") is None:
        pytest.skip("needs g++ and the headers of a CUDA toolkit")
    for up in Path(nvcc).resolve().parents:
        if (up / "include" / "cuda_fp16.h").is_file():
            return up / "include"
    pytest.skip("no cuda_fp16.h beside nvcc")


def build(source: str, folder: Path, sanitizer: str, defines: tuple[str, ...] = ()) -> Path:
    """Compile one variant, given as text, into a program.

    Args:
        source: The .cu file's content.
        folder: Where to; it is filled.
        sanitizer: A key of SANITIZERS.
        defines: Further -D flags.
    """
    common = folder / "common"
    (folder / "attention").mkdir(parents=True)
    shutil.copytree(KERNELS / "common", common)
    shutil.copytree(EMULATOR / "common", common, dirs_exist_ok=True)
    shutil.copy(EMULATOR / "emulator.h", common)
    (folder / "attention" / "variant.cpp").write_text(source)
    for other in (KERNELS / "attention").glob("*.cu"):  # a variant may include another one
        shutil.copy(other, folder / "attention")
    seen = (f"-I{common}", "-isystem", str(cuda_include()))
    checks = SANITIZERS[sanitizer]
    units = {  # the scheduler tells the sanitizers what it does, and is not watched itself
        "variant": (folder / "attention" / "variant.cpp", (*checks, "-include", "emulator.h")),
        "check": (EMULATOR / "attention_check.cpp", checks),
        "emulator": (EMULATOR / "emulator.cpp", ()),
    }
    for name, (file, flags) in units.items():
        _run(
            "g++", *FLAGS, *flags, *defines, *seen, "-c", "-o", str(folder / f"{name}.o"), str(file)
        )
    program = folder / "program"
    _run("g++", *checks, "-o", str(program), *(str(folder / f"{n}.o") for n in units))
    return program


def run(program: Path, cases: tuple[str, ...], **env: str) -> Outcome:
    """Run cases B,H,S,D,causal,scale,seed.

    Args:
        program: What build() made.
        cases: One string a case.
        env: EMU_EARLY, EMU_ORDER, EMU_SMS, EMU_INPUTS: see emulator.cpp and attention_check.cpp.
    """
    around = {
        **os.environ,
        "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0",
        "TSAN_OPTIONS": "history_size=4",
        **env,
    }
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
