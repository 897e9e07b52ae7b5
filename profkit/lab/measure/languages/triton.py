"""Triton: a Python file whose launch function starts functions that `triton.jit` compiles.

The header is the module's docstring; it and the hashes are read as text. One function, `launch`, starts
the kernels: it is given the problem's inputs and outputs, in order, and last of all what plan.py calls
LaunchArgs.

Compiled without a GPU, in a process of its own with a time limit (profkit.lab.measure.aot): what its
recorder was to start is left as plan.h, plan.json and the kernels' machine code; a C compiler makes the
library of these and player.c.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import io
import json
import os
import re
import shutil
import time
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect import process
from profkit.errors import ProfkitError
from profkit.files import is_file, is_path_there, list_matching_paths, read_bytes
from profkit.lab.measure.languages import language
from profkit.lab.measure.languages.language import CompileJob, Language, Programs
from profkit.records import header

if TYPE_CHECKING:
    from profkit.units import (
        JobNumber,
        PythonText,
        Seconds,
        Sentence,
        SentenceOrEmpty,
        Sha256,
        TextOrEmpty,
    )


PLAYER = Path(__file__).with_name("player.c")
CASE = "at case "  # the compiling process begins a line with it before it runs a case
_TIMEOUT = 300.0  # seconds for one file: every case of its problem is compiled
_GPU_FILES = ("/dev/nvidiactl", "/dev/dxg")  # of Linux, and of Linux under Windows


def _explain_missing_compiler() -> SentenceOrEmpty:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install triton (torch brings it too)"
    if _find_c_compiler() is None:
        return "no C compiler (cc, gcc or clang) on PATH: install one, or say which with CC"
    return ""


def _explain_missing_gpu() -> SentenceOrEmpty:
    here = any(is_path_there(Path(place)) for place in _GPU_FILES)
    return _explain_missing_compiler() or (
        "" if here else "no GPU here: it can be built, not checked or timed"
    )


def _find_c_compiler() -> str | None:
    """Return the C compiler: $CC, or the first of cc, gcc and clang on PATH."""
    names = [os.environ.get("CC") or "", "cc", "gcc", "clang"]
    for name in names:
        if name and (path := shutil.which(name)):
            return path
    return None


def _name_triton_version(_: Programs | None = None) -> str:
    return f"Triton {language.find_package_version('triton') or '?'}"


def _list_build_inputs(job: CompileJob) -> Sequence[str]:
    """Return the compiler, the cases that it compiles for, and how its kernels are started."""
    try:
        problem = hashlib.sha256(read_bytes(job.problem / "problem.py")).hexdigest()
    except OSError:
        problem = ""
    player = hashlib.sha256(PLAYER.read_bytes()).hexdigest()[:16]
    return (_name_triton_version(), problem, player, str(job.sms))


def _compile_jobs_in_processes(
    jobs: Sequence[CompileJob], work_folder: Path, _: Programs, most_at_once: int | None
) -> dict[JobNumber, Seconds]:
    """Run each file's launch function in a process of its own, at every case of its problem."""
    with process.make_thread_pool(most_at_once or process.count_usable_cores()) as pool:
        runs = []
        for i, job in enumerate(jobs):
            runs.append(pool.submit(_compile_timed_job, job, work_folder / str(i)))
        return {i: run.result() for i, run in enumerate(runs)}


def _compile_timed_job(job: CompileJob, path_without_suffix: Path) -> Seconds:
    """Leave <stem>.so, .o, .json and .log; in seconds."""
    began = time.monotonic()
    if error := _explain_missing_compiler() or _compile_and_explain_failure(
        job, path_without_suffix
    ):
        path_without_suffix.with_suffix(".log").write_text(error, encoding="utf-8")
    return time.monotonic() - began


def _read_compile_timeout_seconds() -> Seconds:
    """Return how long a compilation may take."""
    text = os.environ.get("PROFKIT_COMPILE_SECONDS", "")
    if re.fullmatch(r"\d{1,6}", text) and int(text):
        return float(text)
    return _TIMEOUT


