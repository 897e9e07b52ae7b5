"""Did it help, and is it true: compare, verify, ledger."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from profkit.cli import complete
from profkit.cli.inputs import sources
from profkit.cli.options import Json, Markdown, Quiet, say, write_to
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.comparison.compare import Change
    from profkit.evidence.comparison.ladder import Ladder
    from profkit.show.text.blocks import Block

BAD, COULD_NOT = 1, 2
FAIL_ON = ("slower", "finding", "resource")
Artifacts = Annotated[
    Path, typer.Option(metavar="DIR", help="Where records and reports of variants are.")
]
Picture = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw it too: .png, .svg or .pdf."),
]
Case = Annotated[
    str | None,
    typer.Option(metavar="CASE", help="Only this case.", autocompletion=complete.cases),
]
Before = Annotated[
    str | None,
    typer.Argument(
        help="A variant, run record, report or folder of them.", autocompletion=complete.sides
    ),
]
After = Annotated[
    str | None, typer.Argument(help="The same, changed.", autocompletion=complete.sides)
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHAT",
        help=f"Exit 1 on any of: {', '.join(FAIL_ON)}.",
        autocompletion=complete.one_of(*FAIL_ON),
    ),
]


def register(app: typer.Typer) -> None:
    """Add this file's verbs."""
    app.command()(compare)
    app.command()(verify)
    app.command()(ledger)


def compare(
    before: Before = None,
    after: After = None,
    case: Case = None,
    ladder: Annotated[
        bool, typer.Option("--ladder", help="All variants, each against its parent.")
    ] = False,
    artifacts: Artifacts = Path("artifacts"),
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Across GPUs, clocks, ncu versions and cases too.")
    ] = False,
    fail_on: FailOn = None,
    every: Annotated[bool, typer.Option("--all", help="Every metric that moved.")] = False,
    output: Picture = None,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """What changed from BEFORE to AFTER, and whether it is real."""
    from profkit.show.views import comparison as changes

    wanted = _wanted(fail_on or [], json and markdown)
    if ladder:
        if before or after:
            raise ProfkitError("--ladder takes no BEFORE and AFTER", "profkit compare --ladder")
        found = _ladders(artifacts, case, anyway, output)
        document = {"schema": "profkit.ladders/1", "ladders": [x.to_json() for x in found]}
        blocks = (b for x in found for b in changes.ladder(x))
        print_blocks(blocks, document if json else None, markdown)
        raise typer.Exit(_ladders_status(found, wanted, quiet))
    if output:
        raise ProfkitError("-o draws a ladder", "profkit compare --ladder --case B -o ladder.png")
    if not (before and after):
        raise ProfkitError("two runs are needed", "profkit compare stage1 stage2, or --ladder")
    from profkit.evidence.comparison.select import compare as compare_sides

    sides = compare_sides(before, after, case, sources.evidence(artifacts), anyway)
    if not quiet:
        _say_problems(sides.problems)
    shown = 10_000 if every else changes.MOVED_SHOWN
    print_blocks(changes.compared(sides, shown), sides.to_json() if json else None, markdown)
    raise typer.Exit(max(status(sides.changes, wanted), COULD_NOT if sides.problems else 0))


def _wanted(fail_on: list[str], two_forms: bool) -> set[str]:
    if two_forms:
        raise ProfkitError("--json and --markdown are two answers", "give one of them")
    wanted = {word for given in fail_on for word in given.split(",")}
    if unknown := wanted - set(FAIL_ON):
        raise ProfkitError(f"--fail-on {', '.join(sorted(unknown))}: not known",
                           f"one of {', '.join(FAIL_ON)}")  # fmt: skip
    return wanted


def status(changes: Iterable[Change], wanted: set[str]) -> int:
    """2 when something could not be compared, else 1 when AFTER is bad as asked, else 0.

    An AFTER that is wrong is bad, whether asked or not; without timing nothing can be slower, and
    a gate on it has not been tried. Samples that are no times are nothing to compare.
    """
    worst = 0
    for change in changes:
        wrong_after = any(
            r.code in ("wrong", "sanitizer") and r.sentence.startswith(change.after)
            for r in change.refusals
        )
        untried = change.bad_samples or ("slower" in wanted and change.time is None)
        if not change.compared:
            worst = max(worst, BAD if wrong_after else COULD_NOT)
        elif untried:
            worst = COULD_NOT
        elif _is_bad(change, wanted):
            worst = max(worst, BAD)
    return worst


