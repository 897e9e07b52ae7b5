"""A rule  ->  the numbers that decide in it, each with the reason beside it in the source."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from profkit.diagnosis.rule import Rule
from profkit.diagnosis.rules import gains
from profkit.model import resources
from profkit.model.resources import BY_LIMITER, Peak


@dataclass(frozen=True)
class Threshold:
    """A number that decides.

    Attributes:
        name: Of the constant; of a resource, the word of the verdict.
        value: As it stands in the source, or what it says of a resource.
        reason: The comment beside it.
    """

    name: str
    value: str
    reason: str


def thresholds(rule: Rule) -> tuple[Threshold, ...]:
    """The numbers that a rule's question names, in the functions of the rules' own files."""
    by_name: dict[str, Threshold] = {}
    for threshold in _of_function(rule.check, set()):
        if threshold.reason:  # what has none is a fact of the hardware, not a choice
            by_name.setdefault(threshold.name, threshold)
    return tuple(by_name.values())


def near_its_peak(limiter: str) -> Threshold:
    """From where on a resource is near its peak."""
    peak = BY_LIMITER[limiter].peak
    queue = ", ".join(BY_LIMITER[limiter].queue)
    value = (
        f"near its peak from {100 * peak.sure:.0f} % of it on; from {100 * peak.likely:.0f} % on "
        f"where {100 * peak.queued:.0f} % of the warps' time is {queue}"
    )
    name = next(n for n, v in vars(resources).items() if v is peak and isinstance(v, Peak))
    return Threshold(limiter, value, _reasons(resources).get(name, ("", ""))[1])


def _of_function(function: Any, done: set[int]) -> Iterator[Threshold]:
    """Of a function, of what it closes over, and of functions of the rules that it calls."""
    if id(function) in done or not isinstance(function, FunctionType):
        return
    done.add(id(function))
    module = inspect.getmodule(function)
    if module in (None, gains) or not str(module.__name__).startswith("profkit.diagnosis.rules"):
        return  # gains.py is the arithmetic of bounds
    for cell in function.__closure__ or ():
        if isinstance(cell.cell_contents, str) and cell.cell_contents in BY_LIMITER:
            yield near_its_peak(cell.cell_contents)
        yield from _of_function(cell.cell_contents, done)
    for name in function.__code__.co_names:
        used = function.__globals__.get(name)
        if name.isupper() and isinstance(used, int | float):
            value, reason = _reasons(_home(module, name)).get(name, (str(used), ""))
            yield Threshold(name, value, reason)
        yield from _of_function(used, done)


def _home(module: ModuleType, name: str) -> ModuleType:
    """The module that says what a constant is, which may be one that this one imports it from."""
    if name in _reasons(module):
        return module
    others = {id(m): m for value in vars(module).values() if (m := inspect.getmodule(value))}
    value = vars(module)[name]
    holds = (m for m in others.values() if vars(m).get(name) is value and name in _reasons(m))
    return next(holds, module)


@cache
def _reasons(module: ModuleType) -> dict[str, tuple[str, str]]:
    """Constant of a module -> its value as it is written, and the comment beside or above it."""
    if not module.__name__.startswith("profkit."):
        return {}
    source = inspect.getsource(module)
    lines = source.splitlines()
    constants = {}
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign):
            continue
        last = node.end_lineno or node.lineno
        beside = [said for line in lines[node.lineno - 1 : last] if (said := _comment(line))]
        reason = " ".join(beside or _above(lines, node.lineno - 1))
        for name, value in _named(node.targets[0], node.value):
            constants[name] = ast.unparse(value), reason
    return {name: said for name, said in constants.items() if name.isupper()}


def _named(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    """The names of an assignment, each with its value."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        both = zip(target.elts, value.elts, strict=True)
        return [pair for one, other in both for pair in _named(one, other)]
    return [(target.id, value)] if isinstance(target, ast.Name) else []


def _above(lines: list[str], first: int) -> list[str]:
    block: list[str] = []
    while first > 0 and lines[first - 1].startswith("#"):
        first -= 1
        block.insert(0, lines[first].lstrip("# "))
    return block


def _comment(line: str) -> str:
    match = re.search(r"\s#\s(?!noqa|fmt|type:)(.+)$", line)
    return match[1] if match else ""
