"""What a file of claims is written with: a sentence somebody said, and the function that tries it.

A claim is a function in a plain file of the user's own; nothing is ever read as code from a report
or a record. `profkit verify` (verify.py) loads such files and tries what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from profkit.errors import ProfkitError
from profkit.evidence.comparison.compare import compare_times
from profkit.evidence.runs.comparable import refusals_of
from profkit.evidence.runs.runs import Evidence, MissingEvidence
from profkit.evidence.timing.stats import Interval, TimeComparison

ClaimVerdict = Literal["holds", "fails", "undecided"]
Number = float | int | str | None


@dataclass(frozen=True)
class Answer:
    """What a claim comes to."""

    verdict: ClaimVerdict
    because: str  # one sentence with the figures that decide
    # name -> value: a catalogue metric under its short name (SI), or any other under a name
    # that carries its unit
    numbers: Mapping[str, Number] = field(default_factory=dict)
    collect: tuple[str, ...] = ()  # what to run when undecided, one command each
    # what was calculated, not measured (what another GPU would do), one line each
    computed: tuple[str, ...] = ()

    def elsewhere(self, *lines: str) -> Answer:
        """The same answer with lines that were computed rather than measured."""
        return replace(self, computed=self.computed + lines)


def decide(true: bool | None, because: str, **numbers: Number) -> Answer:
    """Holds if `true`, fails if not, undecided if None (an interval that has the bound in it)."""
    verdict: ClaimVerdict = "undecided" if true is None else "holds" if true else "fails"
    return Answer(verdict, because, numbers)


def at_least(value: Interval, bound: float) -> bool | None:
    """Whether a value is at least this: None when its interval has the bound in it."""
    if value.low >= bound:
        return True
    return False if value.high < bound else None


def timed(evidence: Evidence, before: str, after: str) -> TimeComparison:
    """How the times of two runs ("variant.case") compare.

    Raises:
        MissingEvidence: They were not timed or must not be compared; a claim becomes undecided.
    """
    one, other = (evidence.load(*name.split(".", 1)) for name in (before, after))
    refused = refusals_of(one, other)
    if refused:
        why = "; ".join(r.sentence for r in refused)
        raise MissingEvidence(f"{before} and {after} are not compared: {why}")
    return compare_times(one.timed, other.timed)


def undecided(because: str, *collect: str, **numbers: Number) -> Answer:
    """Not decidable from what was collected; `collect` are the commands that would."""
    return Answer("undecided", because, numbers, collect)


@dataclass(frozen=True)
class Claim:
    """One sentence and how to try it."""

    name: str
    sentence: str  # the first paragraph of its docstring: the sentence as it was meant
    who: str
    # the runs that it looks at, as "variant.case"; a missing one makes it undecided before it
    # starts, so that everything missing is said at once
    needs: tuple[str, ...]
    check: Callable[[Evidence], Answer]

    def __call__(self, evidence: Evidence) -> Answer:
        """Try the claim on this evidence."""
        return self.check(evidence)


@dataclass(frozen=True)
class Gate:
    """Claims that must all hold."""

    name: str  # what is let through
    claims: tuple[Claim, ...]  # all have to hold; undecided is not through
    # false for a gate that is only reported (one that nothing could ever meet)
    binding: bool = True


def claim(who: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Evidence], Answer]], Claim]:
    """Make a claim of a function: its docstring is the sentence.

    `who`: who said it and where ("status document of 14 October"). `needs`: runs that it looks at,
    as "variant.case".
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
