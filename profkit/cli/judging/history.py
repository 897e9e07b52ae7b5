"""Everything that was ever measured  ->  what changed when, by which commit, and was it real."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import (
    ARTIFACTS,
    COULD_NOT,
    Artifacts,
    Case,
    HistoryDir,
    Json,
    Markdown,
    Picture,
    Quiet,
)
from profkit.cli.output import note, one_form, print_blocks, say_each, write_to
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError
from profkit.records.artifacts import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.history.dataset import History
    from profkit.evidence.history.steps import HistoryDocument, HistoryStep


def show_history(
    subject: Annotated[
        str | None, typer.Argument(help="A variant, or stage2.B; without it, all.")
    ] = None,
    case: Case = None,
    history: HistoryDir = HISTORY,
    artifacts: Artifacts = ARTIFACTS,
    add: Annotated[
        bool, typer.Option("--add", help="First add the artifacts: records and diagnoses.")
    ] = False,
    log: Annotated[
        bool, typer.Option("--log", help="First add every record in the artifacts' git log.")
    ] = False,
    commit: Annotated[
        str | None,
        typer.Option(metavar="HASH", help="Of the code, for records that do not say (--add)."),
    ] = None,
    output: Picture = None,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """What changed when, by which commit, and was it real.

    Each run stands against the one before it on the same GPU, at one false alarm in a thousand.
    """
    from profkit.evidence.history.dataset import History
    from profkit.show.views.history import history_blocks

    one_form(json, markdown)
    kept = History(history)
    problems = list(_from_log(kept, artifacts, quiet) if log else ())
    problems += _from_artifacts(kept, artifacts, commit, quiet) if add else ()
    name, _, at = (subject or "").partition(".")
    steps, unreadable = read_steps(kept, name, at or case or "")
    problems += unreadable
    document: HistoryDocument = {
        "schema": "profkit.history/1",
        "steps": [s.to_json() for s in steps],
    }
    print_blocks(history_blocks(steps), document if json else None, markdown)
    if output:
        from profkit.show import plots

        plots.save(plots.history_steps(steps), write_to(output))
    say_each(problems, quiet=quiet)
    if problems or not steps:
        raise typer.Exit(COULD_NOT)


def read_steps(
    kept: History, variant: str = "", case: str = ""
) -> tuple[list[HistoryStep], list[ProfkitError]]:
    """The steps of a variant at a case ("": of all), and what cannot be read of the history."""
    from profkit.evidence.history.noise import process_spreads
    from profkit.evidence.history.steps import steps

    runs, bad_runs = kept.runs()
    twins, bad_twins = kept.twins()
    chosen = [r for r in runs if variant in ("", r.variant) and case in ("", r.case)]
    return steps(chosen, process_spreads(runs, twins)), bad_runs + bad_twins


def _from_log(kept: History, artifacts: Path, quiet: bool) -> Iterable[ProfkitError]:
    """Add every record in the git log; what could not be read."""
    from profkit.measure.commits import committed_runs

    runs, problems = committed_runs(artifacts)
    new = kept.unknown(runs)
    kept.append(new)
    note(f"{kept.root}: {len(new)} of {len(runs)} committed records added", quiet=quiet)
    return problems


def _from_artifacts(
    kept: History, artifacts: Path, commit: str | None, quiet: bool
) -> Iterable[ProfkitError]:
    """Add the records and reports of a folder; what could not be read."""
    from profkit.evidence.history.dataset import add_artifacts
    from profkit.measure.commits import commit_at_hand, commit_named

    named = commit_named(artifacts, commit) if commit else commit_at_hand(dict(os.environ))
    origin = "option" if commit else "environment"
    added = add_artifacts(kept, sources.evidence_of(artifacts), named, origin)
    note(f"{kept.root}: {added.runs} runs and {added.launches} launches added", quiet=quiet)
    return added.problems


VERB = Verb(
    run=show_history,
    examples=(
        "profkit history --add                         # after a profile",
        "profkit history --log --artifacts artifacts   # every record ever committed",
        "profkit history champion --case B",
        "profkit history stage2 --case B -o history.png # steps, intervals, machines",
        "profkit history --add --commit HEAD~2 --quiet --json",
        "profkit history --history runs/history --markdown",
    ),
)
