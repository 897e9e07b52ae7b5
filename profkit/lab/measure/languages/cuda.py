"""CUDA C++: a .cu file, its header a comment, compiled by nvcc; ninja runs compilers side by side.

The flags: of a header are given to nvcc, or refused: some of nvcc's options run programs. `-ccbin X`
runs X, `-Xcompiler -fplugin=X` loads X, `-o` writes anywhere. What is listed here changes code and
nothing else. Whoever trusts a folder says so: --trust, or PROFKIT_TRUST=1.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect.process import run_command
from profkit.errors import ProfkitError
from profkit.lab.measure.languages.language import CompileJob, Language, Programs
from profkit.records.header import (
    hash_cpp_code_with_includes,
    hash_cpp_text_with_includes,
    parse_header,
)

if TYPE_CHECKING:
    from profkit.units import JobNumber, Seconds, SecondsOrZero


_BUILD_SECONDS = (
    3600.0  # for all that is built at a time: 150 variants take ten minutes on two processors
)
# -lineinfo: reports show source lines. --no-compress: the machine code can be hashed.
# The CUDA runtime is linked statically, so a library loads beside any other runtime (torch's).
_FLAGS = (
    *("-O3", "-std=c++17", "-lineinfo", "-Xcompiler", "-fPIC"),
    *("-Xptxas", "-v", "--no-compress"),
)


def _compile_jobs_with_ninja(
    jobs: Sequence[CompileJob], work_folder: Path, programs: Programs, most_at_once: int | None
) -> dict[JobNumber, SecondsOrZero]:
    (work_folder / "build.ninja").write_text(
        make_text_of_ninja_file(jobs, programs["nvcc"].path), encoding="utf-8"
    )
    limit = []
    if most_at_once:
        limit = ["-j", str(most_at_once)]
    command = [str(programs["ninja"].path), "-C", str(work_folder), "-k", "0", *limit]
    done = run_command(command, timeout_s=_BUILD_SECONDS)
    if done.status is None:
        raise ProfkitError(
            f"ninja was still building after {_BUILD_SECONDS:.0f} s and was stopped",
            "build fewer variants at a time: --variant ID",
        )
    if not any(work_folder.glob("*.log")):
        raise ProfkitError(f"ninja could not start: {done.output.strip()}")
    times = _read_seconds_of_ninja_outputs(work_folder / ".ninja_log")
    return {i: times.get(f"{i}.so", 0.0) for i in range(len(jobs))}


def _read_seconds_of_ninja_outputs(log: Path) -> dict[str, Seconds]:
    """Return output -> how long its command took, from ninja's own log."""
    seconds = {}
    with suppress(OSError):
        for line in log.read_text().splitlines():
            cells = line.split("\t")
            if len(cells) == 5:
                begin, end, _, output, _ = cells
                seconds[output] = (int(end) - int(begin)) / 1000
    return seconds


def make_text_of_ninja_file(jobs: Sequence[CompileJob], nvcc: Path) -> str:
    """Return a ninja file with one edge per library: i.o, i.so and everything nvcc said in i.log."""
    lines = ["rule nvcc", "  command = { $compile && $link ; } > $log 2>&1"]
    for i, job in enumerate(jobs):
        start = [str(nvcc), *job.flags, "-o"]
        compiling = [*start, f"{i}.o", "-c", str(job.path)]
        linking = [*start, f"{i}.so", "-shared", f"{i}.o"]
        if bad := re.search(r'[$`"\\\n]', "".join(compiling)):
            raise ProfkitError(
                f"{job.path}: {bad[0]!r} in its path or its flags",
                "nvcc hands both to a shell, which would read it; rename the folder or the flag",
            )
        lines += [f"build {i}.so: nvcc", f"  log = {i}.log"]
        lines += [f"  compile = {shlex.join(compiling)}", f"  link = {shlex.join(linking)}"]
    return "\n".join(lines) + "\n"


TRUST = "PROFKIT_TRUST"
_PTXAS = r"-O[0-3]|-v|--?warn-[\w-]+|-dlcm=\w+|-dscm=\w+|--?allow-expensive-optimizations(=\w+)?"
# A whole word of nvcc's, its value after = or in the same word.
_SINGLE = re.compile(
    r"-O[0-3]|-G|--device-debug|-g|-lineinfo|--generate-line-info|-w|-res-usage|--resource-usage"
    r"|-[DU]\w+(=[\w.+\-*/()<>,:]*)?"
    r"|-I[\w./+@-]+"
    r"|--?maxrregcount=\d+|--?std=[\w+]+"
    r"|--?use_fast_math|--?(ftz|prec-div|prec-sqrt|fmad)=(true|false)"
    r"|--?(extra-device-vectorization|restrict|default-stream=[\w-]+)"
    r"|--?expt-(relaxed-constexpr|extended-lambda)|--?extended-lambda"
    r"|--?(diag-suppress|Werror|split-compile)=[\w,-]+"
    rf"|(-Xptxas|--ptxas-options)=({_PTXAS})(,({_PTXAS}))*"
)
# A word whose value is the next one, and what stands between them in one word.
_JOINED = {"-D": "", **dict.fromkeys(("-maxrregcount", "--maxrregcount", "-std", "--std"), "=")}
_JOINED |= {"-Xptxas": "=", "--ptxas-options": "="}


def refuse_unsafe_flags(flags: Sequence[str], file_name: str) -> None:
    """Refuse what may do more than change code, where nobody said that this folder is trusted."""
    if os.environ.get(TRUST) == "1":
        return
    words = iter(flags)
    for word in words:
        value = ""
        if word in _JOINED:
            value = next(words, "")
        if not _SINGLE.fullmatch(f"{word}{_JOINED.get(word, '')}{value}"):
            flag = f"{word} {value}".strip()
            raise ProfkitError(
                f"{file_name}: 'flags: {flag}' is none of the flags that only change code",
                "an nvcc option can run any program; if you trust this folder: profkit --trust ...",
            )


LANGUAGE = Language(
    name="CUDA",
    suffix=".cu",
    programs=("nvcc", "ninja"),
    header=parse_header,
    code_hash=hash_cpp_code_with_includes,
    text_hash=hash_cpp_text_with_includes,
    # those of the header, then a -D for each tunable
    flags=lambda head, defines: (*head.flags, *(f"-D{k}={v}" for k, v in sorted(defines.items()))),
    refuse_unsafe_flags=lambda header, name: refuse_unsafe_flags(header.flags, name),
    own_flags=lambda arch: (*_FLAGS, f"-gencode=arch=compute_{arch},code=sm_{arch}"),
    # nvcc reads flags from the environment too
    surroundings=lambda _: [os.environ.get(f"NVCC_{k}_FLAGS", "") for k in ("PREPEND", "APPEND")],
    compile=_compile_jobs_with_ninja,
)
