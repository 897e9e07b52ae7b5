"""A header's tune:, where:, takes:, steer: and watch:  ->  the space that a search walks in.

The space is a list: every choice of one value per macro, the defaults first. What cannot exist is
told apart by arithmetic, before anything is built.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda.resources import LIMITS, REGISTERS
from profkit.records import header
from profkit.records.header import Budget, VariantHeader

if TYPE_CHECKING:
    from profkit.units import MacroName, SmArch


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
_ALLOWED = (ast.Name, ast.Load, ast.UnaryOp, ast.USub, ast.BinOp, *_OPERATORS)
_LONGEST = 200  # characters: no tile size needs more, and nesting stays shallow
_GRAMMAR = "write whole numbers, names, + - * // % and parentheses, for example 32 * WARPS"


@dataclass(frozen=True)
class Expression:
    """One expression or condition, read and found to be of the grammar."""

    text: str  # as it was written
    names: frozenset[str]  # the names that it uses
    is_condition: bool  # whether it compares
    _tree: ast.expr

    def evaluate_with(self, value_by_name: Mapping[str, int]) -> int:
        """Evaluate it; a condition gives 0 or 1. ZeroDivisionError passes."""
        return _evaluate_node(self._tree, value_by_name)


def parse_checked_expression(text: str, place_in_errors: str) -> Expression:
    """Read an expression; `place_in_errors` names its place in an error: "v3_x.cu: 'where:'"."""
    if not text.isascii():  # Python reads º as o: a name that nobody wrote
        raise ProfkitError(f"{place_in_errors}: {text[:60]!r} is not plain ASCII", _GRAMMAR)
    try:
        tree = ast.parse(text[: _LONGEST + 1].strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ProfkitError(f"{place_in_errors}: cannot read {text[:60]!r}", _GRAMMAR) from error
    if len(text) > _LONGEST:
        raise ProfkitError(f"{place_in_errors}: longer than {_LONGEST} characters", "say it in two")
    compares = isinstance(tree, ast.Compare)  # one comparison may stand at the top
    nodes = []
    for node in ast.walk(tree):
        if node is not tree or not compares:
            nodes.append(node)
    for node in nodes:
        if isinstance(node, ast.Constant):
            is_allowed = type(node.value) is int
        else:
            is_allowed = isinstance(node, _ALLOWED)
        if not is_allowed:
            raise ProfkitError(f"{place_in_errors}: {text[:60]!r} is not of the grammar", _GRAMMAR)
    names = frozenset(node.id for node in nodes if isinstance(node, ast.Name))
    return Expression(text.strip(), names, compares, tree)


def _apply_operator(sign: ast.AST, left: int, right: int) -> int:
    return _OPERATORS[type(sign)](left, right)


def _evaluate_node(node: ast.expr, numbers: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return numbers[name]
        case ast.UnaryOp(operand=inner):
            return -_evaluate_node(inner, numbers)
        case ast.BinOp(left=left, op=op, right=right):
            return _apply_operator(
                op, _evaluate_node(left, numbers), _evaluate_node(right, numbers)
            )
        case ast.Compare(left=first, ops=operators, comparators=rest):
            before = _evaluate_node(first, numbers)
            for comparison, node_after in zip(operators, rest, strict=True):
                after = _evaluate_node(node_after, numbers)
                if not _apply_operator(comparison, before, after):
                    return 0
                before = after
            return 1
    raise AssertionError(ast.dump(node))  # parse_checked_expression let nothing else through


MOST = 100_000  # configurations: a space is written down whole
MOST_THREADS, MOST_REGISTERS = 1024, 255  # of a block, of a thread: every architecture's limits
_WHOLE = re.compile(r"-?\d{1,9}")
_DIRECTION = re.compile(r"([\w-]+)([+-])")


@dataclass(frozen=True, order=True)
class Config:
    """A value for each macro of a space."""

    values: tuple[tuple[str, str], ...]  # (macro, value), in the order of the header
    ranks: tuple[int, ...]  # where each value stands among its macro's, from small to large

    @property
    def values_by_macro(self) -> dict[MacroName, str]:
        """Return the value of each macro."""
        return dict(self.values)

    @property
    def flags(self) -> tuple[str, ...]:
        """Return what nvcc is given: -DBLOCK_M=64 -DWARPS=4."""
        return tuple(f"-D{macro}={value}" for macro, value in self.values)

    @property
    def name(self) -> str:
        """Return the values as a word that a folder can be named by."""
        return "-".join(re.sub(r"\W", "_", value) for _, value in self.values)


@dataclass(frozen=True)
class InvalidConfig:
    """Why a configuration cannot run."""

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
    """The values that the macros of a variant may have, and what must hold between them."""

    file: str  # the file's name, for messages
    values: Mapping[str, tuple[str, ...]]  # macro -> its values, the default first
    conditions: tuple[Expression, ...] = ()  # all must hold
    # what a block takes; `threads`, `smem` (bytes) and `regs` are held to limits
    quantities: Mapping[str, Expression] = field(default_factory=dict)
    # which way a rule that fires asks a macro or a quantity to go
    steer: tuple[Direction, ...] = ()
    watch: tuple[Direction, ...] = ()  # metrics that a better choice moves

    @property
    def macros(self) -> tuple[MacroName, ...]:
        """Return the names of the macros, in the order of the header."""
        return tuple(self.values)

    @property
    def default(self) -> Config:
        """Return the configuration of the first value of each macro."""
        first_values = {macro: values[0] for macro, values in self.values.items()}
        return self.make_declared_config(first_values)

    def list_value_texts_by_macro(self) -> dict[MacroName, list[str]]:
        """Return macro -> its values, as a document has them."""
        return {macro: list(values) for macro, values in self.values.items()}

    def make_declared_config(self, value_by_macro: Mapping[MacroName, str]) -> Config:
        """Return the configuration of these values; KeyError, ValueError if not declared."""
        values = []
        ranks = []
        for macro in self.values:
            value = value_by_macro[macro]
            values.append((macro, value))
            ranks.append(self.ordered_values[macro].index(value))
        return Config(tuple(values), tuple(ranks))

    def get_config_at(self, ranks: Sequence[int]) -> Config:
        """Return the configuration of the values of these ranks among each macro's."""
        values = {}
        for macro, rank in zip(self.values, ranks, strict=True):
            values[macro] = self.ordered_values[macro][rank]
        return self.make_declared_config(values)

    def list_all_configs_even_refused(self) -> list[Config]:
        """Return all choices, also those that cannot be; the default first."""
        return list(map(self.make_declared_config, header.list_value_combinations(self.values)))

    @cached_property
    def numeric_macros(self) -> set[MacroName]:
        """Return the macros whose values are all whole numbers."""
        numeric = set()
        for macro, values in self.values.items():
            if all(_WHOLE.fullmatch(value) for value in values):
                numeric.add(macro)
        return numeric

    @cached_property
    def ordered_values(self) -> dict[MacroName, tuple[str, ...]]:
        """Return macro -> its values from small to large; as declared where they are no numbers."""
        ordered = dict(self.values)
        for macro in self.numeric_macros:
            ordered[macro] = tuple(sorted(self.values[macro], key=int))
        return ordered

    def evaluate_quantities(self, config: Config) -> dict[str, int]:
        """Return the macros that are numbers, and the quantities."""
        known = {}
        for macro, v in config.values:
            if macro in self.numeric_macros:
                known[macro] = int(v)
        for name, expression in self.quantities.items():
            known[name] = self._evaluate_node(expression, known)
        return known

    def _evaluate_node(self, expression: Expression, numbers: Mapping[str, int]) -> int:
        try:
            return expression.evaluate_with(numbers)
        except ZeroDivisionError as error:
            raise ProfkitError(
                f"{self.file}: '{expression.text}' divides by zero at "
                + " ".join(f"{k}={v}" for k, v in numbers.items()),
                "ask for a value above zero, or leave 0 out of 'tune:'",
            ) from error

    def find_arithmetic_refusal(
        self, config: Config, arch: SmArch, budget: Budget
    ) -> InvalidConfig | None:
        """Return why a configuration cannot be, by arithmetic; None if nothing speaks against it."""
        numbers = self.evaluate_quantities(config)
        for condition in self.conditions:
            if not self._evaluate_node(condition, numbers):
                return InvalidConfig(condition.text, condition.text)
        return find_block_refusal(numbers, arch, budget)


