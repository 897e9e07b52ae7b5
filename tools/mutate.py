"""Would the tests notice? Single random changes of the code  ->  which ones its own room's tests kill.

    python tools/mutate.py [--count 150] [--seed 1] [--room diagnosis ...] [--jobs 2] [--json]

Each mutant is one operator, comparison, number or condition of profkit/model, diagnosis, evidence or
reports, changed in a copy of the project; the tests of its room run on it until one fails: the
files that import what was changed, then the quick ones, then the slow. Libraries are imported once
and every run forks from there. What survives is printed as file, line and change: a case that
nobody wrote. Exit status 1 below --least; `make mutate`.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("model", "diagnosis", "evidence", "reports")
COPIED = ("profkit", "tests", "pyproject.toml")  # the rest is linked: it is read, never imported
SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
TIMEOUT = 600.0  # seconds; a mutant that hangs has been noticed
LIBRARIES = ["hypothesis", "numpy", "pandas", "pytest", "scipy.stats"]  # what most tests import
QUICK = "not slow and not nvcc and not browser and not gpu"
NO_TESTS = 5  # pytest's exit status where the marks leave none


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str  # below the project's root
    line: int
    number: int  # the how-manyth possible change of that file it is
    change: str  # `a < b  ->  a <= b`
    killed: bool = False  # whether a test failed on it

    @property
    def room(self) -> str:
        """The folder of tests that answers for it."""
        return Path(self.file).parts[1]


def mutated(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become; nothing for most."""
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        if not _is_text(node):
            yield _with(node, op=SWAPS[type(node.op)]())
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield _with(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield _with(node, value=node.value * 2 if node.value not in (0, 1) else node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        yield _with(node, func=ast.Name(CALLS[node.func.id], ast.Load()))


def _with(node: ast.AST, **fields: object) -> ast.AST:
    kept = {name: getattr(node, name) for name in node._fields}
    return ast.copy_location(type(node)(**{**kept, **fields}), node)


def _is_text(node: ast.BinOp | ast.BoolOp) -> bool:
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) else ()
    return any(isinstance(p, ast.JoinedStr) or _string(p) for p in parts)


def _string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class Change(ast.NodeTransformer):
    """Walks a file as the code runs: no annotations, no type-checking block, no rule's examples."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted, self.found = wanted, list[tuple[int, str]]()

    def visit(self, node: ast.AST) -> ast.AST:
        """Count what can be changed, and change the one that is wanted."""
        if _no_code(node):
            return node
        for change in mutated(node):
            number = len(self.found)
            self.found.append((node.lineno, f"{ast.unparse(node)}  ->  {ast.unparse(change)}"))
            if number == self.wanted:
                return change
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """The value only: an annotation does nothing."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Nothing in it runs."""
        return node


def _no_code(node: ast.AST) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg in {"fires", "clear", "slots", "frozen"}
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def possible(room: str) -> Iterator[Mutant]:
    """Every change of a room."""
    for path in sorted((ROOT / "profkit" / room).rglob("*.py")):
        seen = Change()
        seen.visit(ast.parse(path.read_text("utf-8")))
        name = path.relative_to(ROOT).as_posix()
        yield from (Mutant(name, line, i, what) for i, (line, what) in enumerate(seen.found))


def tree(place: Path) -> Path:
    """A copy of what is imported and links to what is read."""
    for entry in ROOT.iterdir():
        if entry.name in COPIED and entry.is_dir():
            shutil.copytree(entry, place / entry.name, ignore=shutil.ignore_patterns("__pycache__"))
        elif entry.name in COPIED:
            shutil.copy(entry, place)
        elif entry.name != ".git":
            (place / entry.name).symlink_to(entry)
    return place


def in_order(place: Path, room: str, file: str) -> list[str]:
    """The room's test files, those that import the changed module first."""
    module = Path(file).with_suffix("")
    dotted, folder = ".".join(module.parts), ".".join(module.parent.parts)
    names = re.compile(rf"{dotted}\b|{folder} import [^\n]*\b{module.name}\b")
    files = sorted((place / "tests" / room).rglob("test_*.py"))
    return [str(f) for f in sorted(files, key=lambda f: not names.search(f.read_text("utf-8")))]


def _tests(place: Path, files: list[str], marks: str) -> None:
    """In a process of its own: pytest on a copy of the project; its exit status is pytest's."""
    import pytest

    os.setsid()
    os.chdir(place)
    os.environ["PYTHONPATH"] = str(place)
    sys.path[:] = [str(place), *(p for p in sys.path if p not in {"", str(ROOT)})]
    silence = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(silence, stream)
    sys.exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-m", marks, *files])))


def killed(place: Path, room: str, file: str = "profkit/__init__.py", quick: bool = False) -> bool:
    """Whether a test of the room fails in a copy of the project."""
    files = in_order(place, room, file)
    for marks in (QUICK,) if quick else (QUICK, f"not ({QUICK})"):
        run = multiprocessing.get_context("forkserver").Process(
            target=_tests, args=(place, files, marks)
        )
        run.start()
        run.join(TIMEOUT)
        if run.exitcode is None:
            os.killpg(run.pid or 0, signal.SIGKILL)
            return True
        if run.exitcode not in {0, NO_TESTS}:
            return True
    return False


def _put(file: Path, text: str) -> None:
    """Write it, and forget what was compiled: within a second its time stamp may stay the same."""
    file.write_text(text)
    Path(importlib.util.cache_from_source(file)).unlink(missing_ok=True)


def tried(mutant: Mutant, places: SimpleQueue[Path], quick: bool = False) -> Mutant:
    """The mutant with its answer; the copy that it ran in is whole again."""
    place = places.get()
    try:
        file, change = place / mutant.file, Change(mutant.number)
        original = file.read_text("utf-8")
        _put(file, ast.unparse(ast.fix_missing_locations(change.visit(ast.parse(original)))))
        try:
            return replace(mutant, killed=killed(place, mutant.room, mutant.file, quick))
        finally:
            _put(file, original)
    finally:
        places.put(place)


def main() -> int:
    """Try them and say which survive."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", action="append", choices=ROOMS)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.85, help="Exit status 1 below this share.")
    parser.add_argument("--quick", action="store_true", help="Leave out the slow tests.")
    parser.add_argument("--file", help="Only changes of files whose path has this in it.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rooms = given.room or ROOMS
    every = [m for room in rooms for m in possible(room) if (given.file or "") in m.file]
    multiprocessing.get_context("forkserver").set_forkserver_preload(LIBRARIES)
    chosen = random.Random(given.seed).sample(every, min(given.count, len(every)))  # noqa: S311
    with (
        tempfile.TemporaryDirectory(prefix="mutate-") as folder,
        ThreadPoolExecutor(given.jobs) as pool,
    ):
        places: SimpleQueue[Path] = SimpleQueue()
        for i in range(given.jobs):
            (Path(folder) / str(i)).mkdir()
            places.put(tree(Path(folder) / str(i)))
        whole = Path(folder) / "0"
        if broken := [room for room in rooms if killed(whole, room, quick=given.quick)]:
            print(f"tests fail before anything is changed: {', '.join(broken)}", file=sys.stderr)
            return 2
        results = []
        for mutant in pool.map(lambda m: tried(m, places, given.quick), chosen):
            results.append(mutant)
            if not given.json:
                mark = "killed  " if mutant.killed else "SURVIVED"
                print(f"{mark} {mutant.file}:{mutant.line}  {mutant.change[:110]}", flush=True)
    share = sum(m.killed for m in results) / len(results)
    if given.json:
        print(json.dumps({"share": share, "mutants": [vars(m) for m in results]}, indent=1))
    else:
        print(
            f"{sum(m.killed for m in results)} of {len(results)} killed ({share:.0%}), of {len(every)}"
        )
    return 0 if share >= given.least else 1


if __name__ == "__main__":
    sys.exit(main())
