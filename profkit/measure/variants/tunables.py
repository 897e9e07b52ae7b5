"""A header's tune:, where:, takes:, steer: and watch:  ->  the space that a search walks in.

The space is a list: every choice of one value per macro, the defaults first. What cannot exist is
told apart by arithmetic, before anything is built.
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.cuda.resources import LIMITS, REGISTERS
from profkit.records import header
from profkit.records.header import Budget, Header

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


MOST = 100_000  # configurations: a space is written down whole
MOST_THREADS, MOST_REGISTERS = 1024, 255  # of a block, of a thread: every architecture's limits
_DIRECTION = re.compile(r"([\w-]+)([+-])")


@dataclass(frozen=True, order=True)
class Config:
    """One choice: a value for every macro."""

    values: tuple[tuple[str, str], ...]  # (macro, value), in the order of the header
    ranks: tuple[int, ...]  # where each value stands among its macro's, from small to large

    @property
    def named(self) -> dict[str, str]:
        """Macro -> value."""
        return dict(self.values)

    @property
    def flags(self) -> tuple[str, ...]:
        """What nvcc is given: -DBLOCK_M=64 -DWARPS=4."""
        return tuple(f"-D{macro}={value}" for macro, value in self.values)

    @property
    def name(self) -> str:
        """The values, fit for a file's name: 64-4."""
        return "-".join(re.sub(r"\W", "_", value) for _, value in self.values)


@dataclass(frozen=True)
class InvalidConfig:
    """Why a configuration cannot be."""

    kind: str  # what refusals are counted by
    detail: str  # the same with its figures


@dataclass(frozen=True)
class Direction:
    """Where something should go: up (+1) or down (-1)."""

    rule: str  # the rule that asks for it; empty for a metric
    name: str  # a macro or a quantity of `takes:`; a metric's short name in `watch:`
    way: int


@dataclass(frozen=True)
class Space:
    """What a header says about tuning."""

    file: str  # the file's name, for messages
    values: Mapping[str, tuple[str, ...]]  # macro -> its values, the default first
    conditions: tuple[Expression, ...] = ()  # all must hold
    # what a block takes; `threads`, `smem` (bytes) and `regs` are held to limits
    quantities: Mapping[str, Expression] | None = None
    # which way a rule that fires asks a macro or a quantity to go
    steer: tuple[Direction, ...] = ()
    watch: tuple[Direction, ...] = ()  # metrics that a better choice moves

    @property
    def macros(self) -> tuple[str, ...]:
        """The macros, in order."""
        return tuple(self.values)

    @property
    def default(self) -> Config:
        """The hand-written choice."""
        return self.config({macro: values[0] for macro, values in self.values.items()})

    def config(self, named: Mapping[str, str]) -> Config:
        """The configuration of these values, one per macro.

        Raises:
            KeyError: A macro has no value.
            ValueError: A value is none of its macro's.
        """
        ranks = tuple(self.ordered(macro).index(named[macro]) for macro in self.values)
        return Config(tuple((macro, named[macro]) for macro in self.values), ranks)

    def at(self, ranks: Sequence[int]) -> Config:
        """The configuration whose values stand at these ranks."""
        pairs = zip(self.values, ranks, strict=True)
        return self.config({macro: self.ordered(macro)[rank] for macro, rank in pairs})

    def every(self) -> list[Config]:
        """All choices, also those that cannot be; the default first."""
        return [self.config(choice) for choice in header.combinations(self.values)]

    def is_number(self, macro: str) -> bool:
        """Whether all values of a macro are whole numbers."""
        return _whole(self.values[macro])

    def ordered(self, macro: str) -> tuple[str, ...]:
        """A macro's values from small to large; as declared where they are no numbers."""
        return self._order[macro]

    @functools.cached_property
    def _order(self) -> dict[str, tuple[str, ...]]:
        return {macro: _ascending(values) for macro, values in self.values.items()}

    def numbers(self, config: Config) -> dict[str, int]:
        """Macros that are numbers, and quantities."""
        known = {macro: int(v) for macro, v in config.values if _whole(self.values[macro])}
        for name, expression in (self.quantities or {}).items():
            known[name] = self._value(expression, known)
        return known

    def _value(self, expression: Expression, numbers: Mapping[str, int]) -> int:
        try:
            return expression.value(numbers)
        except ZeroDivisionError as error:
            raise ProfkitError(
                f"{self.file}: '{expression.text}' divides by zero at "
                + " ".join(f"{k}={v}" for k, v in numbers.items()),
                "ask for a value above zero, or leave 0 out of 'tune:'",
            ) from error

    def refusal(self, config: Config, arch: str, budget: Budget) -> InvalidConfig | None:
        """Why a configuration cannot be, by arithmetic; None if nothing speaks against it."""
        numbers = self.numbers(config)
        for condition in self.conditions:
            if not self._value(condition, numbers):
                return InvalidConfig(condition.text, condition.text)
        most = block_limits(arch, budget)
        for name, (limit, kind) in most.items():
            if name in numbers and numbers[name] > limit:
                return InvalidConfig(kind, f"{name}={numbers[name]}, at most {limit}")
        used = numbers.get("regs", 1) * numbers.get("threads", 1)
        if used > REGISTERS:
            return InvalidConfig(
                "registers of an SM", f"{used} registers a block, an SM has {REGISTERS}"
            )
        return None


