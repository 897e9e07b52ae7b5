"""Every variant of a problem  ->  compared with the one that it changes.

# Compare each variant with its parent, and draw the ladder.
profkit ladder --case B -o ladder.png
# Print the table alone.
profkit ladder --case B --brief
# Fail if a step became slower than its parent.
profkit ladder --artifacts runs --json --fail-on slower
# Use the noise that was measured on this GPU.
profkit ladder --history runs/history --markdown --quiet
# Look at records of several GPUs, although that says nothing about a change.
profkit ladder --artifacts h100 --anyway
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.compare import Policy
    from profkit.evidence.ladder import Ladder

GROUP = "Judge a change"
SUMMARY = "Compare every variant with its parent."


@options.verb(GROUP, SUMMARY, forms="brief json markdown quiet", bad="--fail-on applies to a step")
def compare_ladder(
    case: options.Case = None,
    artifacts: options.Artifacts = options.ARTIFACTS,
    anyway: options.Anyway = False,
    fail_on: options.FailOn = None,
    history: options.HistoryDir = HISTORY,
    output: options.Picture = None,
) -> int:
    from profkit.cli import output as out
    from profkit.cli.judging import parse_fail_on, report_failures_and_get_exit_status
    from profkit.evidence.compare import Policy
    from profkit.evidence.noise import KnownSpreads

    fail_if = parse_fail_on(fail_on or ())
    known = KnownSpreads(history)
    ladders = _build_ladders(artifacts, case, Policy(spread_of=known, anyway=anyway), output)
    _print_ladders(ladders)
    problems = list(chain.from_iterable(ladder.problems for ladder in ladders))
    out.print_errors([*problems, *known.problems], quiet=options.FORM.quiet)
    steps = chain.from_iterable(ladder.steps for ladder in ladders)
    comparisons = [step.change for step in steps if step.change]
    if problems:
        worst = options.COULD_NOT
    else:
        worst = options.DONE
    if not fail_if:
        return worst
    return max(worst, report_failures_and_get_exit_status(comparisons, fail_if))


def _build_ladders(
    artifacts: Path, case: str | None, policy: Policy, output: Path | None
) -> list[Ladder]:
    """Return the ladder of each recorded case, the only one drawn where that is asked for."""
    from profkit.cli import sources
    from profkit.cli.output import require_writable_output_path
    from profkit.cli.pictures import import_plots
    from profkit.evidence.ladder import build_ladder
    from profkit.reports.isolated import ROOM

    # Of many reports: the library keeps six times the bytes of each that it opens.
    ROOM.forbid_reading_here()
    evidence = sources.open_evidence(artifacts)
    if case:
        cases = [case]
    else:
        cases = evidence.list_cases_with_record()
    if not cases:
        raise ProfkitError(f"no run record in {artifacts}", "profkit profile --all")
    if output and len(cases) > 1:
        raise ProfkitError(
            f"one picture shows one of {len(cases)} cases", f"--case {cases[0]} -o {output}"
        )
    ladders = [build_ladder(evidence, name, policy) for name in cases]
    if output:
        plots = import_plots()
        plots.save(plots.ladder(ladders[0]), require_writable_output_path(output))
    return ladders


def _print_ladders(ladders: list[Ladder]) -> None:
    from profkit.cli.output import print_blocks
    from profkit.evidence.ladder import LaddersDocument
    from profkit.show.views import comparison as views

    if options.FORM.brief:
        show_ladder = views.show_ladder_table
    else:
        show_ladder = views.show_ladder_steps
    blocks = chain.from_iterable(map(show_ladder, ladders))
    print_blocks(blocks, LaddersDocument(ladders=tuple(ladders)))