def find_block_refusal(
    taken_by_resource: Mapping[str, int], architecture: SmArch, budget: Budget
) -> InvalidConfig | None:
    """Return why no block may take so many `threads`, `regs` a thread and bytes of `smem`."""
    most_of = {
        "threads": (MOST_THREADS, "threads of a block"),
        "regs": (MOST_REGISTERS, "registers of a thread"),
    }
    sm = LIMITS.get(architecture.rstrip("af"))
    if sm is not None:
        most_of["smem"] = sm.smem - sm.reserved, "shared memory of a block"
    promised = {"regs": (budget.regs, "register budget"), "smem": (budget.smem, "shared budget")}
    for name, (most, kind) in promised.items():
        if most is not None and most < most_of.get(name, (most + 1, ""))[0]:
            most_of[name] = most, kind
    for name, (most, kind) in most_of.items():
        if name in taken_by_resource and taken_by_resource[name] > most:
            return InvalidConfig(kind, f"{name}={taken_by_resource[name]}, at most {most}")
    used = taken_by_resource.get("regs", 1) * taken_by_resource.get("threads", 1)
    if used > REGISTERS:
        return InvalidConfig(
            "registers of an SM", f"{used} registers a block, an SM has {REGISTERS}"
        )
    return None


def _refuse_repeated_or_too_many_values(values: Mapping[str, Sequence[str]], file: str) -> None:
    """Raise a ProfkitError for a value that is given twice, or for more choices than MOST."""
    for macro, options in values.items():
        if len(set(options)) < len(options):
            raise ProfkitError(f"{file}: 'tune:' gives {macro} a value twice", "name each once")
    if prod(map(len, values.values())) > MOST:
        raise ProfkitError(f"{file}: 'tune:' has more than {MOST} choices", "declare fewer values")


