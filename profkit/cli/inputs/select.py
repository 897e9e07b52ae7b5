"""What the user wants to see (--kernel, --where)  ->  which launches those are."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from pandas import DataFrame

# Comparisons, and, or, not, arithmetic (** could run for ever), `in`, columns and constants. No
# calls, attributes, subscripts or @names: what is left can read the frame and nothing else.
_ALLOWED = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Invert, ast.USub,
    ast.UAdd, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.BitAnd, ast.BitOr, ast.Compare,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name, ast.Load,
    ast.Constant, ast.List, ast.Tuple,
)  # fmt: skip
LONGEST = 2000  # characters: nobody types more, and the parser nests no deeper
EXAMPLE = "for example: --where 'bound == \"memory\" and time > 1e-5'"


def by_kernel(names: Sequence[str], pattern: str) -> list[bool]:
    """Which kernel names match a regular expression anywhere.

    Raises:
        ProfkitError: The expression is not one.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ProfkitError(f"--kernel {pattern}: {error}", "it is a regular expression") from error
    return [bool(wanted.search(name)) for name in names]


def where(frame: DataFrame, expression: str) -> DataFrame:
    """The launches for which an expression over the columns holds.

    Args:
        frame: One row per launch.
        expression: As for DataFrame.query, without calls, attributes, subscripts and @names.

    Raises:
        ProfkitError: The expression cannot be read, does more than compare, names no column or
            compares what cannot be compared.
    """
    safe(expression, [str(c) for c in frame.columns])
    try:
        # The python engine: numexpr, where it is installed, would evaluate the text by itself.
        found = frame.query(expression.strip(), engine="python")
    except (
        TypeError,
        ValueError,
        NotImplementedError,
        SyntaxError,
        KeyError,
        RecursionError,
    ) as error:
        raise ProfkitError(f"--where {expression}: {error}", EXAMPLE) from error
    return found


def safe(expression: str, columns: Collection[str]) -> None:
    """Raise a ProfkitError for an expression that does more than compare columns."""
    if len(expression) > LONGEST:
        raise ProfkitError(f"--where: {len(expression)} characters are too many", EXAMPLE)
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ProfkitError(f"--where {expression}: not an expression", EXAMPLE) from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            what = type(node).__name__.lower()
            raise ProfkitError(
                f"--where {expression}: {what} is not allowed, only comparisons of columns",
                EXAMPLE,
            )
        if isinstance(node, ast.Name) and node.id not in columns:
            near = difflib.get_close_matches(node.id, columns, 1)
            hint = f"did you mean {near[0]}?" if near else "profkit explain lists the columns"
            raise ProfkitError(f"--where {expression}: there is no column {node.id}", hint)
    if not any(isinstance(node, ast.Compare) for node in ast.walk(tree)):
        raise ProfkitError(f"--where {expression}: compares nothing", EXAMPLE)
