"""Sentences that somebody said  ->  holds, fails or undecided on what was recorded.

A claim is a function in a plain file of the user's own; nothing is ever read as code from a report
or a record. Evidence that is missing makes a claim undecided and says what to collect; a claim that
raises is reported and the others go on. A file of claims is written with these names:

    from profkit.evidence.claims import Answer, at_least, claim, decide, gate, timed, undecided
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence.compare import GateResult, compare_warm_times
from profkit.evidence.conditions import list_comparison_refusals
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.evidence.stats import Interval, TimeComparison
from profkit.evidence.users_code import import_python_file_as, run_users_code
from profkit.files import is_file, resolve_path
from profkit.model.launch import NotCollected
from profkit.records.store import Document, Unprinted
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from profkit.units import CommandText, ExitStatus, MetricName, RunLabel, TextOrEmpty


ClaimVerdict = Literal["holds", "fails", "undecided"]
Number = float | int | str | None


@dataclass(frozen=True)
class Answer:
    """The answer of a claim, with the numbers that it rests on."""

    verdict: ClaimVerdict
    because: str  # one sentence with the figures that decide
    # name -> value: a catalogue metric under its short name (SI), or any other under a name
    # that carries its unit
    numbers: Mapping[str, Number] = field(default_factory=dict)
    collect: tuple[str, ...] = ()  # what to run when undecided, one command each
    # what was calculated, not measured (what another GPU would do), one line each
    computed: tuple[str, ...] = ()

    def elsewhere(self, *lines: str) -> Answer:
        """Return the same answer with lines that were computed rather than measured."""
        return replace(self, computed=self.computed + lines)


def decide(true: bool | None, because: str, **numbers: Number) -> Answer:
    """Return the answer: holds if `true`, fails if not, undecided if None (a bound in an interval)."""
    verdict: ClaimVerdict
    if true is None:
        verdict = "undecided"
    elif true:
        verdict = "holds"
    else:
        verdict = "fails"
    return Answer(verdict, because, numbers)


def at_least(value: Interval, bound: float) -> bool | None:
    """Return whether a value is at least this: None when its interval has the bound in it."""
    if value.low >= bound:
        return True
    if value.high < bound:
        return False
    return None


def timed(evidence: Evidence, before: RunLabel, after: RunLabel) -> TimeComparison:
    """Return how the times of two runs ("variant.case") compare.

    A MissingEvidence where they were not timed or must not be compared: the claim becomes
    undecided.
    """
    one, other = (evidence.load(*name.split(".", 1)) for name in (before, after))
    refused = list_comparison_refusals(one, other)
    if refused:
        why = "; ".join(r.sentence for r in refused)
        raise MissingEvidence(f"{before} and {after} are not compared: {why}")
    return compare_warm_times(one.timed, other.timed)


def undecided(because: str, *commands: CommandText, **numbers: Number) -> Answer:
    """Return that what was collected decides nothing; `commands` would collect what does."""
    return Answer("undecided", because, numbers, commands)


@dataclass(frozen=True)
class Claim:
    """A function that checks one sentence against the evidence."""

    name: str
    sentence: str  # the first paragraph of its docstring: the sentence as it was meant
    who: str
    # the runs that it looks at, as "variant.case"; a missing one makes it undecided before it
    # starts, so that everything missing is said at once
    needs: tuple[str, ...]
    check: Callable[[Evidence], Answer]

    def __call__(self, evidence: Evidence) -> Answer:
        return self.check(evidence)


@dataclass(frozen=True)
class Gate:
    """Claims that must hold together; one that is not binding closes nothing."""

    name: str  # what is let through
    claims: tuple[Claim, ...]  # all have to hold; undecided is not through
    # false for a gate that is only reported (one that nothing could ever meet)
    binding: bool = True


def claim(who: str, needs: Sequence[str] = ()) -> Callable[[Callable[[Evidence], Answer]], Claim]:
    """Make a claim of a function: its docstring is the sentence.

    `who` said it and where ("status document of 14 October"); `needs`: runs, as "variant.case".
    """

    def decorate_check(check: Callable[[Evidence], Answer]) -> Claim:
        name = getattr(check, "__name__", "claim")
        paragraph = (check.__doc__ or "").strip().split("\n\n")[0]
        if not paragraph:
            hint = "its docstring must be the sentence to test"
            raise ProfkitError(f"the claim {name} has no docstring", hint)
        return Claim(name, " ".join(paragraph.split()), who, tuple(needs), check)

    return decorate_check


def gate(name: str, claims: Sequence[Claim], binding: bool = True) -> Gate:
    """Return a gate; a ProfkitError without claims, since it would always be open."""
    if not claims:
        raise ProfkitError(
            f"the gate {name!r} has no claims", "a gate without claims is always open"
        )
    return Gate(name, tuple(claims), binding)


# --- trying them ----------------------------------------------------------------------------------

ClaimOutcome = Literal["holds", "fails", "undecided", "errored"]


class TriedClaim(Document, frozen=True, kw_only=True):
    """A claim and its outcome."""

    name: str = ""
    sentence: str = ""
    who: str = ""
    outcome: ClaimOutcome = "errored"
    because: str = ""  # of one that errored, what went wrong
    numbers: Mapping[str, Number] = msgspec.field(default_factory=dict)
    collect: tuple[str, ...] = ()  # commands that would decide it
    computed: tuple[str, ...] = ()
    needs: Unprinted[tuple[str, ...]] = ()  # the runs that it looks at, as "variant.case"


class Verified(Document, frozen=True, kw_only=True):
    """One file of claims; `error` says why it could not be loaded, if it could not."""

    path: Path = msgspec.field(default_factory=Path)
    title: str = ""
    error: str | None = None
    claims: tuple[TriedClaim, ...] = ()
    gates: tuple[GateResult, ...] = ()


class ClaimsDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.claims/1"
):
    """What `profkit claims --json` prints: each claim with its answer."""

    files: tuple[Verified, ...] = ()


def verify_claim_files(paths: Iterable[str | Path], evidence: Evidence) -> tuple[Verified, ...]:
    """Run Python files, which are your own, and try each claim in each; an entry a file."""
    return tuple(_verify_file(Path(path), evidence) for path in paths)


def choose_exit_status(results: Iterable[Verified]) -> ExitStatus:
    """Return 2 if a file or claim could not be tried, 1 if a binding gate is not met, else 0."""
    status = 0
    for file in results:
        if file.error or any(claim.outcome == "errored" for claim in file.claims):
            return 2
        if any(gate.binding and not gate.met for gate in file.gates):
            status = 1
    return status


def _verify_file(path: Path, evidence: Evidence) -> Verified:
    if not is_file(path):
        return Verified(path=path, title=path.stem, error="no such file")
    with make_importable(resolve_path(path.parent)):
        try:
            verified, why = run_users_code(path, lambda: _verify_module(path, evidence))
        except ProfkitError as error:
            why = f"{error.message} {error.hint}".strip()
            return Verified(path=path, title=path.stem, error=why)
    return verified or Verified(path=path, title=path.stem, error=why)


def _verify_module(path: Path, evidence: Evidence) -> Verified:
    module = import_python_file_as(path, f"profkit_claims_{path.stem}")
    first_line, *_ = [*str(module.__doc__ or "").strip().splitlines(), path.stem]
    claims: list[Claim] = []
    gates: list[Gate] = []
    for member in vars(module).values():
        if isinstance(member, Gate):
            gates.append(member)
        elif isinstance(member, Claim) and member.check.__module__ == module.__name__:
            claims.append(member)
    for gate_of_file in gates:
        claims += gate_of_file.claims
    for listed in claims:
        _refuse_malformed_claim(listed)
    judged = {listed: judge_claim(listed, evidence, path) for listed in dict.fromkeys(claims)}
    return Verified(
        path=path,
        title=first_line,
        claims=tuple(judged.values()),
        gates=tuple(_judge_gate(gate_of_file, judged) for gate_of_file in gates),
    )


def _judge_gate(gate: Gate, judged: Mapping[Claim, TriedClaim]) -> GateResult:
    """Return a gate with the names of its claims that do not hold."""
    failing = []
    for required in gate.claims:
        if judged[required].outcome != "holds":
            failing.append(required.name)
    return GateResult(name=gate.name, met=not failing, binding=gate.binding, failing=tuple(failing))


_LARGEST = 1 << 1023  # of a whole number: every reader of JSON has it as a float


def _refuse_malformed_claim(claim: object) -> None:
    """Raise a ProfkitError for what is no claim, or one whose parts are of another type."""
    if not isinstance(claim, Claim):
        raise ProfkitError(f"a gate of {claim!r:.80}", "gate(name, [claims])")
    texts = (claim.name, claim.sentence, claim.who, *claim.needs)
    if not all(isinstance(text, str) for text in texts):
        hint = 'write e.g. @claim("who, where", needs=["stage2.B"])'
        raise ProfkitError(f"the claim {claim.name!r:.80}: who and needs are texts", hint)


def _find_fault_of_answer(answer: object) -> TextOrEmpty:
    """Return what is wrong with what a claim returned; "" when it is an answer."""
    if not isinstance(answer, Answer):
        return f"returned a {type(answer).__name__}; return decide(...)"
    if answer.verdict not in get_args(ClaimVerdict):
        return f"the verdict {answer.verdict!r:.40}: one of {', '.join(get_args(ClaimVerdict))}"
    texts = (
        answer.because,
        *_make_tuple_or_invalid(answer.collect),
        *_make_tuple_or_invalid(answer.computed),
    )
    if not all(isinstance(text, str) for text in texts):
        return "because, collect and computed are texts"
    if not isinstance(answer.numbers, Mapping):
        return "numbers is a mapping of names to numbers"
    for name, value in answer.numbers.items():
        is_plain = value is None or isinstance(value, float | int | str)
        if not isinstance(name, str) or not is_plain:
            return f"numbers: {name!r:.40} is a {type(value).__name__}, not a number or a text"
        if isinstance(value, int) and abs(value) > _LARGEST:
            return f"numbers: {name!r:.40} has more digits than a number in JSON"
    return ""


def _make_tuple_or_invalid(value: object) -> tuple[object, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    return (None,)


@contextmanager
def make_importable(folder: Path) -> Iterator[None]:
    """Let a file's neighbours be imported, as from a script; of that name in another folder too."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == folder:
                del sys.modules[name]


