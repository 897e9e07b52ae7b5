"""One variant against its baseline and the references  ->  a summary for a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from profkit.cli.inputs import sources
from profkit.cli.judging import BAD, COULD_NOT, print_blocks
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.claims.verify import GateResult
    from profkit.evidence.runs.runs import Evidence

_STATUS = {"keep": 0, "no gain proven": 0, "reject": BAD, "undecided": COULD_NOT}


@dataclass(frozen=True)
class Asked:
    """What was asked of one variant: the flags of `report` by their names."""

    variant: str
    against: str | None
    case: str | None
    gate: Sequence[Path]
    artifacts: Path
    anyway: bool


def write(asked: Asked, *, json: bool, markdown: bool) -> None:
    """Print decision, time, counters, what changed and gates, and leave with the status."""
    from profkit.evidence.runs.runs import Evidence
    from profkit.evidence.summary import summarize
    from profkit.show.views.summary import summary

    if json and markdown:
        raise ProfkitError("--json and --markdown are two answers", "give one of them")
    evidence = sources.evidence(asked.artifacts)
    name, cases = _cases(evidence, asked.variant, asked.case)
    gates = _gates(asked.gate, Evidence(asked.artifacts) if asked.anyway else evidence)
    found = [summarize(evidence, name, c, asked.against, gates, asked.anyway) for c in cases]
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


def _gates(files: Sequence[Path], evidence: Evidence) -> list[GateResult]:
    from profkit.evidence.claims.verify import verify

    found = verify(files, evidence)
    for file in found:
        if file.error or not file.gates:
            raise ProfkitError(
                f"--gate {file.path}: {file.error or 'has no gate'}", "gate(name, [claims])"
            )
    return [g for file in found for g in file.gates]
