"""A header's tune:, where:, takes:, steer: and watch:  ->  the space that a search walks in.

The space is a list: every choice of one value per macro, the defaults first. What cannot exist is
told apart by arithmetic, before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.variants import arithmetic
from profkit.measure.variants.arithmetic import Expression
from profkit.measure.variants.occupancy import LIMITS, REGISTERS
from profkit.records import header
from profkit.records.header import Budget

Config = tuple[str, ...]  # one value per macro, in the order of the header
MOST = 100_000  # configurations: a space is written down whole
MOST_THREADS, MOST_REGISTERS = 1024, 255  # of a block, of a thread: every architecture's limits
_WISH = re.compile(r"([\w-]+)([+-])")


@dataclass(frozen=True)
class Refusal:
    """Why a configuration cannot be.

    Attributes:
        kind: What refusals are counted by.
        detail: The same with its figures.
    """

    kind: str
    detail: str


@dataclass(frozen=True)
class Wish:
    """Where something should go: up (+1) or down (-1).

    Attributes:
        rule: The rule that asks for it; empty for a metric.
        name: A macro or a quantity of `takes:`; a metric's short name in `watch:`.
        way: +1 or -1.
    """

    rule: str
    name: str
    way: int


@dataclass(frozen=True)
class Space:
    """What a header says about tuning.

    Attributes:
        file: The file's name, for messages.
        values: Macro -> its values, the default first.
        conditions: All must hold.
        quantities: What a block takes; `threads`, `smem` (bytes) and `regs` are held to limits.
        steer: Which way a rule that fires asks a macro or a quantity to go.
        watch: Metrics that a better choice moves.
    """

    file: str
    values: Mapping[str, tuple[str, ...]]
    conditions: tuple[Expression, ...] = ()
    quantities: Mapping[str, Expression] | None = None
    steer: tuple[Wish, ...] = ()
    watch: tuple[Wish, ...] = ()

    @property
    def macros(self) -> tuple[str, ...]:
        """The macros, in order."""
        return tuple(self.values)

    @property
    def default(self) -> Config:
        """The hand-written choice."""
        return tuple(v[0] for v in self.values.values())

    def every(self) -> list[Config]:
        """All choices, also those that cannot be; the default first."""
        return [tuple(c.values()) for c in header.combinations(self.values)]

    def named(self, config: Config) -> dict[str, str]:
        """Macro -> value."""
        return dict(zip(self.values, config, strict=True))

    def is_number(self, macro: str) -> bool:
        """Whether all values of a macro are whole numbers."""
        return _whole(self.values[macro])

    def ordered(self, macro: str) -> tuple[str, ...]:
        """A macro's values from small to large; as declared where they are no numbers."""
        values = self.values[macro]
        return tuple(sorted(values, key=int)) if _whole(values) else values

    def ranks(self, config: Config) -> tuple[int, ...]:
        """Where each value stands among its macro's, from small to large."""
        return tuple(self.ordered(m).index(v) for m, v in zip(self.values, config, strict=True))

    def numbers(self, config: Config) -> dict[str, int]:
        """Macros that are numbers, and quantities."""
        found = {m: int(v) for m, v in self.named(config).items() if _whole(self.values[m])}
        for name, expression in (self.quantities or {}).items():
            found[name] = self._value(expression, found)
        return found

    def _value(self, expression: Expression, given: Mapping[str, int]) -> int:
        try:
            return expression.value(given)
        except ZeroDivisionError as error:
            raise ProfkitError(
                f"{self.file}: '{expression.text}' divides by zero at "
                + " ".join(f"{k}={v}" for k, v in given.items()),
                "ask for a value above zero, or leave 0 out of 'tune:'",
            ) from error

    def refusal(self, config: Config, arch: str, budget: Budget) -> Refusal | None:
        """Why a configuration cannot be, by arithmetic; None if nothing speaks against it."""
        given = self.numbers(config)
        for condition in self.conditions:
            if not self._value(condition, given):
                return Refusal(condition.text, condition.text)
        most = limits(arch, budget)
        for name, (limit, kind) in most.items():
            if name in given and given[name] > limit:
                return Refusal(kind, f"{name}={given[name]}, at most {limit}")
        used = given.get("regs", 1) * given.get("threads", 1)
        if used > REGISTERS:
            return Refusal("registers of an SM", f"{used} registers a block, an SM has {REGISTERS}")
        return None


