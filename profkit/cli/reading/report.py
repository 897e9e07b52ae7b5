"""For somebody else: a page of any reports, or one variant's summary for a pull request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import complete
from profkit.cli.inputs import sources
from profkit.cli.inputs.launches import choose_launches, read_patterns
from profkit.cli.options import (
    ARTIFACTS,
    BAD,
    COULD_NOT,
    Anyway,
    Artifacts,
    Case,
    Json,
    Kernel,
    Markdown,
    Quiet,
    Top,
    Where,
)
from profkit.cli.output import note, one_form, print_blocks, say_each, write_to
from profkit.cli.verb import Verb
from profkit.errors import ProfkitError, did_you_mean

if TYPE_CHECKING:
    from profkit.evidence.claims.verify import GateResult
    from profkit.evidence.runs.runs import Evidence
    from profkit.evidence.summary import SummaryDocument
    from profkit.reports.reader import Reports
    from profkit.show.page.history import PageHistory
    from profkit.show.page.page import Page
    from profkit.show.page.program import PageProgram

_STATUS = {"keep": 0, "no gain proven": 0, "reject": BAD, "undecided": COULD_NOT}
ROWS = 50  # on a page; about 40 kB each
What = Annotated[
    list[str],
    typer.Argument(
        metavar="REPORTS...|VARIANT",
        help="With -o: reports, folders and globs. Without: a variant, stage2 or stage2.B.",
        autocompletion=complete.sides,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write a page in one HTML file."),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="The page's heading.")]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The variant's baseline; what its header changes if left out.",
        autocompletion=complete.recorded,
    ),
]
Gates = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="Acceptance gates of the variant: your own file of claims."),
]


def write_report(
    what: What,
    output: Output = None,
    title: Title = None,
    kernel: Kernel = None,
    where: Where = None,
    top: Top = None,
    quiet: Quiet = False,
    against: Against = None,
    case: Case = None,
    gate: Gates = None,
    artifacts: Artifacts = ARTIFACTS,
    anyway: Anyway = False,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """A page of reports, or one variant's summary for a pull request.

    With -o a page with everything in it, for somebody without profkit: it needs no network.
    Without, one variant: decision, time, counters, what changed, gates.
    """
    of_page = {"--title": title, "--kernel": kernel, "--where": where, "--top": top}
    of_variant = {"--against": against, "--case": case, "--gate": gate, "--anyway": anyway,
                  "--json": json, "--markdown": markdown}  # fmt: skip
    if output is not None:
        _none_of(of_variant, "for one variant, not for a page", "leave it out, or -o")
        folders = [word for word in what if sources.is_triage(word) or _is_history(word)]
        patterns = [word for word in what if word not in folders]
        write_to(output, patterns)
        programs = [_program(word) for word in folders if sources.is_triage(word)]
        histories = [_history(word) for word in folders if not sources.is_triage(word)]
        reports, complete = read_patterns(patterns, quiet=quiet) if patterns else (_nothing(), True)
        chosen = choose_launches(reports, kernel, where).launches
        from profkit.show.page import page as pages

        page = pages.render(reports, chosen, title or pages.TITLE, top or ROWS, programs, histories)
        _save(page, output, quiet)
        if not complete or not (folders or any(run.status == "ok" for run in chosen)):
            raise typer.Exit(COULD_NOT)
        return
    _none_of(of_page, "for a page, not for one variant", "profkit report REPORTS -o page.html")
    request = _Asked(_variant(what), against, case, gate or (), artifacts, anyway)
    _summarize(request, json=json, markdown=markdown)


def _is_history(word: str) -> bool:
    """Whether it is a history, as profkit history keeps it."""
    return any(Path(word).glob("runs/*.parquet"))


def _history(word: str) -> PageHistory:
    from profkit.cli.judging.history import read_steps
    from profkit.evidence.history.dataset import History
    from profkit.show.page.history import PageHistory

    steps, problems = read_steps(History(word))
    say_each(problems)
    return PageHistory(word, tuple(steps))


def _program(word: str) -> PageProgram:
    from profkit.program import readers as recordings
    from profkit.program.document import read_document
    from profkit.program.triage import triage_timeline
    from profkit.show.page.program import PageProgram

    return PageProgram(
        word, triage_timeline(recordings.read_timeline(Path(word))), read_document(Path(word))
    )


def _nothing() -> Reports:
    from profkit.reports.reader import Reports

    return Reports(())


def _none_of(flags: Mapping[str, object], why: str, hint: str) -> None:
    """Raise a ProfkitError for a flag that does not belong to what was asked for."""
    misplaced = [flag for flag, value in flags.items() if value]
    if misplaced:
        raise ProfkitError(f"{', '.join(misplaced)}: {why}", hint)


def _variant(what: Sequence[str]) -> str:
    """The one variant that was named."""
    names = [name for name in what if not ("/" in name or Path(name).exists())]
    if len(names) < len(what):
        named = next(name for name in what if name not in names)
        raise ProfkitError(f"{named}: a page of reports needs a place", "-o page.html")
    if len(names) > 1:
        raise ProfkitError(f"{len(names)} variants: one at a time", f"profkit report {names[0]}")
    return names[0]


def _save(page: Page, output: Path, quiet: bool) -> None:
    from profkit.show.page import page as pages

    pages.save_page(page, output)
    if quiet:
        return
    say_each(ProfkitError(line) for line in page.notes)
    left = f"; {page.left_out} more with --top {page.launches + page.left_out}"
    size = len(page.html.encode()) / 1e6
    more = left if page.left_out else ""
    note(f"{output}: {page.launches} rows, {size:.1f} MB{more}", quiet=quiet)


@dataclass(frozen=True)
class _Asked:
    """What was asked of one variant: the flags of `report` by their names."""

    variant: str
    against: str | None
    case: str | None
    gate: Sequence[Path]
    artifacts: Path
    anyway: bool


def _summarize(request: _Asked, *, json: bool, markdown: bool) -> None:
    """Print decision, time, counters, what changed and gates, and leave with the status."""
    from profkit.evidence.runs.runs import Evidence
    from profkit.evidence.summary import summarize_variant
    from profkit.show.views.claims import ladder_summary

    one_form(json, markdown)
    evidence = sources.evidence_of(request.artifacts)
    name, cases = _cases(evidence, request.variant, request.case)
    gates = _gates(request.gate, Evidence(request.artifacts) if request.anyway else evidence)
    summaries = [
        summarize_variant(evidence, name, c, request.against, gates, request.anyway) for c in cases
    ]
    document: SummaryDocument = {
        "schema": "profkit.summary/1",
        "summaries": [s.to_json() for s in summaries],
    }
    blocks = chain.from_iterable(map(ladder_summary, summaries))
    print_blocks(blocks, document if json else None, markdown)
    raise typer.Exit(max(_STATUS[s.decision] for s in summaries))


def _cases(evidence: Evidence, variant: str, case: str | None) -> tuple[str, list[str]]:
    """The variant's id and the cases at which it was recorded."""
    name, _, own = variant.partition(".")
    if own or case:
        return name, [own or case or ""]
    cases = [c for v, c in evidence.names() if v == name]
    if not cases:
        known = sorted({v for v, _ in evidence.names()})
        again = f"profkit profile --variant {name}"
        hint = did_you_mean(name, known, "profkit list shows what is recorded") if known else again
        raise ProfkitError(f"no run of {name} in {evidence.root}", hint)
    return name, cases


def _gates(files: Sequence[Path], evidence: Evidence) -> list[GateResult]:
    from profkit.evidence.claims.verify import verify_claim_files

    results = verify_claim_files(files, evidence)
    for file in results:
        if file.error or not file.gates:
            raise ProfkitError(
                f"--gate {file.path}: {file.error or 'has no gate'}", "gate(name, [claims])"
            )
    return [g for file in results for g in file.gates]


VERB = Verb(
    run=write_report,
    bad="the variant is rejected",
    examples=(
        "profkit report runs/ -o page.html             # one page, to open, send and print",
        "profkit report *.ncu-rep -o page.html --title 'Attention' --top 20 --quiet",
        "profkit report runs/ artifacts/history -o page.html  # with all that was measured",
        "profkit report runs/ --output page.html --kernel flash --where 'time > 1e-5'",
        "profkit report step.triage step.triage/counters.ncu-rep -o step.html",
        "profkit report stage2.B --markdown            # one variant, for a pull request",
        "profkit report stage2 --against stage1 --case B --gate gates.py --json",
        "profkit report stage2 --artifacts h100 --anyway",
    ),
)