def _compile_launcher(name: str, path_without_suffix: Path, folder: Path) -> TextOrEmpty:
    """Compile and link what plays a file's launches; return what went wrong, empty if nothing did."""
    object_file = path_without_suffix.with_suffix(".o")
    library = path_without_suffix.with_suffix(".so")
    start = [_find_c_compiler() or "cc", "-O2", "-fPIC"]
    inside = f"-I{folder}", f"-Wa,-I{folder}"
    built = process.run_command([*start, *inside, "-c", "-o", str(object_file), str(PLAYER)], 60)
    if built.status == 0:
        linking = ["-shared", "-o", str(library), str(object_file), "-ldl"]
        built = process.run_command([*start, *linking], 60)
    if built.status:
        return f"{start[0]} could not compile the launcher of {name}\n{built.output}"
    return ""


def _compile_and_explain_failure(job: CompileJob, path_without_suffix: Path) -> TextOrEmpty:
    """Compile, and return what went wrong; empty if nothing did."""
    folder = path_without_suffix.with_suffix(".ahead")
    folder.mkdir()
    request = {**asdict(job), "path": str(job.path), "problem": str(job.problem)}
    request_file = folder / "request.json"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    limit = _read_compile_timeout_seconds()
    # A cache of this build's own, and what ptxas says of each kernel.
    own = {"TRITON_CACHE_DIR": str(folder / "cache"), "TRITON_DUMP_PTXAS_LOG": "1"}
    from profkit.interpreter import make_module_command

    command = make_module_command("profkit.lab.measure.aot", str(request_file))
    done = process.run_command(command, limit, {**os.environ, **own})
    if done.status is None:
        return (
            f"{job.path.name} was still compiling after {limit:.0f} s and was stopped\n"
            "PROFKIT_COMPILE_SECONDS=900 gives it longer; fewer specialisations take less: "
            "do_not_specialize, fewer cases"
        )
    if done.status:
        # The lines of the kernel that its compiler showed with an error.
        _, mark, excerpt = done.output.rpartition("CompilationError: ")
        more = ""
        if mark:
            more = f"\n{excerpt.rstrip()[:2000]}"
        summary = summarize_traceback(done.output, job.path)
        return f"{summary} ({_name_triton_version()}){more}"
    failure = _compile_launcher(job.path.name, path_without_suffix, folder)
    if failure:
        return failure
    os.replace(folder / "plan.json", path_without_suffix.with_suffix(".json"))
    os.replace(folder / "ptxas.log", path_without_suffix.with_suffix(".log"))
    _move_only_ptx(folder / "cache", path_without_suffix.with_suffix(".ptx"))
    return ""


def _move_only_ptx(cache: Path, target: Path) -> None:
    """Keep the kernel's PTX, which can be rewritten; of several, nobody knows which is launched."""
    found = list_matching_paths(cache / "*" / "*.ptx")
    if len(found) == 1:
        os.replace(found[0], target)


def summarize_traceback(output: str, path: Path) -> Sentence:
    """Return one line out of a traceback: which line of the file, what, and at which case."""
    lines = []
    for line in output.splitlines():
        if line.strip():
            lines.append(line)
    cases = []
    for line in lines:
        if line.startswith(CASE):
            cases.append(line.removeprefix(CASE))
    rows = re.findall(rf'File "{re.escape(str(path))}", line (\d+)', output)
    inside = re.findall(r"CompilationError: at (\d+):\d+:", output)
    where = path.name
    if rows:
        where += f":{rows[-1]}"
    if inside:
        where += f", line {inside[-1]} of the kernel that it starts"
    what = "its process ended without a word"
    if lines:
        what = lines[-1].strip()[:300]
    if cases:
        what += f" at case {cases[-1]}"
    return f"{where}: {what}"


LAUNCH = "launch"
_NOT_KERNELS = {"problem.py", "conftest.py", "__init__.py"}
_SHAPE = f"def {LAUNCH}(input, ..., output, ..., args): kernel[grid](input, output, ...)"


def _is_triton(path: Path, text: PythonText) -> bool:
    """Return whether a file imports the language and is not about something else."""
    imports = re.search(r"^[ \t]*(?:import|from)[ \t]+triton\b", text, re.M)
    return path.name not in _NOT_KERNELS and imports is not None


