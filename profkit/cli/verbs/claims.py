"""Files of claims  ->  what holds of what was recorded.

# Test the claims in these files against the records in artifacts.
profkit claims analyses/*.py
# Test claims against other records, for a pull request.
profkit claims mine.py --artifacts runs --markdown
# Print the outcome as JSON.
profkit claims mine.py --json --quiet
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_path_there

if TYPE_CHECKING:
    from profkit.units import ExitStatus


GROUP = "Judge a change"
SUMMARY = "Test claims about recorded runs."


@options.verb(GROUP, SUMMARY, forms="json markdown quiet", bad="a claim fails or a gate is not met")
def try_claims(
    files: list[Path] | None = typer.Argument(
        None, metavar="FILES...", help="Give Python files of claims."
    ),
    artifacts: options.Artifacts = options.ARTIFACTS,
) -> int:
    if not files:
        raise ProfkitError("no file of claims given", "profkit claims analyses/*.py")
    return _verify_and_print_files(files, artifacts)


def _verify_and_print_files(files: Sequence[Path], artifacts: Path) -> ExitStatus:
    from profkit.cli import sources
    from profkit.cli.output import print_blocks, print_errors
    from profkit.evidence import claims as trying
    from profkit.evidence.runs import Evidence
    from profkit.reports.isolated import ROOM
    from profkit.show.views.comparison import show_claims

    # Of many reports: the library keeps six times the bytes of each that it opens.
    ROOM.forbid_reading_here()
    for file in files:
        sources.refuse_file_of_another_verb(file, "claims")
    evidence = Evidence(artifacts)
    results = trying.verify_claim_files(files, evidence)
    if not options.FORM.quiet:
        tried = chain.from_iterable(file.claims for file in results)
        needs = set(chain.from_iterable(claim.needs for claim in tried))
        print_errors(sources.make_errors_of_stale_runs(artifacts, needs))
    lost = [file for file in results if not is_path_there(file.path)]
    print_errors(
        ProfkitError(f"{file.path}: {file.error}", "name a file of claims") for file in lost
    )
    told = [file for file in results if file not in lost]
    print_blocks(show_claims(told) if told else (), trying.ClaimsDocument(files=tuple(results)))
    return trying.choose_exit_status(results)
