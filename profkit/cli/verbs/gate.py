"""Two folders of records  ->  may this go in: nothing slower, nothing wrong, nothing untried.

# Fail if a variant is slower or wrong at one case.
profkit gate base/artifacts artifacts --case B
# Write a job summary.
profkit gate base/artifacts --markdown
# Fail also if nothing could be decided, and print JSON.
profkit gate old/artifacts --strict --quiet --json
# Use the noise that was measured on this GPU.
profkit gate base/artifacts --history runs/history
# Find the commit that made it slower, under git bisect run.
profkit gate ../good/artifacts --bisect
# Compare results of nvbench, pytest-benchmark or Google Benchmark.
profkit gate base.json head.json
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_file, is_folder, is_path_there
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.gate import GateReport
    from profkit.units import ExitStatus

_SKIP = 125  # git bisect run: this commit cannot be tested


GROUP = "Serve agents and CI"
SUMMARY = "Fail if HEAD is wrong or slower than BASE, in CI."


Base = Annotated[
    Path, typer.Argument(metavar="BASE", help="Name the artifacts of the target branch.")
]
Head = Annotated[
    Path,
    typer.Argument(
        metavar="HEAD",
        help="Name the artifacts of the proposed change. Default: artifacts.",
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Exit with 2 also if nothing can be decided.")
]
Bisect = Annotated[
    bool,
    typer.Option(
        "--bisect", help="Exit with 125 instead of 2, so that git bisect skips the commit."
    ),
]


@options.verb(GROUP, SUMMARY, forms="json markdown quiet", bad="something is slower or wrong")
def run_gate(
    base: Base,
    head: Head = Path("artifacts"),
    case: options.Case = None,
    strict: Strict = False,
    history: options.HistoryDir = HISTORY,
    bisect: Bisect = False,
) -> int:
    """Unchanged machine code is never judged by time.

    Of the rest it says the smallest change that it would have seen, and whether a difference comes
    from the code, the method, the machine or noise.
    """
    from profkit.cli.output import print_error

    try:
        if is_file(base) and not is_folder(head):
            return _judge_and_print_benchmarks(base, head, strict)
        report, problems = _judge_folders(base, head, case, strict, history)
    except ProfkitError as error:
        if not bisect:
            raise
        print_error(error)
        return _SKIP
    status = report.status
    if bisect and status == options.COULD_NOT:
        status = _SKIP
    _print_gate(report, status, problems)
    return status


def _judge_folders(
    base: Path, head: Path, case: str | None, strict: bool, history: str | Path
) -> tuple[GateReport, Sequence[ProfkitError]]:
    """Judge the records of two folders; return what was found, and what of the history is unread."""
    from profkit.cli import sources
    from profkit.evidence.gate import judge_head_against_base
    from profkit.evidence.noise import KnownSpreads
    from profkit.evidence.runs import Evidence
    from profkit.evidence.stats import ALPHA

    for folder in (base, head):
        _require_records_or_benchmark_file(folder)
    known = KnownSpreads(history, ALPHA).read_history()
    before = Evidence(base, headers=sources.find_source_files(base))
    after = Evidence(head, headers=sources.find_source_files(head))
    return judge_head_against_base(before, after, case, strict, known), known.problems


def _print_gate(report: GateReport, status: int, problems: Iterable[ProfkitError] = ()) -> None:
    """Print the answer; on stderr what could not be read, and why the exit status is what it is."""
    from profkit.cli.output import print_blocks, print_errors
    from profkit.show.views.history import show_gate_report

    print_blocks(show_gate_report(report), report)
    reasons = (ProfkitError(f"exit status {status}: {reason}") for reason in report.reasons)
    print_errors([*problems, *reasons], quiet=options.FORM.quiet)


def _judge_and_print_benchmarks(base: Path, head: Path, strict: bool) -> ExitStatus:
    """Print what two results of another benchmark tool say; return the exit status."""
    from profkit.evidence.benchmarks import judge_benchmarks

    report = judge_benchmarks(base, head, strict)
    _print_gate(report, report.status)
    return report.status


def _require_records_or_benchmark_file(folder: Path) -> None:
    """Raise a ProfkitError where there is no such folder, or no such file of a benchmark tool."""
    if folder.suffix == ".json" and not is_path_there(folder):
        raise ProfkitError(f"{folder}: no such file", "name two results of one tool")
    if not is_folder(folder):
        raise ProfkitError(f"{folder}: no such folder", "git worktree add base origin/main")
