"""A kernel in a Python file  ->  its header and hashes, read as text: nothing in it is run.

The header is the module's docstring. One function, `launch`, starts the kernels: it is given the
problem's inputs and outputs, in order, and last of all what plan.py calls LaunchArgs.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import tokenize
import warnings
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import read_text
from profkit.records import header
from profkit.records.header import SPEAKS, Header

LAUNCH = "launch"
_NOT_KERNELS = {"problem.py", "conftest.py", "__init__.py"}
_SHAPE = f"def {LAUNCH}(input, ..., output, ..., args): kernel[grid](input, output, ...)"


def imports_package(path: Path, text: str, package: str) -> bool:
    """Whether a file imports the language and is not about something else."""
    imports = rf"^[ \t]*(?:import|from)[ \t]+{re.escape(package)}\b"
    return path.name not in _NOT_KERNELS and re.search(imports, text, re.M) is not None


def is_meant(path: Path, text: str) -> bool:
    """Beside a problem.py, or with its function: scripts and tests import the language too."""
    beside = any((folder / "problem.py").is_file() for folder in path.parents[:3])
    return beside or _has_launch(text)


def _has_launch(text: str) -> bool:
    """Whether its function is there: not in a text that a test holds."""
    if not re.search(rf"^def[ \t]+{LAUNCH}\b", text, re.M):
        return False
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return True  # its reader says what is wrong with it
    return any(isinstance(node, ast.FunctionDef) and node.name == LAUNCH for node in body)


def read_header(text: str, name: str) -> Header:
    """The module's docstring; what every kernel must have is looked for on the way."""
    tree = _tree(text, name)
    docstring = ast.get_docstring(tree)
    if docstring is None:
        raise ProfkitError(
            f"{name} has no header",
            "begin the file with a docstring: its first line is the title",
        )
    head = header.parse_lines(docstring.splitlines(), name)
    if LAUNCH not in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}:
        raise ProfkitError(f"{name} has no function '{LAUNCH}' that starts its kernel", _SHAPE)
    for tunable in header.read_tunables(head.tune, name):
        if tunable not in _assigned(tree):
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


def code_hash(path: Path, keys: Mapping[str, str]) -> str:
    """sha256 of the file without its prose, and of the header's keys that decide the code."""
    decides = {k: v.split() for k, v in sorted(keys.items()) if k not in SPEAKS}
    code = without_prose(_text(path))
    return hashlib.sha256(f"{decides or ''}{code}".encode()).hexdigest()


def text_hash(path: Path) -> str:
    return hashlib.sha256(_text(path).encode()).hexdigest()


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
            f"{name}:{error.lineno}: {error.msg}", "Python cannot read this file: fix that line"
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