def limits(arch: str, budget: Budget) -> dict[str, tuple[int, str]]:
    """What a block may take: name -> (most, what a refusal is counted as)."""
    found = {
        "threads": (MOST_THREADS, "threads of a block"),
        "regs": (MOST_REGISTERS, "registers of a thread"),
    }
    of = LIMITS.get(arch.rstrip("af"))
    if of is not None:
        found["smem"] = of.smem - of.reserved, "shared memory of a block"
    promised = {"regs": (budget.regs, "register budget"), "smem": (budget.smem, "shared budget")}
    for name, (most, kind) in promised.items():
        if most is not None and most < found.get(name, (most + 1, ""))[0]:
            found[name] = most, kind
    return found


def read(keys: Mapping[str, str], path: Path) -> Space:
    """What the keys of a header say, every name in them known.

    Args:
        keys: See header.KEYS.
        path: The file, for messages.
    """
    file = path.name
    values = header.tune(keys.get("tune", ""), file)
    for macro, options in values.items():
        if len(set(options)) < len(options):
            raise ProfkitError(f"{file}: 'tune:' gives {macro} a value twice", "name each once")
    if prod(map(len, values.values())) > MOST:
        raise ProfkitError(f"{file}: 'tune:' has more than {MOST} choices", "declare fewer values")
    known = {m for m, v in values.items() if _whole(v)}
    quantities: dict[str, Expression] = {}
    for word in keys.get("takes", "").split():
        name, equals, text = word.partition("=")
        if not equals or not re.fullmatch(r"[a-z]\w*", name):
            raise ProfkitError(
                f"{file}: cannot read '{word}' in 'takes:'", "write e.g. threads=32*WARPS"
            )
        quantities[name] = _expression(text, f"{file}: 'takes:'", known, condition=False)
        known.add(name)
    texts = [t for t in keys.get("where", "").split(",") if t.strip()]
    conditions = tuple(_expression(t, f"{file}: 'where:'", known, condition=True) for t in texts)
    steer = tuple(_steer(word, file, known) for word in keys.get("steer", "").split())
    watch = tuple(_wish("", word, file, "watch") for word in keys.get("watch", "").split())
    return Space(file, values, conditions, quantities, steer, watch)


def _expression(text: str, where: str, known: set[str], *, condition: bool) -> Expression:
    found = arithmetic.read(text, where)
    if found.is_condition != condition:
        what = "compares nothing" if condition else "is a condition"
        raise ProfkitError(f"{where}: '{found.text}' {what}", header.KEYS["where"])
    if strange := sorted(found.names - known):
        raise ProfkitError(
            f"{where}: {strange[0]} is no number that 'tune:' or 'takes:' declares",
            f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    return found


def _steer(word: str, file: str, known: set[str]) -> Wish:
    rule, _, text = word.partition("=")
    wish = _wish(rule, text, file, "steer")
    if wish.name not in known:
        raise ProfkitError(
            f"{file}: 'steer:' names {wish.name}, which 'tune:' and 'takes:' do not have",
            f"there are: {', '.join(sorted(known)) or 'none'}",
        )
    return wish


def _wish(rule: str, text: str, file: str, key: str) -> Wish:
    found = _WISH.fullmatch(text)
    if not found:
        raise ProfkitError(f"{file}: cannot read '{text}' in '{key}:'", header.KEYS[key])
    return Wish(rule, found[1], 1 if found[2] == "+" else -1)


def _whole(values: tuple[str, ...]) -> bool:
    return all(re.fullmatch(r"-?\d{1,9}", v) for v in values)
