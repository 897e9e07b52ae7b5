"""Two things of one kind  ->  what changed, and whether it is real.

# Compare two recorded variants at one case.
profkit compare stage1 stage2 --case B --artifacts runs
# Compare two reports, and show every metric that moved.
profkit compare old.ncu-rep new.ncu-rep --all
# Compare two recordings of a program, or two folders that triage kept.
profkit compare a.json.gz b.json.gz
profkit compare before.triage after.triage --json
# Fail a CI job if anything in a folder became slower.
profkit compare base/artifacts artifacts --fail-on slower --markdown --quiet
# Use the noise that was measured on this GPU.
profkit compare base/artifacts artifacts --history runs/history
# Compare two GPUs, which says nothing about a code change.
profkit compare h100/ h200/ --anyway --brief
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.errors import ProfkitError
    from profkit.evidence.compare import RunComparison
    from profkit.evidence.noise import KnownSpreads
    from profkit.program.change import TriagesDocument
    from profkit.units import BeforeAndAfterNames, ComparisonPolicy, ExitStatus

GROUP = "Judge a change"
SUMMARY = "Compare two variants, reports or recordings: is the change real?"

Before = Annotated[
    str,
    typer.Argument(
        metavar="BEFORE",
        help="Name a variant, run record, report, recording, or a folder of them.",
        autocompletion=options.list_comparable_sides,
    ),
]
After = Annotated[
    str,
    typer.Argument(
        metavar="AFTER",
        help="Name what to compare with it, of the same kind.",
        autocompletion=options.list_comparable_sides,
    ),
]
Every = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every metric that moved, and every prediction and resource. Default: the 6 "
        "metrics that matter most.",
    ),
]


@options.verb(
    GROUP,
    SUMMARY,
    forms="brief json markdown quiet",
    bad="AFTER gives wrong results, or --fail-on applies",
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
    """It prints whether AFTER is faster by more than noise, and what became of each finding.

    Then it lists the metrics that moved most. A speed-up comes from timed runs or recordings of a
    program: two .ncu-rep files alone give none.
    """
    from profkit.cli.judging import parse_fail_on, report_failures_and_get_exit_status
    from profkit.cli.output import print_errors
    from profkit.evidence.compare import Policy
    from profkit.evidence.noise import KnownSpreads
    from profkit.program.sides import compare_recordings

    fail_if = parse_fail_on(fail_on or ())
    if (programs := compare_recordings(before, after)) is not None:
        return _print_program_comparison(programs, fail_if)
    known: KnownSpreads = KnownSpreads(history)
    policy = Policy(spread_of=known, anyway=anyway)
    problems, comparisons = _compare_and_print_runs((before, after), case, artifacts, policy, every)
    print_errors([*problems, *known.problems], quiet=options.FORM.quiet)
    if problems:
        worst = options.COULD_NOT
    else:
        worst = options.DONE
    return max(worst, report_failures_and_get_exit_status(comparisons, fail_if))


def _compare_and_print_runs(
    sides: BeforeAndAfterNames,
    case: str | None,
    artifacts: Path,
    policy: ComparisonPolicy,
    every: bool,
) -> tuple[list[ProfkitError], list[RunComparison]]:
    """Print what changed; return what cannot be read, and the comparisons."""
    from profkit.cli import output as out
    from profkit.cli import sources
    from profkit.evidence.compare import compare_sides
    from profkit.show.views import comparison as views

    compared = compare_sides(*sides, case, sources.open_evidence(artifacts), policy)
    if options.FORM.brief and options.FORM.json:
        from profkit.show.views.agents import make_comparison_entry

        out.print_compact_json(make_comparison_entry(compared))
    elif options.FORM.brief:
        out.print_brief(views.write_brief_comparison(compared))
    else:
        out.print_blocks(views.show_comparison(compared, is_complete=every), compared)
    return list(compared.problems), list(compared.changes)


def _print_program_comparison(comparison: TriagesDocument, fail_if: set[str]) -> ExitStatus:
    """Print what became of each finding of a program; return the exit status."""
    from profkit.cli.output import print_blocks
    from profkit.show.views.triage import show_compared_triages

    print_blocks(show_compared_triages(comparison), comparison)
    is_slower = "slower" in fail_if and comparison["answer"] == "slower"
    has_new_finding = "finding" in fail_if and bool(comparison["new"])
    if is_slower or has_new_finding:
        return options.BAD
    return options.DONE