def read_tunable_space(head: VariantHeader, path: Path) -> Space:
    """Return what the keys of a header say, every name in them known."""
    file = path.name
    values = header.parse_values_of_tunables(head.tune, file)
    _refuse_repeated_or_too_many_values(values, file)
    known = set(Space(file, values).numeric_macros)
    quantities = _read_quantities(head.takes, file, known)
    known |= quantities.keys()
    conditions = []
    for text in head.where.split(","):
        if text.strip():
            where = f"{file}: 'where:'"
            conditions.append(_parse_expression(text, where, known, is_condition=True))
    steer = tuple(_parse_direction(word, file, "steer") for word in head.steer)
    for direction in steer:
        if direction.name not in known:
            raise ProfkitError(
                f"{file}: 'steer:' names {direction.name}, which 'tune:' and 'takes:' do not have",
                f"there are: {', '.join(sorted(known)) or 'none'}",
            )
    watch = tuple(_parse_direction(f"={word}", file, "watch") for word in head.watch)
    return Space(file, values, tuple(conditions), quantities, steer, watch)


def _read_quantities(words: Iterable[str], file: str, macros: Set[str]) -> dict[str, Expression]:
    """Return the quantities of `takes:`; each may name macros, and quantities before it."""
    quantities: dict[str, Expression] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not re.fullmatch(r"[a-z]\w*", name):
            raise ProfkitError(
                f"{file}: cannot read '{word}' in 'takes:'", "write e.g. threads=32*WARPS"
            )
        known = {*macros, *quantities}
        quantities[name] = _parse_expression(text, f"{file}: 'takes:'", known, is_condition=False)
    return quantities


def _parse_expression(
    text: str, place_in_errors: str, known_names: set[str], *, is_condition: bool
) -> Expression:
    expression = parse_checked_expression(text, place_in_errors)
    if expression.is_condition != is_condition:
        what = "compares nothing" if is_condition else "is a condition"
        raise ProfkitError(f"{place_in_errors}: '{expression.text}' {what}", header.KEYS["where"])
    if strange := sorted(expression.names - known_names):
        raise ProfkitError(
            f"{place_in_errors}: {strange[0]} is not a number that 'tune:' or 'takes:' declares",
            f"there are: {', '.join(sorted(known_names)) or 'none'}",
        )
    return expression


def _parse_direction(word: str, file: str, key: str) -> Direction:
    rule, _, text = word.partition("=")
    match = _DIRECTION.fullmatch(text)
    if not match:
        raise ProfkitError(f"{file}: cannot read '{text}' in '{key}:'", header.KEYS[key])
    return Direction(rule, match[1], 1 if match[2] == "+" else -1)
