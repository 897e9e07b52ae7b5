"""Two folders of records  ->  may this go in: nothing slower, nothing wrong, nothing untried."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import Case, Json, Markdown, Quiet
from profkit.cli.output import one_form, print_blocks, say
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError

Folder = Annotated[Path, typer.Argument(help="The artifacts of the branch that this goes into.")]
Proposed = Annotated[Path, typer.Argument(help="The artifacts of what is proposed.")]


def run_gate(
    base: Folder,
    head: Proposed = Path("artifacts"),
    case: Case = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 2 where nothing can be told, too.")
    ] = False,
    history: Annotated[
        str, typer.Option("--history", metavar="DIR", help="What processes differ by, measured.")
    ] = "history",
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Did anything that changed get slower or wrong from BASE to HEAD?

    Unchanged machine code is never judged by time. Of the rest: the smallest change that would
    have been seen, and whether a difference is the code's, the method's, the machine's or noise.
    """
    from profkit.evidence.gate.gate import GateSide, judge_gate
    from profkit.evidence.runs.runs import Evidence
    from profkit.show.views.history import gate_blocks

    one_form(json, markdown)
    for folder in (base, head):
        if not folder.is_dir():
            raise ProfkitError(f"{folder}: no such folder", "git worktree add base origin/main")
    spreads = _spreads(history)
    sides = [GateSide(Evidence(x), sources.files_beside(x), spreads) for x in (base, head)]
    report = judge_gate(sides[0], sides[1], case, strict)
    print_blocks(gate_blocks(report), report.to_json() if json else None, markdown)
    if not quiet:
        for reason in report.reasons:
            say(ProfkitError(f"exit status {report.status}: {reason}"))
    raise typer.Exit(report.status)


def _spreads(history: str) -> dict[str, float]:
    """GPU -> what its processes differ by; none without a history."""
    if "://" not in history and not Path(history).is_dir():
        return {}
    from profkit.evidence.history.dataset import History
    from profkit.evidence.history.noise import process_spreads, spread_for

    kept = History(history)
    measured = process_spreads(kept.runs()[0], kept.twins()[0])
    return {gpu: spread_for(spread) for gpu, spread in measured.items()}


VERB = Verb(
    run=run_gate,
    bad="something is slower or wrong",
    examples=(
        "profkit gate base/artifacts artifacts --case B",
        "profkit gate base/artifacts --markdown        # for the job summary",
        "profkit gate old/artifacts --strict --quiet --json",
        "profkit gate base/artifacts --history runs/history",
    ),
)
