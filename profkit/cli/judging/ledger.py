"""The ledger  ->  how the gains that rules predicted came out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import ARTIFACTS, COULD_NOT, Artifacts, Json, Markdown, Picture, Quiet
from profkit.cli.output import note, one_form, print_blocks, say_each, write_to
from profkit.cli.verb import Verb

if TYPE_CHECKING:
    from profkit.evidence.ledger.calibration import ScoresDocument


def show_ledger(
    artifacts: Artifacts = ARTIFACTS,
    file: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="The ledger, if elsewhere.")
    ] = None,
    update: Annotated[
        bool, typer.Option("--update", help="First append what the artifacts say anew.")
    ] = False,
    output: Picture = None,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Gains that rules predicted, and how they came out."""
    from profkit.evidence.ledger import calibration as scoring
    from profkit.evidence.ledger import ledger as books
    from profkit.records.store import plain
    from profkit.show.views import claims as judged

    one_form(json, markdown)
    path = file or artifacts / books.NAME
    if update:
        new = books.update(sources.evidence_of(artifacts), path)
        added = f"{len(new.predictions)} predictions and {len(new.outcomes)} outcomes added"
        note(f"{path}: {added}", quiet=quiet)
        say_each(new.problems, quiet=quiet)
    kept = books.read_ledger(path)
    scores = scoring.score_ledger(kept, scoring.edges_today(sources.evidence_of(artifacts)) or None)
    if output:
        from profkit.show import plots

        plots.save(plots.ledger(scores), write_to(output))
    table = scoring.calibration(scores)
    document: ScoresDocument = {
        "schema": "profkit.scores/1",
        "scores": plain(scores),
        "calibration": plain(table),
        "damaged": list(kept.damaged),
    }
    print_blocks(judged.ledger_table(kept, scores, table), document if json else None, markdown)
    if update and new.problems:
        raise typer.Exit(COULD_NOT)


VERB = Verb(
    run=show_ledger,
    examples=(
        "profkit ledger",
        "profkit ledger --update --quiet               # after a profile",
        "profkit ledger --artifacts runs --ledger ledger.jsonl --json",
        "profkit ledger --markdown --output ledger.svg",
    ),
)
