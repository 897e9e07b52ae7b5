"""A kernel in a Python file  ->  its header and hashes, read as text; nothing in it is executed.

The header is the module's docstring. One function, `launch`, starts the kernels: it is given the
problem's inputs and outputs, in order, and last of all what plan.py calls LaunchArgs.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import io
import re
import tokenize
import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import read_text
from profkit.measure.languages import ahead
from profkit.measure.languages.language import CompileJob, CompilerProgram, Language
from profkit.measure.languages.plan import CallPlan, KernelStart, LaunchArgs
from profkit.measure.process import cores
from profkit.records import header
from profkit.records.header import SPEAKS, Header

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
        if ahead.compiler() is None:
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
        return (self.compiler({}), problem, ahead.player_hash(), str(job.sms))

    def compile(
        self,
        jobs: Sequence[CompileJob],
        work: Path,
        _programs: Mapping[str, CompilerProgram],
        parallel: int | None,
    ) -> dict[int, float]:
        """Run each file's launch function in a process of its own, at every case of its problem."""
        with ThreadPoolExecutor(parallel or cores()) as pool:
            runs = [
                pool.submit(ahead.compile_ahead, self, j, work / str(i)) for i, j in enumerate(jobs)
            ]
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
