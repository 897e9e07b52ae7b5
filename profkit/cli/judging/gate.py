"""Two folders of records  ->  may this go in: nothing slower, nothing wrong, nothing untried."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.inputs import sources
from profkit.cli.options import COULD_NOT, Case, Json, Markdown, Quiet
from profkit.cli.output import one_form, print_blocks, say, say_each
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError
from profkit.records.artifacts import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.gate.report import GateReport

_SKIP = 125  # git bisect run: this commit cannot be tested
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
    ] = HISTORY,
    bisect: Annotated[
        bool, typer.Option("--bisect", help="Exit 125, not 2: git bisect skips the commit.")
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Did anything that changed get slower or wrong from BASE to HEAD?

    Unchanged machine code is never judged by time. Of the rest: the smallest change that would
    have been seen, and whether a difference is the code's, the method's, the machine's or noise.
    """
    from profkit.show.views.history import gate_blocks

    one_form(json, markdown)
    try:
        for folder in (base, head):
            if not folder.is_dir():
                raise ProfkitError(f"{folder}: no such folder", "git worktree add base origin/main")
        spreads, problems = _spreads(history)
        report = _judged((base, head), spreads, case, strict)
    except ProfkitError as error:
        if not bisect:
            raise
        say(error)
        raise typer.Exit(_SKIP) from error
    print_blocks(gate_blocks(report), report.to_json() if json else None, markdown)
    left = _SKIP if bisect and report.status == COULD_NOT else report.status
    if not quiet:
        say_each(problems)
        for reason in report.reasons:
            say(ProfkitError(f"exit status {left}: {reason}"))
    raise typer.Exit(left)


def _judged(
    folders: tuple[Path, Path], spreads: dict[str, float], case: str | None, strict: bool
) -> GateReport:
    from profkit.evidence.gate.gate import GateSide, judge_gate
    from profkit.evidence.runs.runs import Evidence

    base, head = (GateSide(Evidence(x), sources.files_beside(x), spreads) for x in folders)
    return judge_gate(base, head, case, strict)


def _spreads(history: str) -> tuple[dict[str, float], list[ProfkitError]]:
    """GPU -> what its processes differ by, and what of the history cannot be read; without one: none.

    A gate without pyarrow assumes what a gate without a history does.
    """
    if "://" not in history and not Path(history).is_dir():
        return {}, []
    from profkit.evidence.history.dataset import History
    from profkit.evidence.history.noise import process_spreads, spread_for

    kept = History(history)
    try:
        runs, wrong = kept.runs()
    except ProfkitError as error:
        return {}, [error]
    twins, bad = kept.twins()
    measured = process_spreads(runs, twins)
    return {gpu: spread_for(spread) for gpu, spread in measured.items()}, wrong + bad


VERB = Verb(
    run=run_gate,
    bad="something is slower or wrong",
    examples=(
        "profkit gate base/artifacts artifacts --case B",
        "profkit gate base/artifacts --markdown        # for the job summary",
        "profkit gate old/artifacts --strict --quiet --json",
        "profkit gate ../good/artifacts --bisect        # git bisect run profkit gate ...",
        "profkit gate base/artifacts --history runs/history",
    ),
)
