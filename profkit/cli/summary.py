"""One variant against its baseline and the references  ->  a summary for a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import sources
from profkit.cli.judging import BAD, COULD_NOT, Artifacts, Case, print_blocks
from profkit.cli.options import Json, Markdown
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.runs import Evidence
    from profkit.evidence.verify import GateResult

_STATUS = {"keep": 0, "no gain proven": 0, "reject": BAD, "undecided": COULD_NOT}


def register(app: typer.Typer) -> None:
    """Add this file's verb."""
    app.command()(report)


def report(
    variant: Annotated[str, typer.Argument(help="A variant: stage2, or stage2.B.")],
    against: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The baseline; what its header changes if left out."),
    ] = None,
    case: Case = None,
    gate: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Acceptance gates: your own file of claims."),
    ] = None,
    artifacts: Artifacts = Path("artifacts"),
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Stale runs, other GPUs, clocks and ncu versions too.")
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """One variant: decision, time, counters, what changed, gates; for a pull request."""
    from profkit.evidence.runs import Evidence
    from profkit.evidence.summary import summarize
    from profkit.show.summary import summary

    if json and markdown:
        raise ProfkitError("--json and --markdown are two answers", "give one of them")
    evidence = sources.evidence(artifacts)
    name, cases = _cases(evidence, variant, case)
    gates = _gates(gate or [], Evidence(artifacts) if anyway else evidence)
    found = [summarize(evidence, name, c, against, gates, anyway) for c in cases]
    document = {"schema": "profkit.summary/1", "summaries": [s.to_json() for s in found]}
    print_blocks((b for s in found for b in summary(s)), document if json else None, markdown)
    raise typer.Exit(max(_STATUS[s.decision] for s in found))


def _cases(evidence: Evidence, variant: str, case: str | None) -> tuple[str, list[str]]:
    """The variant's id and the cases at which it was recorded."""
    name, _, own = variant.partition(".")
    if own or case:
        return name, [own or case or ""]
    cases = [c for v, c in evidence.names() if v == name]
    if not cases:
        known = sorted({v for v, _ in evidence.names()})
        hint = f"recorded: {', '.join(known)}" if known else f"profkit profile --variant {name}"
        raise ProfkitError(f"no run of {name} in {evidence.root}", hint)
    return name, cases


def _gates(files: list[Path], evidence: Evidence) -> list[GateResult]:
    from profkit.evidence.verify import verify

    found = verify(files, evidence)
    for file in found:
        if file.error or not file.gates:
            raise ProfkitError(
                f"--gate {file.path}: {file.error or 'has no gate'}", "gate(name, [claims])"
            )
    return [g for file in found for g in file.gates]
