"""A table old -> new  ->  functions and methods renamed wherever they are used.

    python tools/rename.py tools/renamed.txt      # lines that were applied before change nothing
    python tools/rename.py my_table.txt --dry     # only say what would change, and what is left

A line is `show/plots/bars: chosen -> choose_kernels_to_draw, Panel.draw -> draw_panel`, of a file under
profkit/; one that begins with two spaces goes on with the one before. mypy says which function each
name and each attribute is: a local variable, or a method of the same name of another class, stays.
Strings and pages that hold an old name are listed at the end, for eyes: none is changed.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from inspect import isgetsetdescriptor
from pathlib import Path

from mypy import build, config_parser, nodes, types
from mypy.find_sources import create_source_list
from mypy.options import Options

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("profkit", "tests", "tools", "analyses", "kernels")
# Attributes of mypy's nodes that lead to where a name is defined.
MEANINGS = frozenset({"node", "info", "type", "names", "fullname"})
# A function as a text that another process imports: "profkit.reports.reader:read_small_report".
_FUNCTION_AS_TEXT = re.compile(r"""["'](?P<module>[\w.]+|\{__name__\}):(?P<name>\w+)["']""")
# Of each file: the offset of an old name in a line, and the old and the new name there.
Edits = dict[Path, set[tuple[int, int, str, str]]]


def main() -> None:
    """Read the table, ask mypy, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    asked = parser.parse_args()
    renamed = read_table(asked.table.read_text("utf-8"))
    result = check_types()
    edits: Edits = defaultdict(set)
    for module, tree in result.files.items():
        path = Path(tree.path)
        if path.is_absolute():
            path = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()
        if path.suffix != ".py" or path.parts[0] not in FOLDERS:
            continue
        definitions, inner = list_definitions(module, path, renamed)
        uses = find_uses(tree, result.types, renamed, inner)
        named = list_names_after_colons(module, path, renamed)
        edits[path] = definitions | uses | named | list_imports(module, path, renamed)
    for path, changes in sorted(edits.items()):
        if changes:
            print(f"{path}: {len(changes)}")
            warn_of_clashes(path, changes)
            if not asked.dry:
                write_changes(ROOT / path, changes)
    report_rest(renamed)


def read_table(text: str) -> dict[str, str]:
    """Return full name -> new name of functions that the table lists."""
    renamed = {}
    for line in text.replace("\n  ", " ").splitlines():
        place, _, pairs = line.partition(": ")
        module = ".".join(("profkit", *place.strip().split("/"))).removesuffix(".__init__")
        for pair in pairs.split(","):
            old, _, new = pair.partition(" -> ")
            renamed[f"{module}.{old.strip()}"] = new.strip()
    return renamed


def check_types() -> build.BuildResult:
    """Let mypy read all Python of the project, and keep its trees and types."""
    options = Options()
    config_parser.parse_config_file(options, lambda: None, str(ROOT / "pyproject.toml"))
    options.incremental = False
    options.export_types = True
    options.preserve_asts = True
    options.check_untyped_defs = True
    options.explicit_package_bases = True
    options.namespace_packages = True
    sources = []
    for folder in ("profkit", "tests", "tools", "analyses"):
        sources.extend(create_source_list([str(ROOT / folder)], options))
    return build.build(sources, options)


def iterate_expressions(tree: nodes.MypyFile) -> Iterator[nodes.Expression]:
    """Yield all names, attributes and calls in a file.

    mypy's own visitor is compiled, and nothing that is not may inherit from it: so all that a node
    holds is looked at, but what a name means, which is in another place.
    """
    waiting: list[object] = [tree.defs]
    seen = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting.extend(value)
            continue
        if not isinstance(value, nodes.Node) or isinstance(value, nodes.TypeInfo | nodes.MypyFile):
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, nodes.NameExpr | nodes.MemberExpr | nodes.CallExpr):
            yield value
        for kind in type(value).__mro__:
            for name, member in vars(kind).items():
                if isgetsetdescriptor(member) and name not in MEANINGS:
                    with suppress(AssertionError):  # a property that this node has not
                        waiting.append(getattr(value, name, None))


def find_uses(
    tree: nodes.MypyFile,
    known: dict[nodes.Expression, types.Type],
    renamed: dict[str, str],
    inner: dict[tuple[str, int], str],
) -> set[tuple[int, int, str, str]]:
    """Return where a file names a function of the table."""
    found = set()
    for expression in iterate_expressions(tree):
        if isinstance(expression, nodes.NameExpr):
            old = expression.name
            new = find_new_name([expression.fullname], old, renamed) or find_inner(
                expression, inner
            )
            if new is not None:
                found.add((expression.line, expression.column, old, new))
        elif isinstance(expression, nodes.MemberExpr):
            old = expression.name
            names = [expression.fullname, *list_full_names(expression.expr, old, known)]
            new = find_new_name(names, old, renamed)
            line, end = expression.end_line, expression.end_column
            if new is not None and line is not None and end is not None:
                found.add((line, end - len(old.encode()), old, new))
        elif isinstance(expression, nodes.CallExpr) and is_setting_attribute(expression):
            owner, name = expression.args[:2]
            if isinstance(name, nodes.StrExpr):
                new = find_new_name(list_full_names(owner, name.value, known), name.value, renamed)
                if new is not None:
                    found.add((name.line, name.column + 1, name.value, new))
    return found


def is_setting_attribute(call: nodes.CallExpr) -> bool:
    """Return whether a call is of setattr, delattr or getattr: the second argument is a name."""
    callee = call.callee
    if not isinstance(callee, nodes.NameExpr | nodes.MemberExpr):
        return False
    return callee.name in {"setattr", "delattr", "getattr"} and len(call.args) > 1


def list_full_names(
    owner: nodes.Expression, name: str, known: dict[nodes.Expression, types.Type]
) -> list[str]:
    """Return the full names that an attribute of an expression may have."""
    if isinstance(owner, nodes.RefExpr) and isinstance(owner.node, nodes.MypyFile):
        symbol = owner.node.names.get(name)
        if symbol is None or symbol.node is None:
            return []
        return [symbol.node.fullname]  # of the module that defines it
    return [f"{kind}.{name}" for kind in list_owners(owner, known)]


def find_new_name(names: Sequence[str], old: str, renamed: dict[str, str]) -> str | None:
    """Return the new name of a function; None where it is not renamed, or goes by another name here."""
    for name in names:
        if name in renamed and name.rpartition(".")[2] == old:
            return renamed[name]
    return None


def find_inner(expression: nodes.NameExpr, inner: dict[tuple[str, int], str]) -> str | None:
    """Return the new name of a function in a function, which mypy knows by its line."""
    function = expression.node
    if isinstance(function, nodes.Decorator):
        function = function.func
    if isinstance(function, nodes.FuncDef):
        return inner.get((function.name, function.line))
    return None


def list_owners(
    expression: nodes.Expression, known: dict[nodes.Expression, types.Type]
) -> list[str]:
    """Return the classes that an expression may be of, with all that they inherit from."""
    node = getattr(expression, "node", None)
    if isinstance(node, nodes.TypeInfo):
        return [base.fullname for base in node.mro]
    found = known.get(expression)
    return list_classes(found) if found is not None else []


def list_definitions(
    module: str, path: Path, renamed: dict[str, str]
) -> tuple[set[tuple[int, int, str, str]], dict[tuple[str, int], str]]:
    """Return where a file defines functions of the table, and the lines of those in functions."""
    found, inner = set(), {}
    lines = (ROOT / path).read_text("utf-8").splitlines()

    def visit(node: ast.AST, outer: str, *, in_function: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{outer}.{child.name}"
                new = renamed.get(name)
                if new is not None:
                    column = lines[child.lineno - 1].index("def ") + 4
                    found.add((child.lineno, column, child.name, new))
                if new is not None and in_function:
                    inner[child.name, child.lineno] = new
                visit(child, name, in_function=True)
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{outer}.{child.name}", in_function=False)
            else:
                visit(child, outer, in_function=in_function)

    visit(ast.parse((ROOT / path).read_text("utf-8")), module, in_function=False)
    return found, inner


def list_classes(kind: types.Type) -> list[str]:
    """Return the full names of the classes of a type."""
    kind = types.get_proper_type(kind)
    if isinstance(kind, types.UnionType):
        return [name for item in kind.items for name in list_classes(item)]
    if isinstance(kind, types.TypeVarType):
        return list_classes(kind.upper_bound)
    if isinstance(kind, types.TypeType):
        return list_classes(kind.item)
    if isinstance(kind, types.TupleType):
        return list_classes(kind.partial_fallback)
    if isinstance(kind, types.CallableType) and kind.is_type_obj():
        return list_classes(kind.ret_type)
    if isinstance(kind, types.Instance):
        return [base.fullname for base in kind.type.mro]
    return []


def list_imports(
    module: str, path: Path, renamed: dict[str, str]
) -> set[tuple[int, int, str, str]]:
    """Return where a file imports functions of the table by name."""
    text = (ROOT / path).read_text("utf-8")
    found = set()
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*base, *filter(None, [node.module])])
        for alias in node.names:
            new = renamed.get(f"{source}.{alias.name}")
            if new is not None:
                found.add((alias.lineno, alias.col_offset, alias.name, new))
    return found


def list_names_after_colons(
    module: str, path: Path, renamed: dict[str, str]
) -> set[tuple[int, int, str, str]]:
    """Return where a file names a function for another process: "profkit.module:function"."""
    found = set()
    for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), 1):
        for match in _FUNCTION_AS_TEXT.finditer(line):
            place = match["module"].replace("{__name__}", module)
            new = renamed.get(f"{place}.{match['name']}")
            if new is not None:
                column = len(line[: match.start("name")].encode())
                found.add((number, column, match["name"], new))
    return found


def warn_of_clashes(path: Path, changes: set[tuple[int, int, str, str]]) -> None:
    """Print new names that the file has already: a variable of that name would hide the function."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    there = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    there |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    there |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for new in sorted({new for *_, new in changes} & there):
        print(f"  {path} has {new} already")


def write_changes(path: Path, changes: set[tuple[int, int, str, str]]) -> None:
    """Write a file with its names replaced, the last ones of a line first."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    for line, column, old, new in sorted(changes, reverse=True):
        encoded = lines[line - 1].encode()
        end = column + len(old.encode())
        if encoded[column:end] != old.encode():
            print(f"  not {old} at {path}:{line}:{column}: {encoded[column:end]!r}")
            continue
        lines[line - 1] = (encoded[:column] + new.encode() + encoded[end:]).decode()
    path.write_text("".join(lines), "utf-8")


def report_rest(renamed: dict[str, str]) -> None:
    """Print the strings and pages that hold an old name."""
    names = {name.rpartition(".")[2] for name in renamed}
    pattern = re.compile(rf"""["'`.]({"|".join(sorted(map(re.escape, names)))})["'`(]""")
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    for folder in FOLDERS:
        pages.extend((ROOT / folder).rglob("*.py"))
    for page in sorted(pages):
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            if pattern.search(line) and "docs/decisions" not in str(page):
                print(f"  {page.relative_to(ROOT)}:{number}: {line.strip()[:120]}")


if __name__ == "__main__":
    main()
