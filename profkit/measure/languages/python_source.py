"""A kernel in a Python file  ->  its header and hashes, read as text, and its library.

The header is the module's docstring. One function, `launch`, starts the kernels: it is given the
problem's inputs and outputs, in order, and last of all what plan.py calls LaunchArgs. It is run to
compile, in a process of its own with a time limit (profkit.measure.workers.ahead), which leaves
plan.h, plan.json and the kernels' machine code; a C compiler makes the library of these and player.c.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import re
import shutil
import sys
import time
import tokenize
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.files import read_text
from profkit.measure import process
from profkit.measure.languages.language import CompileJob, CompilerProgram, Language
from profkit.measure.languages.plan import CallPlan, KernelStart, LaunchArgs
from profkit.measure.process import cores
from profkit.records import header
from profkit.records.header import SPEAKS, Header

if TYPE_CHECKING:
    pass

LAUNCH = "launch"
_NOT_KERNELS = {"problem.py", "conftest.py", "__init__.py"}
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")  # of Linux, and of Linux under Windows
_SHAPE = f"def {LAUNCH}(input, ..., output, ..., args): kernel[grid](input, output, ...)"


def _has_launch(text: str) -> bool:
    """Whether its function is there: not in a text that a test holds."""
    if not re.search(rf"^def[ \t]+{LAUNCH}\b", text, re.M):
        return False
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return True  # its reader says what is wrong with it
    return any(isinstance(node, ast.FunctionDef) and node.name == LAUNCH for node in body)


class PythonKernels(Language):
    """What every language embedded in Python shares."""

    suffix, needs_sms = ".py", True
    package: str  # what its files import, and what has to be installed to compile them
    install: str  # how to get it

    @abstractmethod
    def environment(self, folder: Path) -> dict[str, str]:
        """What the process that compiles is told by its environment; the folder is its own."""

    @abstractmethod
    def recording(
        self, plan: CallPlan, args: LaunchArgs
    ) -> contextlib.AbstractContextManager[list[KernelStart]]:
        """Compile what is started inside, and write it down instead of starting it."""

    def owns(self, path: Path, text: str) -> bool:
        """A file that imports the language and is not about something else."""
        module = re.escape(self.package)
        imports = rf"^[ \t]*(?:import|from)[ \t]+{module}\b"
        return path.name not in _NOT_KERNELS and re.search(imports, text, re.M) is not None

    def stands_at(self, path: Path, text: str) -> bool:
        """Beside a problem.py, or with its function: scripts and tests import the language too."""
        beside = any((folder / "problem.py").is_file() for folder in path.parents[:3])
        return beside or _has_launch(text)

    def header(self, text: str, name: str) -> Header:
        """The module's docstring; what every kernel must have is looked for on the way."""
        tree = _tree(text, name)
        if ast.get_docstring(tree) is None:
            raise ProfkitError(
                f"{name} has no header",
                "begin the file with a docstring: its first line is the title",
            )
        head = header.parse_lines((ast.get_docstring(tree) or "").splitlines(), name)
        defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        if LAUNCH not in defined:
            raise ProfkitError(f"{name} has no function '{LAUNCH}' that starts its kernel", _SHAPE)
        for tunable in header.read_tunables(head.tune, name):
            if tunable not in _assigned(tree):
                raise ProfkitError(
                    f"{name}: 'tune:' names {tunable}, which the file does not set",
                    f"give its default at the top of the file: {tunable} = ...",
                )
        self.check_flags(head, name)
        return head

    def check_flags(self, header: Header, name: str) -> None:
        """None of nvcc's: it does not compile this file."""
        if header.flags:
            raise ProfkitError(
                f"{name}: 'flags: {header.flags[0]}' is for nvcc, which does not compile this file",
                "give options where the kernel is started: num_warps=4, num_stages=3",
            )

    def code_hash(self, path: Path, keys: Mapping[str, str]) -> str:
        """The file without comments, its docstring and empty lines; keys that decide the code."""
        decides = {k: v.split() for k, v in sorted(keys.items()) if k not in SPEAKS}
        code = without_prose(_text(path))
        return hashlib.sha256(f"{decides or ''}{code}".encode()).hexdigest()

    def text_hash(self, path: Path) -> str:
        """The file."""
        return hashlib.sha256(_text(path).encode()).hexdigest()

    def missing(self) -> str:
        """The package, or a C compiler for what starts its kernels."""
        if importlib.util.find_spec(self.package.partition(".")[0]) is None:
            return f"{self.name} is not installed: {self.install}"
        if c_compiler() is None:
            return "no C compiler (cc, gcc or clang) on PATH: install one, or say which with CC"
        return ""

    def lacking(self) -> str:
        """As missing; or a GPU, without which it is compiled all the same."""
        here = any(Path(place).exists() for place in _DRIVERS)
        return self.missing() or (
            "" if here else "no GPU here: it can be built, not checked or timed"
        )

    def flags(self, _header: Header, defines: Mapping[str, str]) -> tuple[str, ...]:
        """The tunables as they are set in the module."""
        return tuple(f"{k}={v}" for k, v in sorted(defines.items()))

    def compiler(self, _programs: Mapping[str, CompilerProgram]) -> str:
        """The package and its version."""
        return f"{self.name} {self.version() or '?'}"

    def version(self) -> str | None:
        """The version that is installed; None if none is."""
        try:
            return importlib.metadata.version(self.package.partition(".")[0])
        except importlib.metadata.PackageNotFoundError:
            return None

    def surroundings(self, job: CompileJob) -> Sequence[str]:
        """The compiler, the cases that it compiles for, and how its kernels are started."""
        problem = _hash_of(job.problem / "problem.py")
        return (self.compiler({}), problem, player_hash(), str(job.sms))

    def compile(
        self,
        jobs: Sequence[CompileJob],
        work: Path,
        _programs: Mapping[str, CompilerProgram],
        parallel: int | None,
    ) -> dict[int, float]:
        """Run each file's launch function in a process of its own, at every case of its problem."""
        with ThreadPoolExecutor(parallel or cores()) as pool:
            runs = [pool.submit(compile_ahead, self, j, work / str(i)) for i, j in enumerate(jobs)]
            return {i: run.result() for i, run in enumerate(runs)}


def without_prose(text: str) -> str:
    """Python source without comments, the module's docstring, empty lines and ends of lines.

    Not by the parser's own printer: two versions of Python print one tree in two ways.
    """
    try:
        tree = _tree(text, "")
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


def _tree(text: str, name: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a text that is only read
            return ast.parse(text)
    except SyntaxError as error:
        raise ProfkitError(
            f"{name}:{error.lineno}: {error.msg}", "Python cannot read this file: mend that line"
        ) from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise ProfkitError(f"{name}: Python cannot read this file: {error}") from error


def _assigned(tree: ast.Module) -> set[str]:
    """Names that a module sets at its top."""
    names: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign) else []
        below = chain.from_iterable(map(ast.walk, targets))
        names.update(part.id for part in below if isinstance(part, ast.Name))
    return names


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfkitError(
            f"cannot read {path}: {getattr(error, 'strerror', None) or error}",
            "a kernel's source is text",
        ) from error


def _hash_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


WORKER = (sys.executable, "-m", "profkit.measure.workers.ahead")
PLAYER = Path(__file__).with_name("player.c")
_TIMEOUT = 300.0  # seconds for one file: every case of its problem is compiled
_CASE = "at case "


def c_compiler() -> str | None:
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
    start = [c_compiler() or "cc", "-O2", "-fPIC"]
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