def block_limits(arch: str, budget: Budget) -> dict[str, tuple[int, str]]:
    """What a block may take: name -> (most, what a refusal is counted as)."""
    most_of = {
        "threads": (MOST_THREADS, "threads of a block"),
        "regs": (MOST_REGISTERS, "registers of a thread"),
    }
    sm = LIMITS.get(arch.rstrip("af"))
    if sm is not None:
        most_of["smem"] = sm.smem - sm.reserved, "shared memory of a block"
    promised = {"regs": (budget.regs, "register budget"), "smem": (budget.smem, "shared budget")}
    for name, (most, kind) in promised.items():
        if most is not None and most < most_of.get(name, (most + 1, ""))[0]:
            most_of[name] = most, kind
    return most_of


def read_space(head: Header, path: Path) -> Space:
    """What the keys of a header say, every name in them known."""
    file = path.name
    values = header.read_tunables(head.tune, file)
    for macro, options in values.items():
        if len(set(options)) < len(options):
            raise ProfkitError(f"{file}: 'tune:' gives {macro} a value twice", "name each once")
    if prod(map(len, values.values())) > MOST:
        raise ProfkitError(f"{file}: 'tune:' has more than {MOST} choices", "declare fewer values")
    known = {m for m, v in values.items() if _whole(v)}
    quantities: dict[str, Expression] = {}
    for word in head.takes:
        name, equals, text = word.partition("=")
        if not equals or not re.fullmatch(r"[a-z]\w*", name):
            raise ProfkitError(
                f"{file}: cannot read '{word}' in 'takes:'", "write e.g. threads=32*WARPS"
            )
        quantities[name] = _expression(text, f"{file}: 'takes:'", known, condition=False)
        known.add(name)
    texts = [t for t in head.where.split(",") if t.strip()]
    conditions = tuple(_expression(t, f"{file}: 'where:'", known, condition=True) for t in texts)
    steer = tuple(_steer(word, file, known) for word in head.steer)
    watch = tuple(_direction("", word, file, "watch") for word in head.watch)
    return Space(file, values, conditions, quantities, steer, watch)


def _expression(text: str, where: str, known: set[str], *, condition: bool) -> Expression:
    expression = read_expression(text, where)
    if expression.is_condition != condition:
        what = "compares nothing" if condition else "is a condition"
        raise ProfkitError(f"{where}: '{expression.text}' {what}", header.KEYS["where"])
    if strange := sorted(expression.names - known):
        raise ProfkitError(
            f"{where}: {strange[0]} is no number that 'tune:' or 'takes:' declares",
            f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    return expression


def _steer(word: str, file: str, known: set[str]) -> Direction:
    rule, _, text = word.partition("=")
    direction = _direction(rule, text, file, "steer")
    if direction.name not in known:
        raise ProfkitError(
            f"{file}: 'steer:' names {direction.name}, which 'tune:' and 'takes:' do not have",
            f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    return direction


def _direction(rule: str, text: str, file: str, key: str) -> Direction:
    match = _DIRECTION.fullmatch(text)
    if not match:
        raise ProfkitError(f"{file}: cannot read '{text}' in '{key}:'", header.KEYS[key])
    return Direction(rule, match[1], 1 if match[2] == "+" else -1)


def _ascending(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(values, key=int)) if _whole(values) else values


def _whole(values: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"-?\d{1,9}", v) for v in values)
