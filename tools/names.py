"""Functions drawn by lot  ->  their names and signatures, for a reader who has not seen the code.

    python tools/names.py                     # sixty of profkit/: what does each do?
    python tools/names.py --answers           # the same sixty: where each stands, and what it does
    python tools/names.py --seed 7 --under profkit/evidence --count 20

The reader writes what each function does, then the answers are laid beside it. A name that says it
to nobody is renamed, with all of its kind.
"""

from __future__ import annotations

import argparse
import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COUNT = 60

Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Function:
    """A function or method of the package."""

    place: str  # its file and line
    name: str  # with the classes and functions that it stands in
    definition: Definition

    def show_signature(self) -> str:
        """Return what a reader of a call sees, and nothing else."""
        arguments = ast.unparse(self.definition.args)
        returned = self.definition.returns
        answer = f" -> {ast.unparse(returned)}" if returned is not None else ""
        return f"{self.name}({arguments}){answer}"

    def show_answer(self) -> str:
        """Return what it does: its docstring where it has one, and its statements."""
        said = ast.get_docstring(self.definition) or ""
        statements = self.definition.body[1:] if said else self.definition.body
        lines = said.splitlines()
        for statement in statements:
            lines.extend(ast.unparse(statement).splitlines())
        indented = "\n".join(f"    {line}" for line in lines)
        return f"{self.show_signature()}  [{self.place}]\n{indented}"


def main() -> None:
    """Draw, and print one or the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--under", type=Path, default=Path("profkit"), help="a file or a folder")
    parser.add_argument("--answers", action="store_true", help="what each does")
    asked = parser.parse_args()
    functions = list_functions(ROOT / asked.under)
    drawn = random.Random(asked.seed).sample(  # noqa: S311 - a draw, no secret
        functions, min(asked.count, len(functions))
    )
    for number, function in enumerate(drawn, 1):
        shown = function.show_answer() if asked.answers else function.show_signature()
        print(f"{number:2}. {shown}")


def list_functions(folder: Path) -> list[Function]:
    """Return each function that has a name of its own, in the order of the files."""
    files = [folder] if folder.is_file() else sorted(folder.rglob("*.py"))
    functions = []
    for file in files:
        tree = ast.parse(file.read_text("utf-8"))
        for name, definition in walk_definitions(tree, ""):
            if not definition.name.startswith("__"):
                place = f"{file.relative_to(ROOT).as_posix()}:{definition.lineno}"
                functions.append(Function(place=place, name=name, definition=definition))
    return functions


def walk_definitions(node: ast.AST, outer: str) -> Iterator[tuple[str, Definition]]:
    """Yield each function under a node, and its name behind those of what it stands in."""
    for child in ast.iter_child_nodes(node):
        inner = outer
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{outer}{child.name}."
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield outer + child.name, child
        yield from walk_definitions(child, inner)


if __name__ == "__main__":
    main()
