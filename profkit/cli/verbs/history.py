"""Everything that was ever measured  ->  what changed when, by which commit, and was it real.

# Add the newest records to the history, after a profile.
profkit history --add
# Add every record that was ever committed.
profkit history --log --artifacts artifacts
# Show when a variant became faster or slower, and draw it.
profkit history champion --case B
profkit history stage2 --case B -o history.png
# Name the commit of the records, and print JSON.
profkit history --add --commit HEAD~2 --quiet --json
# Read another history.
profkit history --history runs/history --markdown
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.history import History


GROUP = "Judge a change"
SUMMARY = "Show when performance changed, and which commit changed it."


@options.verb(GROUP, SUMMARY, forms="json markdown quiet")
def show_history(
    subject: str | None = typer.Argument(
        None, metavar="VARIANT", help="Name a variant: stage2 or stage2.B. Default: all."
    ),
    case: options.Case = None,
    history: options.HistoryDir = HISTORY,
    artifacts: options.Artifacts = options.ARTIFACTS,
    add: bool = typer.Option(
        False, "--add", help="First add the records and diagnoses in --artifacts."
    ),
    log: bool = typer.Option(
        False, "--log", help="First add every record in the git log of --artifacts."
    ),
    commit: str | None = typer.Option(
        None, metavar="HASH", help="Name the commit of records that do not name one; with --add."
    ),
    output: options.Picture = None,
) -> int:
    """Each run is compared with the one before it on the same GPU, at one false alarm in a thousand."""
    from profkit.cli import sources
    from profkit.cli.output import print_blocks, print_errors, require_writable_output_path
    from profkit.cli.pictures import import_plots
    from profkit.evidence.history import History
    from profkit.evidence.noise import HistoryDocument
    from profkit.show.views.history import show_history_steps

    kept = History(history)
    problems = list(_add_committed_runs(kept, artifacts) if log else ())
    if add:
        problems += _add_recorded_runs(kept, artifacts, commit)
    name, _, at = (subject or "").partition(".")
    steps, unreadable = sources.read_history_steps(history, name, at or case or "")
    problems += unreadable
    if output:
        plots = import_plots()

        plots.save(plots.history_steps(steps), require_writable_output_path(output))
    print_blocks(show_history_steps(steps), HistoryDocument(steps=tuple(steps)))
    print_errors(problems, quiet=options.FORM.quiet)
    if problems or not steps:
        return options.COULD_NOT
    return options.DONE


def _add_committed_runs(kept: History, artifacts: Path) -> Iterable[ProfkitError]:
    from profkit.cli.lab import read_code_hashes
    from profkit.cli.output import print_note
    from profkit.evidence.commits import list_committed_records

    runs, problems = list_committed_records(artifacts, read_code_hashes)
    new = kept.select_runs_to_add(runs)
    kept.append_rows(new)
    print_note(f"{kept.root}: {len(new)} of {len(runs)} committed records added")
    return problems


def _add_recorded_runs(
    kept: History, artifacts: Path, commit: str | None
) -> Iterable[ProfkitError]:
    from profkit.cli import sources
    from profkit.cli.output import print_note
    from profkit.evidence.commits import find_ci_commit, resolve_commit_where_git_is
    from profkit.evidence.history import add_artifacts_to_history
    from profkit.reports.isolated import ROOM

    # Of many reports: the library keeps six times the bytes of each that it opens.
    ROOM.forbid_reading_here()
    named: str | None
    if commit:
        named = resolve_commit_where_git_is(artifacts, commit)
        origin = "option"
    else:
        named = find_ci_commit(dict(os.environ))
        origin = "environment"
    added = add_artifacts_to_history(kept, sources.open_evidence(artifacts), named, origin)
    print_note(f"{kept.root}: {added.runs} runs and {added.launches} launches added")
    return added.problems
