"""Two things of one kind  ->  what changed, and whether it is real.

profkit compare stage1 stage2 --case B --artifacts runs
profkit compare old.ncu-rep new.ncu-rep --all # every metric that moved
profkit compare base/artifacts artifacts --fail-on slower --markdown --quiet
profkit compare base/artifacts artifacts --history runs/history
profkit compare h100/ h200/ --anyway --brief  # across GPUs: only to look
profkit compare a.json.gz b.json.gz           # recordings of a program
profkit compare before.triage after.triage --json
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli import options
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.errors import ProfkitError
    from profkit.evidence.compare import RunComparison
    from profkit.evidence.noise import KnownSpreads
    from profkit.program.change import TriagesDocument

GROUP = "Did it help"
SUMMARY = "Compare variants, reports, recordings or folders: is the change real?"

Before = Annotated[
    str,
    typer.Argument(
        metavar="BEFORE",
        help="Name a variant, run record, report, recording or folder.",
        autocompletion=options.list_known_sides,
    ),
]
After = Annotated[
    str,
    typer.Argument(
        metavar="AFTER",
        help="Name what it became, of the same kind.",
        autocompletion=options.list_known_sides,
    ),
]
Every = Annotated[bool, typer.Option("--all", help="Show every metric that moved.")]


@options.verb(
    GROUP,
    SUMMARY,
    forms="brief json markdown quiet",
    bad="AFTER is wrong, or --fail-on applies",
)
def compare_two(
    before: Before,
    after: After,
    case: options.Case = None,
    artifacts: options.Artifacts = options.ARTIFACTS,
    anyway: options.Anyway = False,
    fail_on: options.FailOn = None,
    every: Every = False,
    history: options.HistoryDir = HISTORY,
) -> int:
    from profkit.cli.judging import read_fail_on, report_comparisons
    from profkit.cli.output import say_each
    from profkit.evidence.compare import Policy
    from profkit.evidence.noise import KnownSpreads
    from profkit.program.sides import compare_recordings

    fail_if = read_fail_on(fail_on or ())
    if (programs := compare_recordings(before, after)) is not None:
        return _report_programs(programs, fail_if)
    known: KnownSpreads = KnownSpreads(history)
    policy = Policy(spread_of=known, anyway=anyway)
    problems, comparisons = _compare_runs((before, after), case, artifacts, policy, every)
    say_each([*problems, *known.problems], quiet=options.FORM.quiet)
    if problems:
        worst = options.COULD_NOT
    else:
        worst = options.DONE
    return max(worst, report_comparisons(comparisons, fail_if))


def _compare_runs(
    sides: tuple[str, str], case: str | None, artifacts: Path, policy: Any, every: bool
) -> tuple[list[ProfkitError], list[RunComparison]]:
    """Print what changed; return what cannot be read, and the comparisons."""
    from profkit.cli import output as out
    from profkit.cli import sources
    from profkit.evidence.compare import compare_sides
    from profkit.show.views import comparison as views

    compared = compare_sides(*sides, case, sources.open_evidence(artifacts), policy)
    if options.FORM.brief and not options.FORM.json:
        out.print_plain(views.brief_comparison(compared))
    else:
        if every:
            shown = 10_000
        else:
            shown = views.MOVED_SHOWN
        out.print_blocks(views.compared_runs(compared, shown), compared)
    return list(compared.problems), list(compared.changes)


def _report_programs(comparison: TriagesDocument, fail_if: set[str]) -> int:
    """Print what became of each finding of a program; return the exit status."""
    from profkit.cli.output import print_blocks
    from profkit.show.views.triage import compared_triages

    print_blocks(compared_triages(comparison), comparison)
    is_slower = "slower" in fail_if and comparison["answer"] == "slower"
    has_new_finding = "finding" in fail_if and bool(comparison["new"])
    if is_slower or has_new_finding:
        return options.BAD
    return options.DONE
