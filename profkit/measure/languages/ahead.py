"""A kernel file  ->  a library: its launch function is run in a process of its own, with a time limit.

That process (profkit.measure.workers.ahead) leaves plan.h, plan.json and the kernels' machine code;
a C compiler makes the library of these and player.c.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.measure import process
from profkit.measure.languages.language import CompileJob

if TYPE_CHECKING:
    from profkit.measure.languages.python_source import PythonKernels

WORKER = (sys.executable, "-m", "profkit.measure.workers.ahead")
PLAYER = Path(__file__).with_name("player.c")
_TIMEOUT = 300.0  # seconds for one file: every case of its problem is compiled
_CASE = "at case "


def compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang on PATH."""
    names = [os.environ.get("CC") or "", "cc", "gcc", "clang"]
    return next((path for name in names if name and (path := shutil.which(name))), None)


@functools.cache
def player_hash() -> str:
    """Which player.c this is."""
    return hashlib.sha256(PLAYER.read_bytes()).hexdigest()[:16]


def time_limit() -> float:
    """Seconds that compiling one file may take; PROFKIT_COMPILE_SECONDS changes it."""
    text = os.environ.get("PROFKIT_COMPILE_SECONDS", "")
    return float(text) if re.fullmatch(r"\d{1,6}", text) and int(text) else _TIMEOUT


def compile_ahead(language: PythonKernels, job: CompileJob, stem: Path) -> float:
    """Compile one file: <stem>.so, .o, .json and .log, as Language.compile leaves them; in seconds."""
    began = time.monotonic()
    error = language.missing() or _compiled(language, job, stem)
    if error:
        stem.with_suffix(".log").write_text(error, encoding="utf-8")
    return time.monotonic() - began


def _compiled(language: PythonKernels, job: CompileJob, stem: Path) -> str:
    """What went wrong; empty if nothing did."""
    folder = stem.with_suffix(".ahead")
    folder.mkdir()
    request = {**asdict(job), "path": str(job.path), "problem": str(job.problem)}
    request_file = folder / "request.json"
    request_file.write_text(json.dumps({**request, "language": language.name}), encoding="utf-8")
    env = {**os.environ, **language.environment(folder)}
    done = process.run_command([*WORKER, str(request_file)], time_limit(), env)
    if done.status is None:
        return (
            f"{job.path.name} was still compiling after {time_limit():.0f} s and was stopped\n"
            "PROFKIT_COMPILE_SECONDS=900 gives it longer; fewer specialisations take less: "
            "do_not_specialize, fewer cases"
        )
    if done.status:
        first_line = f"{one_line_of(done.output, job.path)} ({language.compiler({})})"
        return first_line + _excerpt(done.output)
    object_file, library = stem.with_suffix(".o"), stem.with_suffix(".so")
    start = [compiler() or "cc", "-O2", "-fPIC"]
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
    cases = [line.removeprefix(_CASE) for line in lines if line.startswith(_CASE)]
    rows = re.findall(rf'File "{re.escape(str(path))}", line (\d+)', output)
    inside = re.findall(r"CompilationError: at (\d+):\d+:", output)
    where = f":{rows[-1]}" if rows else ""
    kernel = f", line {inside[-1]} of the kernel that it starts" if inside else ""
    what = lines[-1].strip() if lines else "its process ended without a word"
    case = f" at case {cases[-1]}" if cases else ""
    return f"{path.name}{where}{kernel}: {what[:300]}{case}"


def _excerpt(output: str) -> str:
    """The lines of the kernel that its compiler showed beside an error; empty if it showed none."""
    _, mark, shown = output.rpartition("CompilationError: ")
    return f"\n{shown.rstrip()[:2000]}" if mark else ""


def announce(case: str) -> str:
    """What the process says before it runs a case."""
    return f"{_CASE}{case}\n"
