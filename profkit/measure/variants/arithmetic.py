"""Text of a header  ->  integer arithmetic over named values: a small grammar, nothing is executed.

Whole numbers, names, `+ - * // %`, parentheses and comparisons. No calls, no attributes, no
powers: a value is never longer than the text that it came from allows.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from profkit.errors import ProfkitError

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST = 200  # characters: no tile size needs more, and nesting stays shallow
_GRAMMAR = "write whole numbers, names, + - * // % and parentheses, for example 32 * WARPS"


@dataclass(frozen=True)
class Expression:
    """One expression or condition, read and found to be of the grammar."""

    text: str  # as it was written
    names: frozenset[str]  # the names that it uses
    is_condition: bool  # whether it compares
    _tree: ast.expr

    def value(self, given: Mapping[str, int]) -> int:
        """What it comes to; a condition gives 0 or 1.

        Raises:
            ZeroDivisionError: Something is divided by zero.
        """
        return _value(self._tree, given)


def read_expression(text: str, where: str) -> Expression:
    """Read an expression.

    `where` names its place in an error: "v3_x.cu: 'where:'".
    """
    if not text.isascii():  # Python reads º as o: a name that nobody wrote
        raise ProfkitError(f"{where}: {text[:60]!r} is not plain ASCII", _GRAMMAR)
    try:
        tree = ast.parse(text[: _LONGEST + 1].strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ProfkitError(f"{where}: cannot read {text[:60]!r}", _GRAMMAR) from error
    if len(text) > _LONGEST:
        raise ProfkitError(f"{where}: longer than {_LONGEST} characters", "say it in two")
    names: set[str] = set()
    compares = isinstance(tree, ast.Compare)
    sides = [tree.left, *tree.comparators] if isinstance(tree, ast.Compare) else [tree]
    known = not isinstance(tree, ast.Compare) or all(type(o) in _OPERATORS for o in tree.ops)
    if not known or not all(_allowed(side, names) for side in sides):
        raise ProfkitError(f"{where}: {text[:60]!r} is not of the grammar", _GRAMMAR)
    return Expression(text.strip(), frozenset(names), compares, tree)


def _allowed(node: ast.expr, names: set[str]) -> bool:
    match node:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return True
        case ast.Name(id=name):
            names.add(name)
            return True
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _allowed(inner, names)
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in _OPERATORS and _allowed(left, names) and _allowed(right, names)
    return False


def _value(node: ast.expr, given: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return given[name]
        case ast.UnaryOp(operand=inner):
            return -_value(inner, given)
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, given), _value(right, given))
        case ast.Compare(left=first, ops=ops, comparators=rest):
            sides = [_value(side, given) for side in (first, *rest)]
            pairs = zip(ops, sides, sides[1:], strict=False)
            return int(all(_OPERATORS[type(op)](a, b) for op, a, b in pairs))
    raise AssertionError(ast.dump(node))  # read() let nothing else through
