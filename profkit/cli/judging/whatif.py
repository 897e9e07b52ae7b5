"""A variant and changed counts  ->  how much faster it should become, before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import ARTIFACTS, Artifacts, Case, Json, Markdown
from profkit.cli.output import one_form, print_blocks
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.runs.runs import Evidence, Run
    from profkit.model.whatif import CounterChange, WhatifDocument


def ask_whatif(
    variant: Annotated[str, typer.Argument(metavar="VARIANT", help="A recorded variant.")],
    changes: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="CHANGES",
            help="Counts that change: 'inst_exp/32, shared_wavefronts*0.25, blocks*4'. Without it, "
            "what the variant's header says moves against its parent.",
        ),
    ] = None,
    case: Case = None,
    artifacts: Artifacts = ARTIFACTS,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """How much a change of its counts would bring a variant."""
    from profkit.model.whatif import parse_changes, whatif_launch
    from profkit.records.store import plain
    from profkit.show.views.claims import answers

    one_form(json, markdown)
    evidence = sources.evidence_of(artifacts)
    if changes is not None:
        subject, counts = variant, parse_changes(changes)
    else:
        subject, counts = _moves(evidence, artifacts, variant)
    runs = _runs(evidence, subject, case)
    estimates = [(run, whatif_launch(run.launch, counts)) for run in runs]
    document: WhatifDocument = {
        "schema": "profkit.whatif/1",
        "variant": subject,
        "changes": plain(counts),
        "answers": [
            {"case": run.case, "time_s": run.row["time"], "expect": plain(expect)}
            for run, expect in estimates
        ],
    }
    print_blocks(answers(subject, counts, estimates), document if json else None, markdown)


def _runs(evidence: Evidence, variant: str, case: str | None) -> list[Run]:
    cases = [c for v, c in evidence.names() if v == variant and case in (None, c)]
    if not cases:
        at = f" at case {case}" if case else ""
        raise ProfkitError(
            f"no run of {variant}{at} in {evidence.root}", f"profkit profile --variant {variant}"
        )
    return [evidence.load(variant, at) for at in cases]


def _moves(
    evidence: Evidence, artifacts: Path, variant: str
) -> tuple[str, tuple[CounterChange, ...]]:
    """The parent of a variant and what its header says will move, as changes of the parent."""
    from profkit.evidence.predictions.moves import parse_moves
    from profkit.model.whatif import COUNTS, CounterChange

    files = {name.rpartition("/")[2]: file for name, file in sources.headers(artifacts).items()}
    if variant not in files:
        known = [v for v, _ in evidence.names() if v == variant]
        why = "say what changes: --with" if known else "profkit list names the variants"
        raise ProfkitError(f"no kernel file of {variant} beside {artifacts}", why)
    header = files[variant].header
    moves = parse_moves(" ".join(header.moves), variant)
    changes = tuple(CounterChange(m.metric, "*", m.factor) for m in moves if m.metric in COUNTS)
    if header.after is None or not changes:
        raise ProfkitError(
            f"{variant}: its header has no parent, or moves no count that the model knows",
            "say what changes: --with 'shared_wavefronts*0.25'",
        )
    return header.after, changes


VERB = Verb(
    run=ask_whatif,
    examples=(
        'profkit whatif stage2 --with "shared_wavefronts*0.25, inst_exp/32" --case B',
        "profkit whatif stage3b                        # what its header says moves",
        "profkit whatif stage3b --artifacts artifacts --json",
        'profkit whatif exp2fold --with "blocks*4" --markdown',
    ),
)
