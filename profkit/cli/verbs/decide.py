"""One variant  ->  keep it, or not, against the one that it changes.

# Decide whether to keep a variant, compared with its parent.
profkit decide stage2 --case B --markdown
# Compare with another variant, and require the gates of a file too.
profkit decide stage2.B --against stage1 --gate gates.py --json
# Read the records of another folder, on whatever GPU they were made.
profkit decide stage2 --artifacts h100 --anyway --quiet
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_path_there

if TYPE_CHECKING:
    from profkit.evidence.compare import GateResult
    from profkit.evidence.runs import Evidence

GROUP = "Judge a change"
SUMMARY = "Decide whether to keep a variant, by time, counters and gates."
_STATUS = {
    "keep": options.DONE,
    "no gain proven": options.DONE,
    "reject": options.BAD,
    "undecided": options.COULD_NOT,
}

Variant = Annotated[
    str,
    typer.Argument(
        metavar="VARIANT",
        help="Name a recorded variant: stage2 or stage2.B.",
        autocompletion=options.list_recorded_variants,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="ID",
        help="Compare with this variant instead of its parent.",
        autocompletion=options.list_recorded_variants,
    ),
]
Gates = Annotated[
    list[Path] | None,
    typer.Option("--gate", metavar="FILE", help="Require the gates in this file of claims too."),
]


@options.verb(GROUP, SUMMARY, forms="json markdown quiet", bad="the variant is rejected")
def decide_variant(
    variant: Variant,
    case: options.Case = None,
    against: Against = None,
    gate: Gates = None,
    artifacts: options.Artifacts = options.ARTIFACTS,
    anyway: options.Anyway = False,
) -> int:
    from profkit.cli import sources
    from profkit.cli.output import print_blocks
    from profkit.evidence.compare import Policy
    from profkit.evidence.ladder import SummaryDocument, summarize_variant
    from profkit.evidence.runs import Evidence
    from profkit.show.views.comparison import show_ladder_summary

    if "/" in variant or is_path_there(Path(variant)):
        raise ProfkitError(f"{variant}: decide takes a variant", "stage2 or stage2.B")
    evidence = sources.open_evidence(artifacts)
    names = evidence.expand_run_name(variant, case)
    gates = _verify_gates(gate or (), Evidence(artifacts) if anyway else evidence)
    policy = Policy(anyway=anyway)
    summaries = [summarize_variant(evidence, *name, against, gates, policy) for name in names]
    blocks = chain.from_iterable(map(show_ladder_summary, summaries))
    print_blocks(blocks, SummaryDocument(summaries=tuple(summaries)))
    return max(_STATUS[summary.decision] for summary in summaries)


def _verify_gates(files: Sequence[Path], evidence: Evidence) -> list[GateResult]:
    from profkit.evidence.claims import verify_claim_files

    gates: list[GateResult] = []
    for file in verify_claim_files(files, evidence):
        if file.error or not file.gates:
            hint = "gate(name, [claims])"
            raise ProfkitError(f"--gate {file.path}: {file.error or 'contains no gate'}", hint)
        gates += file.gates
    return gates
