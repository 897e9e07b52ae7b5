"""What a file of claims is written with: a sentence somebody said, and the function that tries it.

A claim is a function in a plain file of the user's own; nothing is ever read as code from a report
or a record. `profkit verify` (verify.py) loads such files and tries what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence

Verdict = Literal["holds", "fails", "undecided"]
Number = float | int | str | None


@dataclass(frozen=True)
class Answer:
    """What a claim comes to.

    Attributes:
        verdict: holds, fails or undecided.
        because: One sentence with the figures that decide.
        numbers: Name -> value: a catalogue metric under its short name (SI), or any other under a
            name that carries its unit.
        collect: What to run when undecided, one command each.
        computed: What was calculated, not measured (what another GPU would do), one line each.
    """

    verdict: Verdict
    because: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    collect: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()

    def elsewhere(self, *lines: str) -> Answer:
        """The same answer with lines that were computed rather than measured."""
        return replace(self, computed=self.computed + lines)


def decide(true: bool, because: str, **numbers: Number) -> Answer:
    """Holds if `true`, fails otherwise."""
    return Answer("holds" if true else "fails", because, numbers)


def undecided(because: str, *collect: str, **numbers: Number) -> Answer:
    """Not decidable from what was collected; `collect` are the commands that would."""
    return Answer("undecided", because, numbers, collect)


@dataclass(frozen=True)
class Claim:
    """One sentence and how to try it.

    Attributes:
        name: The function's name.
        sentence: The first paragraph of its docstring: the sentence as it was meant.
        who: Who said it and where.
        needs: The runs that it looks at, as "variant.case"; a missing one makes it undecided
            before it starts, so that everything missing is said at once.
        check: The function.
    """

    name: str
    sentence: str
    who: str
    needs: tuple[str, ...]
    check: Callable[[Evidence], Answer]

    def __call__(self, evidence: Evidence) -> Answer:
        """Try the claim on this evidence."""
        return self.check(evidence)


@dataclass(frozen=True)
class Gate:
    """Claims that must all hold.

    Attributes:
        name: What is let through.
        claims: All have to hold; undecided is not through.
        binding: False for a gate that is only reported (one that nothing could ever meet).
    """

    name: str
    claims: tuple[Claim, ...]
    binding: bool = True


def claim(who: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Evidence], Answer]], Claim]:
    """Make a claim of a function: its docstring is the sentence.

    Args:
        who: Who said it and where ("status document of 14 October").
        needs: Runs that it looks at, as "variant.case".
    """

    def decorate(check: Callable[[Evidence], Answer]) -> Claim:
        name = getattr(check, "__name__", "claim")
        paragraph = (check.__doc__ or "").strip().split("\n\n")[0]
        if not paragraph:
            raise ProfkitError(
                f"the claim {name} has no docstring", "its docstring is the sentence that is tried"
            )
        return Claim(name, " ".join(paragraph.split()), who, tuple(needs), check)

    return decorate


def gate(name: str, claims: Sequence[Claim], binding: bool = True) -> Gate:
    """An acceptance gate: see Gate."""
    if not claims:
        raise ProfkitError(f"the gate {name!r} has no claims", "a gate that asks nothing is open")
    return Gate(name, tuple(claims), binding)