def is_profkit_kernel(path: Path, text: PythonText) -> bool:
    """Return whether it has a problem.py or the launch function: scripts import the language, too."""
    beside = any(is_file(folder / "problem.py") for folder in path.parents[:3])
    return beside or _has_launch_function(text)


def _has_launch_function(text: PythonText) -> bool:
    """Return whether its function is there: not in a text that a test holds."""
    if not re.search(rf"^def[ \t]+{LAUNCH}\b", text, re.M):
        return False
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return True  # its reader says what is wrong with it
    return any(isinstance(node, ast.FunctionDef) and node.name == LAUNCH for node in body)


def _parse_module_header(text: PythonText, name: str) -> header.VariantHeader:
    """Return the module's docstring; what every kernel must have is looked for on the way."""
    tree = _parse_python(text, name)
    docstring = ast.get_docstring(tree)
    if docstring is None:
        raise ProfkitError(
            f"{name} has no header",
            "begin the file with a docstring: its first line is the title",
        )
    head = header.parse_header_lines(docstring.splitlines(), name)
    if LAUNCH not in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}:
        raise ProfkitError(f"{name} has no function '{LAUNCH}' that starts its kernel", _SHAPE)
    for tunable in header.parse_values_of_tunables(head.tune, name):
        if tunable not in _list_assigned_names(tree):
            raise ProfkitError(
                f"{name}: 'tune:' names {tunable}, which the file does not set",
                f"give its default at the top of the file: {tunable} = ...",
            )
    if head.flags:
        raise ProfkitError(
            f"{name}: 'flags: {head.flags[0]}' is for nvcc, which does not compile this file",
            "give options where the kernel is started: num_warps=4, num_stages=3",
        )
    return head


def hash_python_code_and_keys(path: Path, keys: Mapping[str, str]) -> Sha256:
    """Return sha256 of the file without its prose, and of the header's keys that decide the code."""
    decides = {}
    for k, v in sorted(keys.items()):
        if k not in header.SPEAKS:
            decides[k] = v.split()
    code = remove_comments_and_layout(language.read_source(path))
    return hashlib.sha256(f"{decides or ''}{code}".encode()).hexdigest()


def hash_whole_source(path: Path) -> Sha256:
    """Return the hash of a source to the letter."""
    return hashlib.sha256(language.read_source(path).encode()).hexdigest()


def remove_comments_and_layout(text: PythonText) -> PythonText:
    """Return Python source without comments, the module's docstring, empty lines and ends of lines.

    Not by the parser's own printer: two versions of Python print one tree in two ways.
    """
    try:
        tree = _parse_python(text, "")
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (ProfkitError, tokenize.TokenError, IndentationError):
        return text
    lines = text.splitlines()
    for token in tokens:
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    if ast.get_docstring(tree) is not None:
        first = tree.body[0]
        for row in range(first.lineno, (first.end_lineno or first.lineno) + 1):
            lines[row - 1] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _parse_python(text: PythonText, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # of a text that is only read
            return ast.parse(text)
    except SyntaxError as error:
        raise ProfkitError(
            f"{name}:{error.lineno}: {error.msg}", "Python cannot read this file: fix that line"
        ) from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise ProfkitError(f"{name}: Python cannot read this file: {error}") from error


def _list_assigned_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        else:
            targets = []
        if isinstance(node, ast.AnnAssign):
            targets += [node.target]
        below = chain.from_iterable(map(ast.walk, targets))
        names.update(part.id for part in below if isinstance(part, ast.Name))
    return names


LANGUAGE = Language(
    name="Triton",
    suffix=".py",
    needs_sms=True,
    owns=_is_triton,
    is_meant=is_profkit_kernel,
    header=_parse_module_header,
    code_hash=hash_python_code_and_keys,
    text_hash=hash_whole_source,
    # the tunables as they are set in the module
    flags=lambda _, defines: tuple(f"{k}={v}" for k, v in sorted(defines.items())),
    missing=_explain_missing_compiler,
    lacking=_explain_missing_gpu,
    compiler=_name_triton_version,
    surroundings=_list_build_inputs,
    compile=_compile_jobs_in_processes,
)
