"""What the user wants to see (--kernel, --where)  ->  which launches those are."""

from __future__ import annotations

import ast
import difflib
import re
import signal
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
PATTERN_TIME = 2.0  # seconds that all names together may take: a million take one
_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
LONGEST = 2000  # characters: nobody types more, and the parser nests no deeper
EXAMPLE = "for example: --where 'bound == \"memory\" and time > 1e-5'"


def by_kernel(names: Sequence[str], pattern: str) -> list[bool]:
    """Which kernel names match a regular expression anywhere, in either case.

    Raises:
        ProfkitError: The expression is not one.
    """
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ProfkitError(f"--kernel {pattern}: {error}", "it is a regular expression") from error
    except (RecursionError, OverflowError) as error:
        raise ProfkitError("--kernel: too deep an expression", "write a shorter one") from error
    matched: dict[str, bool] = {}
    with within(PATTERN_TIME, f"--kernel {pattern}"):
        for name in names:
            if name not in matched:
                matched[name] = bool(expression.search(name))
    return [matched[name] for name in names]


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Stop a block that takes longer: some expressions try every way to match before they give up.

    Python's own engine looks at signals while it matches. Outside of the main thread there are
    none, and no limit.

    Raises:
        ProfkitError: Time is up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise ProfkitError(
            f"{what}: gave no answer within {seconds:g} s",
            "an expression with (x+)+ in it tries every way to match: write x+",
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def where(frame: DataFrame, expression: str) -> DataFrame:
    """The launches for which an expression over the columns holds.

    Raises:
        ProfkitError: The expression cannot be read, does more than compare, names no column or
            compares what cannot be compared.
    """
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    texts = {str(c) for c in frame.columns if not is_numeric_dtype(frame[c])}
    safe(expression, [str(c) for c in frame.columns], texts)
    try:
        # The python engine: numexpr, where it is installed, would evaluate the text by itself.
        with warnings.catch_warnings(action="ignore"):
            chosen: Any = frame.eval(expression.strip(), engine="python")
        if not is_bool_dtype(getattr(chosen, "dtype", object)) or len(chosen) != len(frame):
            raise ValueError("it is no comparison")
        matching: DataFrame = frame[chosen]
    except (
        IndexError,
        TypeError,
        ValueError,
        NotImplementedError,
        SyntaxError,
        KeyError,
        RecursionError,
        ArithmeticError,
        MemoryError,
    ) as error:
        why = str(error) or type(error).__name__
        raise ProfkitError(f"--where {expression}: {why}", EXAMPLE) from error
    return matching


def safe(expression: str, columns: Collection[str], texts: Collection[str] = ()) -> None:
    """Raise a ProfkitError for an expression that does more than compare columns."""
    if len(expression) > LONGEST:
        raise ProfkitError(f"--where: {len(expression)} characters are too many", EXAMPLE)
    try:
        with warnings.catch_warnings(action="ignore"):  # "9or 1" is spelled badly, and that is all
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
        if isinstance(node, ast.BinOp) and isinstance(node.op, _ARITHMETIC):
            for leaf in (node.left, node.right):
                if _is_text(leaf, texts):
                    raise ProfkitError(f"--where {expression}: arithmetic with text", EXAMPLE)
        if isinstance(node, ast.Name) and node.id not in columns:
            near = difflib.get_close_matches(node.id, columns, 1)
            hint = f"did you mean {near[0]}?" if near else "profkit explain lists the columns"
            raise ProfkitError(f"--where {expression}: there is no column {node.id}", hint)
    if not any(isinstance(node, ast.Compare) for node in ast.walk(tree)):
        raise ProfkitError(f"--where {expression}: compares nothing", EXAMPLE)


def _is_text(node: ast.expr, texts: Collection[str]) -> bool:
    """Whether an operand is a text or a list, whichever its length."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, str | bytes)
        case ast.Name(id=name):
            return name in texts
        case ast.List() | ast.Tuple():
            return True
    return False
