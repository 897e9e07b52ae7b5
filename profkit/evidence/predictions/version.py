"""A rule  ->  a hash of its code and of every threshold it reads: what predicted, exactly."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from types import FunctionType
from typing import Any

from profkit.diagnosis.estimate.causes import CAUSES
from profkit.diagnosis.estimate.estimate import expectation
from profkit.diagnosis.rule import Rule
from profkit.model.scenario import limit, modelled_gain

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def rule_version(rule: Rule) -> str:
    """Twelve hex digits that change when the rule could answer differently.

    The rule's function, what it closes over, the constants it names, and the same of every
    profkit function that it calls; likewise of what bounds its gain and what is expected of it.
    """
    text: list[str] = [rule.id]
    seen: set[int] = set()
    _visit(rule.check, "check", text, seen)
    if cause := CAUSES.get(rule.id):
        text.append(cause.kind)
        for part in (cause.best, cause.typical, cause.own, modelled_gain, limit, expectation):
            _visit(part, "estimate", text, seen)
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:12]


def _visit(value: Any, name: str, text: list[str], seen: set[int]) -> None:
    if id(value) in seen:
        return
    seen.add(id(value))
    if not isinstance(value, FunctionType):
        text.append(f"{name} = {_ADDRESS.sub('', repr(value))}")
        return
    if not value.__module__.startswith("profkit."):
        return
    text.append(_code(value))
    closed = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
    for inner, cell in closed:
        _visit(cell.cell_contents, inner, text, seen)
    for inner in value.__code__.co_names:
        used = value.__globals__.get(inner)
        if isinstance(used, FunctionType) or inner.isupper():
            _visit(used, inner, text, seen)


def _code(function: FunctionType) -> str:
    """The function without its comments and layout: reformatting is no new version."""
    source = textwrap.dedent(inspect.getsource(function))
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:  # a lambda in the middle of an expression
        return source
