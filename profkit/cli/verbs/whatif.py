"""A recorded variant or a report, and changed counts  ->  how much faster it would be.

# Estimate a variant with a quarter of the wavefronts and fewer exponentials.
profkit whatif stage2 "shared_wavefronts*0.25, inst_exp/32" --case B
# Estimate a kernel of a report with half the DRAM traffic.
profkit whatif my.ncu-rep "dram_bytes*0.5" --kernel flash
# Estimate the changes that the variant's own header predicts.
profkit whatif stage3b --artifacts artifacts
# Write the estimate for a program or for a pull request.
profkit whatif stage2 "blocks*4" --json
profkit whatif stage2 "blocks*4" --markdown --quiet
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_folder, is_path_there
from profkit.records.paths import SUFFIXES, is_csv_table

if TYPE_CHECKING:
    from profkit.evidence.runs import Evidence
    from profkit.model.whatif import CounterChange, ExpectedLaunch
    from profkit.units import VariantName

GROUP = "Judge a change"
SUMMARY = "Estimate a kernel's speed-up if its counters changed."
HEADER = "header"

Subject = Annotated[
    str,
    typer.Argument(
        metavar="SUBJECT",
        help="Name a recorded variant, or a report.",
        autocompletion=options.list_comparable_sides,
    ),
]
Changes = Annotated[
    str,
    typer.Argument(
        metavar="CHANGES",
        help="Give changes: 'inst_exp/32, blocks*4'. Default: those in the variant's header.",
        show_default=False,
    ),
]


@options.verb(GROUP, SUMMARY, forms="json markdown quiet")
def estimate_change(
    subject: Subject,
    changes: Changes = HEADER,
    case: options.Case = None,
    kernel: options.Kernel = None,
    artifacts: options.Artifacts = options.ARTIFACTS,
) -> int:
    from profkit.cli.output import print_blocks, refuse_flags
    from profkit.model.whatif import WhatifDocument, parse_counter_changes
    from profkit.show.views.comparison import show_predicted_times

    if _looks_like_report_path(subject):
        refuse_flags(
            {"--case": case}, "does not apply to a report", "--kernel REGEX chooses launches"
        )
        if changes == HEADER:
            hint = f"profkit whatif {subject} 'shared_wavefronts*0.25'"
            raise ProfkitError(f"{subject}: give the changes to estimate", hint)
        name = subject
        counts = parse_counter_changes(changes)
        expected = list(_predict_times_of_report(subject, counts, kernel))
    else:
        refuse_flags(
            {"--kernel": kernel},
            "does not apply to a variant",
            "--case CASE chooses its launches",
        )
        name, counts, expected = _predict_times_of_variant_or_parent(
            subject, changes, case, artifacts
        )
    document = WhatifDocument(variant=name, changes=tuple(counts), answers=tuple(expected))
    print_blocks(show_predicted_times(name, counts, expected), document)
    return options.DONE


def _looks_like_report_path(subject: str) -> bool:
    path = Path(subject)
    return (
        subject.endswith(SUFFIXES)
        or is_folder(path)
        or (is_path_there(path) and is_csv_table(path))
    )


def _predict_times_of_report(
    report: str, counts: Sequence[CounterChange], kernel: str | None
) -> Iterator[ExpectedLaunch]:
    from profkit.cli.launches import read_and_judge_launches
    from profkit.model.launch import StrictLaunch
    from profkit.model.whatif import (
        ExpectedLaunch,
        bound_speedup_of_changes,
        predict_speedup_of_changes,
    )

    for judged in read_and_judge_launches([report], kernel).launches:
        launch = StrictLaunch(judged.values)
        expectation = predict_speedup_of_changes(launch, counts)
        bound = bound_speedup_of_changes(launch, counts)
        case = judged.case or judged.kernel
        yield ExpectedLaunch(case, judged.time, expectation, judged.kernel, bound)


def _predict_times_of_variant_or_parent(
    variant: str, changes_or_header: str, case: str | None, artifacts: Path
) -> tuple[VariantName, tuple[CounterChange, ...], list[ExpectedLaunch]]:
    from profkit.cli import sources
    from profkit.model.whatif import (
        ExpectedLaunch,
        bound_speedup_of_changes,
        parse_counter_changes,
        predict_speedup_of_changes,
    )

    evidence = sources.open_evidence(artifacts)
    if changes_or_header == HEADER:
        variant, counts = _read_parent_and_declared_changes(evidence, variant)
    else:
        counts = parse_counter_changes(changes_or_header)
    runs = [evidence.load(*name) for name in evidence.expand_run_name(variant, case)]
    expected = []
    for run in runs:
        expectation = predict_speedup_of_changes(run.launch, counts)
        bound = bound_speedup_of_changes(run.launch, counts)
        expected.append(ExpectedLaunch(run.case, run.row["time"], expectation, at_most=bound))
    return variant, counts, expected


def _read_parent_and_declared_changes(
    evidence: Evidence, variant: str
) -> tuple[VariantName, tuple[CounterChange, ...]]:
    """Return the parent of a variant, and what its header says will move as changes of the parent."""
    from profkit.evidence.moves import parse_expected_changes
    from profkit.model.whatif import COUNTS, CounterChange

    names = {name.rpartition("/")[2]: name for name in evidence.headers}
    if variant not in names:
        known = [name for name, _ in evidence.list_names() if name == variant]
        if known:
            hint = "give the changes"
        else:
            hint = "profkit list names the variants"
        raise ProfkitError(f"no kernel file of {variant} next to {evidence.root}", hint)
    header = evidence.headers[names[variant]].header
    moves = parse_expected_changes(" ".join(header.moves), variant)
    counts = tuple(CounterChange(m.metric, "*", m.factor) for m in moves if m.metric in COUNTS)
    if header.after is None or not counts:
        problem = f"{variant}: its header names no parent, or no count that the model knows"
        hint = f"give the changes: profkit whatif {variant} 'shared_wavefronts*0.25'"
        raise ProfkitError(problem, hint)
    return header.after, counts
