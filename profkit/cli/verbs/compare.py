"""Two runs, or a ladder of them  ->  what changed, and whether it is real.

profkit compare stage1 stage2 --case B
profkit compare old.ncu-rep new.ncu-rep --all # every metric that moved
profkit compare base/artifacts artifacts --fail-on slower --markdown --quiet
profkit compare base/artifacts artifacts --history runs/history
profkit compare --ladder --artifacts runs --json
profkit compare --ladder --case B -o ladder.png
profkit compare --ladder --case B --brief     # the table alone
profkit compare h100/ h200/ --anyway          # across GPUs: only to look
profkit compare before.triage after.triage    # whole programs
profkit compare stage2.B --decide --markdown  # keep it? for a pull request
profkit compare stage2 --decide --against stage1 --case B --gate gates.py --json
profkit compare stage2 --decide --artifacts h100 --anyway
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from profkit.cli import options, sources
from profkit.cli import output as out
from profkit.cli.options import argument, flag
from profkit.cli.pictures import import_plots
from profkit.errors import ProfkitError
from profkit.evidence.runs import Evidence
from profkit.files import is_there
from profkit.program.change import change
from profkit.program.document import NAME, read_document
from profkit.records.paths import HISTORY, wrong_verb
from profkit.show.views.triage import compared_triages

if TYPE_CHECKING:
    from profkit.evidence.compare import GateResult, Policy, RunComparison

# What cannot be read, and what was compared: the exit status is of both.
_Found = tuple[Sequence[ProfkitError], "Sequence[RunComparison]"]
FAIL_ON = ("slower", "finding", "resource")
_STATUS = {
    "keep": options.DONE,
    "no gain proven": options.DONE,
    "reject": options.BAD,
    "undecided": options.COULD_NOT,
}

Before = Annotated[
    str | None,
    argument(
        "", "A variant, run record, report or folder of them.", autocompletion=options.known_sides
    ),
]
Decide = Annotated[
    bool, flag("--decide", "One variant against what its header changes: keep it or not?")
]
Against = Annotated[
    str | None,
    flag("ID", "--decide: against this one instead.", autocompletion=options.known_recorded),
]
Gates = Annotated[
    list[Path] | None, flag("FILE", "--decide: acceptance gates too: your own file of claims.")
]
FailOn = Annotated[
    list[str] | None,
    flag(
        "WHAT",
        "Exit 1 on any of: slower, finding, resource.",
        autocompletion=options.one_of(*FAIL_ON),
    ),
]


@options.verb(
    "Did it help",
    forms="brief json markdown quiet",
    bad="AFTER is wrong, as bad as --fail-on names, or rejected (--decide)",
)
def judge_change(
    before: Before = None,
    after: str | None = argument(
        "", "The same, changed.", None, autocompletion=options.known_sides
    ),
    case: options.Case = None,
    ladder: bool = flag("--ladder", "All variants, each against its parent.", False),
    decide: Decide = False,
    against: Against = None,
    gate: Gates = None,
    artifacts: options.Artifacts = options.ARTIFACTS,
    anyway: options.Anyway = False,
    fail_on: FailOn = None,
    every: bool = flag("--all", "Every metric that moved.", False),
    history: options.HistoryDir = HISTORY,
    output: options.Picture = None,
) -> int:
    """What changed from BEFORE to AFTER, and whether it is real."""
    from profkit.evidence.compare import Policy, closing
    from profkit.evidence.noise import KnownSpreads

    fail_if = _fail_if(fail_on or ())
    if decide:
        others = {"--ladder": ladder, "--fail-on": fail_on, "--all": every, "-o": output}
        others["--brief"] = options.FORM.brief
        out.refuse(others, "not with --decide", "profkit compare ID --decide")
        if not before or after:
            raise ProfkitError("--decide takes one variant", "the other one is --against ID")
        return _decide(before, against, case, gate or (), artifacts, anyway)
    out.refuse({"--against": against, "--gate": gate}, "of --decide", "profkit compare ID --decide")
    known = KnownSpreads(history)
    policy = Policy(spread_of=known, anyway=anyway)
    if ladder:
        if before or after:
            raise ProfkitError("--ladder takes no BEFORE and AFTER", "profkit compare --ladder")
        problems, judged = _ladders(artifacts, case, policy, output)
    else:
        sides = _two(before, after, output)
        if all(map(sources.is_triage, sides)):
            return _compare_triages(sides, fail_if)
        problems, judged = _compared(sides, case, artifacts, policy, every)
    out.say_each([*problems, *known.problems], quiet=options.FORM.quiet)
    worst = options.COULD_NOT if problems else options.DONE
    for code, reason in closing(judged, fail_if) if fail_if or not ladder else ():
        worst = max(worst, code)
        out.note(f"exit status {code}: {reason}" if code else f"not judged: {reason}")
    return worst


def _fail_if(fail_on: Sequence[str]) -> set[str]:
    """Return what --fail-on names, each flag one word or several with commas."""
    words = set(chain.from_iterable(flag.split(",") for flag in fail_on))
    if unknown := words - set(FAIL_ON):
        problem = f"--fail-on {', '.join(sorted(unknown))}: not known"
        raise ProfkitError(problem, f"one of {', '.join(FAIL_ON)}")
    return words


def _compared(
    sides: tuple[str, str], case: str | None, artifacts: Path, policy: Policy, every: bool
) -> _Found:
    from profkit.evidence.compare import compare_sides
    from profkit.show.views import comparison as changes

    compared = compare_sides(*sides, case, sources.evidence_of(artifacts), policy)
    if options.FORM.brief and not options.FORM.json:
        out.print_plain(changes.brief_comparison(compared))
    else:
        shown = 10_000 if every else changes.MOVED_SHOWN
        out.print_blocks(changes.compared_runs(compared, shown), compared)
    return compared.problems, compared.changes


def _decide(
    variant: str,
    against: str | None,
    case: str | None,
    gate: Sequence[Path],
    artifacts: Path,
    anyway: bool,
) -> int:
    """Keep a variant or not, at each of its cases; the worst of it is the exit status."""
    from profkit.evidence.compare import Policy
    from profkit.evidence.ladder import summarize_variant
    from profkit.show.views.comparison import ladder_summary

    if "/" in variant or is_there(Path(variant)):
        raise ProfkitError(f"{variant}: --decide takes a variant", "stage2 or stage2.B")
    evidence = sources.evidence_of(artifacts)
    names = evidence.named(variant, case)
    gates = _gates(gate, Evidence(artifacts) if anyway else evidence)
    policy = Policy(anyway=anyway)
    found = [summarize_variant(evidence, *name, against, gates, policy) for name in names]
    blocks = chain.from_iterable(map(ladder_summary, found))
    out.print_blocks(blocks, {"schema": "profkit.summary/1", "summaries": found})
    return max(_STATUS[summary.decision] for summary in found)


def _gates(files: Sequence[Path], evidence: Evidence) -> list[GateResult]:
    from profkit.evidence.claims import verify_claim_files

    results = verify_claim_files(files, evidence)
    for file in results:
        if file.error or not file.gates:
            hint = "gate(name, [claims])"
            raise ProfkitError(f"--gate {file.path}: {file.error or 'has no gate'}", hint)
    return list(chain.from_iterable(file.gates for file in results))


def _of_traces(before: str, after: str) -> str:
    kept = {"before.triage": before, "after.triage": after}
    folders = [quote(s) if sources.is_triage(s) else name for name, s in kept.items()]
    left = {name: side for name, side in kept.items() if not sources.is_triage(side)}
    steps = [f"profkit triage {quote(side)} -o {name}" for name, side in left.items()]
    return "; ".join([*steps, f"profkit compare {' '.join(folders)}"])


def _two(before: str | None, after: str | None, output: Path | None) -> tuple[str, str]:
    """The two sides, where there are two that can be compared; of traces, how they are."""
    if output:
        raise ProfkitError("-o draws a ladder", "profkit compare --ladder --case B -o ladder.png")
    if not (before and after):
        raise ProfkitError("two runs are needed", "profkit compare stage1 stage2, or --ladder")
    for side in (before, after):
        if other := wrong_verb(side, "compare"):
            what, hint = other
            of_traces = hint == f"profkit triage {quote(side)}"
            hint = _of_traces(before, after) if of_traces else hint
            raise ProfkitError(f"{side}: is {what}", hint)
    return before, after


def _compare_triages(sides: tuple[str, str], fail_if: set[str]) -> int:
    """Print what became of each promise of a program's triage; the exit status."""
    from profkit.evidence import ledger

    before, after = map(Path, sides)
    comparison = change(read_document(before), read_document(after))
    try:  # kept in a ledger inside of AFTER
        entries = ledger.entries_of_program(before / NAME, after / NAME, comparison)
        ledger.add(after / ledger.NAME, entries)
    except ProfkitError as error:  # what was compared is told all the same
        out.say(error)
    out.print_blocks(compared_triages(comparison), comparison)
    slower = "slower" in fail_if and comparison["answer"] == "slower"
    return options.BAD if slower or ("finding" in fail_if and comparison["new"]) else options.DONE


def _ladders(artifacts: Path, case: str | None, policy: Policy, output: Path | None) -> _Found:
    """Print the ladder of each case that was recorded, one of them drawn where that is asked for."""
    from profkit.evidence.ladder import build_ladder
    from profkit.show.views import comparison as changes

    evidence = sources.evidence_of(artifacts)
    cases = [case] if case else evidence.recorded_cases()
    if not cases:
        raise ProfkitError(f"no run record in {artifacts}", "profkit profile --all")
    if output and len(cases) > 1:
        raise ProfkitError(f"one picture of {len(cases)} cases", f"--case {cases[0]} -o {output}")
    ladders = [build_ladder(evidence, c, policy) for c in cases]
    if output:
        plots = import_plots()

        plots.save(plots.ladder(ladders[0]), out.write_to(output))
    tables = changes.ladder_table if options.FORM.brief else changes.ladder_steps
    blocks = chain.from_iterable(map(tables, ladders))
    out.print_blocks(blocks, {"schema": "profkit.ladders/1", "ladders": ladders})
    problems = list(chain.from_iterable(x.problems for x in ladders))
    rungs = chain.from_iterable(x.steps for x in ladders)
    return problems, [rung.change for rung in rungs if rung.change]