def _is_bad(change: Change, wanted: set[str]) -> bool:
    slower = change.time is not None and change.time.answer == "slower"
    finding = any(f.what == "new" for launch in change.launches for f in launch.findings)
    resource = any(r.worse for r in change.resources)
    found = {"slower": slower, "finding": finding, "resource": resource}
    return any(found[what] for what in wanted)


def _ladders(artifacts: Path, case: str | None, anyway: bool, output: Path | None) -> list[Ladder]:
    """The ladder of each case that was recorded; one of them drawn where that is asked for."""
    from profkit.evidence.comparison.ladder import ladder as build

    evidence = sources.evidence(artifacts)
    recorded = {c for v, c in evidence.names() if (artifacts / f"{v}.{c}.json").is_file()}
    cases = [case] if case else sorted(recorded)
    if not cases:
        raise ProfkitError(f"no run record in {artifacts}", "profkit profile --all")
    if output and len(cases) > 1:
        raise ProfkitError(f"one picture of {len(cases)} cases", f"--case {cases[0]} -o {output}")
    found = [build(evidence, c, anyway) for c in cases]
    if output:
        from profkit.show import plots

        plots.save(plots.ladder(found[0]), write_to(output))
    return found


def _ladders_status(ladders: Iterable[Ladder], wanted: set[str], quiet: bool) -> int:
    problems = [p for x in ladders for p in x.problems]
    if not quiet:
        _say_problems(problems)
    steps = [s.change for x in ladders for s in x.steps if s.change]
    return max(status(steps, wanted) if wanted else 0, COULD_NOT if problems else 0)


def verify(
    files: Annotated[list[Path], typer.Argument(help="Files of claims: your own Python files.")],
    artifacts: Artifacts = Path("artifacts"),
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Claims and acceptance gates, tried on what was recorded."""
    from profkit.evidence.claims import verify as trying
    from profkit.evidence.runs.runs import Evidence
    from profkit.show.views import claims as judged

    _wanted([], json and markdown)
    results = trying.verify(files, Evidence(artifacts))
    needs = {need for file in results for one in file.claims for need in one.claim.needs}
    if not quiet:
        _say_problems(sources.stale(artifacts, needs))
    print_blocks(judged.verified(results), trying.to_json(results) if json else None, markdown)
    raise typer.Exit(trying.exit_status(results))


def ledger(
    artifacts: Artifacts = Path("artifacts"),
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
    from dataclasses import asdict

    from profkit.evidence.ledger import calibration as scoring
    from profkit.evidence.ledger import ledger as books
    from profkit.show.views import claims as judged

    _wanted([], json and markdown)
    path = file or artifacts / books.NAME
    if update:
        new = books.update(sources.evidence(artifacts), path)
        if not quiet:
            typer.echo(
                f"{path}: {len(new.predictions)} predictions and {len(new.outcomes)} outcomes added",
                err=True,
            )
            _say_problems(new.problems)
    kept = books.read_ledger(path)
    found = scoring.scores(kept)
    if output:
        from profkit.show import plots

        plots.save(plots.ledger(found), write_to(output))
    table = scoring.calibration(found)
    document = {
        "schema": "profkit.scores/1",
        "scores": [
            {"prediction": asdict(s.prediction), "outcome": asdict(s.outcome)} for s in found
        ],
        "calibration": [asdict(c) for c in table],
        "damaged": list(kept.damaged),
    }
    print_blocks(judged.ledger(kept, found, table), document if json else None, markdown)
    if update and new.problems:
        raise typer.Exit(COULD_NOT)


def _say_problems(problems: Iterable[ProfkitError]) -> None:
    """What could not be read, on stderr, two lines each: the rest goes on."""
    for problem in problems:
        say(problem)


def print_blocks(
    blocks: Iterable[Block], document: dict[str, Any] | None, as_markdown: bool
) -> None:
    """Blocks as text or Markdown; or, where there is one, the document."""
    from profkit.show.text import blocks as form
    from profkit.show.views.diagnosis import console
    from profkit.show.views.document import dumps

    if document is not None:
        print(dumps(document))
    elif as_markdown:
        print(form.to_markdown(blocks), end="")
    else:
        print(form.to_text(blocks, console()), end="")
