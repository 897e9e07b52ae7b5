"""Files of claims  ->  what holds of what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import ARTIFACTS, Artifacts, Json, Markdown, Quiet
from profkit.cli.output import one_form, print_blocks, say_each
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError


def verify_claims(
    files: Annotated[list[Path], typer.Argument(help="Files of claims: your own Python files.")],
    artifacts: Artifacts = ARTIFACTS,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Claims and acceptance gates, tried on what was recorded."""
    from profkit.evidence.claims import verify as trying
    from profkit.evidence.runs.runs import Evidence
    from profkit.show.views import claims as judged

    one_form(json, markdown)
    for file in files:
        sources.refuse_other(file, "verify")
    evidence = Evidence(artifacts)
    results = trying.verify_claim_files(files, evidence)
    needs = {need for file in results for claim in file.claims for need in claim.claim.needs}
    if not quiet:
        say_each(sources.stale(evidence, needs))
    lost = [file for file in results if not file.path.exists()]
    say_each(ProfkitError(f"{file.path}: {file.error}", "name a file of claims") for file in lost)
    told = [file for file in results if file not in lost]
    print_blocks(
        judged.verified(told) if told else (),
        trying.claims_json(results) if json else None,
        markdown,
    )
    raise typer.Exit(trying.exit_status(results))


VERB = Verb(
    run=verify_claims,
    bad="a claim fails or a gate is not met",
    examples=(
        "profkit verify analyses/*.py",
        "profkit verify mine.py --artifacts runs --markdown",
        "profkit verify mine.py --json --quiet",
    ),
)