def judge_claim(claim: Claim, evidence: Evidence, path: Path) -> TriedClaim:
    """Check a claim; it is undecided without what it needs, and errored if it raises."""
    error = ""
    answer: Answer | None = None
    try:
        missing = list(filter(None, map(evidence.missing, claim.needs)))
        if missing:
            because = "; ".join(m.message for m in missing)
            answer = undecided(because, *(m.hint for m in missing))
        else:
            answer, error = run_users_code(path, lambda: claim(evidence), NotCollected)
    except NotCollected as absent:
        answer = answer_metric_not_collected(absent.metric)
    except MissingEvidence as absent:
        answer = undecided(absent.message, *filter(None, [absent.hint]))
    except ProfkitError as mistake:
        error = f"{mistake.message} {mistake.hint}".strip()
    error = error or _find_fault_of_answer(answer)
    tried = TriedClaim(
        name=claim.name, sentence=claim.sentence, who=claim.who, needs=claim.needs, because=error
    )
    if error or answer is None:
        return tried
    return structs.replace(
        tried,
        outcome=answer.verdict,
        because=answer.because,
        numbers=answer.numbers,
        collect=tuple(answer.collect),
        computed=tuple(answer.computed),
    )


def answer_metric_not_collected(metric: MetricName) -> Answer:
    """Return that a metric decides nothing, with the command that collects it."""
    known = CATALOGUE.get(metric)
    if known is None:
        return undecided(f"no metric is called {metric}", "profkit explain")
    commands = []
    if known.section:
        commands.append(f"profkit profile --section {known.section}")
    return undecided(f"{metric} was not collected", *commands)
