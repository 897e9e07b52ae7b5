"""A rule: one kind of waste, in words, with the question that finds it and the examples that test it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from profkit.errors import ProfkitError
from profkit.judge.finding import Finding

Subject = TypeVar("Subject")  # what is judged: a step of a program
Example = TypeVar("Example")  # a subject, written down by hand
# Asked of a subject; the indices are of what findings before it explain already.
Check = Callable[[Subject, frozenset[int]], Iterator[Finding]]


@dataclass(frozen=True, kw_only=True)
class Rule(Generic[Subject, Example]):
    """One rule, whole: `profkit explain ID` shows it, and its examples are tests."""

    id: str
    title: str  # one line for tables
    meaning: str  # how it is seen, and what is read for that
    advice: str  # what people do about it
    checks: tuple[
        Check[Any], ...
    ]  # each finds one form of it; empty where nothing else being found is it
    fix: str  # what a fix does to the subject, and what is left then
    fires: tuple[Example, ...]  # on these it is what is said first, the plainest one first
    clear: tuple[Example, ...]  # on these it is not said at all
    page: Path  # what was written by hand: why it happens, the code before and after, false alarms

    def __post_init__(self) -> None:
        if not self.fires or not self.clear:
            hint = "give fires=(...,) and clear=(...,)"
            raise ProfkitError(f"rule {self.id}: has no example", hint)
