"""Files of claims, or the ledger of predictions  ->  what holds of what was recorded.

profkit claims analyses/*.py
profkit claims mine.py --artifacts runs --markdown
profkit claims mine.py --json --quiet
profkit claims --ledger                       # gains that rules predicted
profkit claims --ledger --update --quiet      # after a profile
profkit claims --ledger other.jsonl --markdown --output ledger.svg
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_there

GROUP = "Did it help"
SUMMARY = "Test claims, gates and predicted gains against what was recorded."


@options.verb(GROUP, SUMMARY, forms="json markdown quiet", bad="a claim fails or a gate is not met")
def try_claims(
    files: list[Path] | None = typer.Argument(
        None, metavar="FILES...", help="Your own Python files of claims; with --ledger, its file."
    ),
    artifacts: options.Artifacts = options.ARTIFACTS,
    ledger: bool = typer.Option(
        False, "--ledger", help="Gains that rules predicted, and how they came out."
    ),
    update: bool = typer.Option(
        False, "--update", help="First append what the artifacts say anew (--ledger)."
    ),
    output: options.Picture = None,
) -> int:
    from profkit.cli.output import refuse

    if ledger:
        if files and len(files) > 1:
            raise ProfkitError(f"{len(files)} ledgers: one at a time", f"--ledger {files[0]}")
        path = files[0] if files else artifacts / "ledger.jsonl"
        status = _update(path, artifacts) if update else options.DONE
        _score(path, artifacts, output)
        return status
    refuse({"--update": update, "-o": output}, "for the ledger", "profkit claims --ledger")
    if not files:
        raise ProfkitError("no file of claims", "profkit claims analyses/*.py, or --ledger")
    return _try(files, artifacts)


def _try(files: Sequence[Path], artifacts: Path) -> int:
    from profkit.cli import sources
    from profkit.cli.output import print_blocks, say_each
    from profkit.evidence import claims as trying
    from profkit.evidence.runs import Evidence
    from profkit.show.views.comparison import verified

    for file in files:
        sources.refuse_other(file, "claims")
    evidence = Evidence(artifacts)
    results = trying.verify_claim_files(files, evidence)
    if not options.FORM.quiet:
        tried = chain.from_iterable(file.claims for file in results)
        needs = set(chain.from_iterable(claim.claim.needs for claim in tried))
        say_each(sources.stale(artifacts, needs))
    lost = [file for file in results if not is_there(file.path)]
    say_each(ProfkitError(f"{file.path}: {file.error}", "name a file of claims") for file in lost)
    told = [file for file in results if file not in lost]
    print_blocks(verified(told) if told else (), {"schema": "profkit.claims/1", "files": results})
    return trying.exit_status(results)


def _update(path: Path, artifacts: Path) -> int:
    from profkit.cli import sources
    from profkit.cli.output import note, say_each
    from profkit.evidence import ledger

    new = ledger.update(sources.evidence_of(artifacts), path)
    added = f"{len(new.predictions)} predictions and {len(new.outcomes)} outcomes added"
    note(f"{path}: {added}")
    say_each(new.problems, quiet=options.FORM.quiet)
    return options.COULD_NOT if new.problems else options.DONE


def _score(path: Path, artifacts: Path, output: Path | None) -> None:
    from profkit.cli import sources
    from profkit.cli.output import print_blocks, write_to
    from profkit.cli.pictures import import_plots
    from profkit.evidence import ledger
    from profkit.show.views.comparison import ledger_table

    kept = ledger.read_ledger(path)
    edges = ledger.edges_today(sources.evidence_of(artifacts))
    scores = ledger.score_ledger(kept, edges or None)
    if output:
        plots = import_plots()

        plots.save(plots.ledger(scores), write_to(output))
    table = ledger.calibration(scores)
    rows = {"scores": scores, "calibration": table, "damaged": kept.damaged}
    print_blocks(ledger_table(kept, scores, table), {"schema": "profkit.scores/1", **rows})
