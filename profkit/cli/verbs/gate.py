"""Two folders of records  ->  may this go in: nothing slower, nothing wrong, nothing untried.

# Fail if a variant is slower or wrong at one case.
profkit gate base/artifacts artifacts --case B
# Write a job summary.
profkit gate base/artifacts --markdown
# Fail also if nothing could be decided, and print JSON.
profkit gate old/artifacts --strict --quiet --json
# Judge by the noise that was measured on this GPU.
profkit gate base/artifacts --history runs/history
# Find the commit that made it slower, under git bisect run.
profkit gate ../good/artifacts --bisect
# Compare results of nvbench, pytest-benchmark or Google Benchmark.
profkit gate base.json head.json
"""

from __future__ import annotations

from pathlib import Path

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import is_file, is_folder, is_there
from profkit.records.paths import HISTORY

_SKIP = 125  # git bisect run: this commit cannot be tested


GROUP = "Serve agents and CI"
SUMMARY = "Fail if HEAD is wrong or slower than BASE, in CI."


@options.verb(GROUP, SUMMARY, forms="json markdown quiet", bad="something is slower or wrong")
def run_gate(
    base: Path = typer.Argument(
        ..., metavar="BASE", help="Name the artifacts of the target branch."
    ),
    head: Path = typer.Argument(
        Path("artifacts"),
        metavar="HEAD",
        help="Name the artifacts of the proposed change. Default: artifacts.",
    ),
    case: options.Case = None,
    strict: bool = typer.Option(
        False, "--strict", help="Exit with 2 also if nothing can be decided."
    ),
    history: options.HistoryDir = HISTORY,
    bisect: bool = typer.Option(
        False, "--bisect", help="Exit with 125 instead of 2, so that git bisect skips the commit."
    ),
) -> int:
    """Unchanged machine code is never judged by time.

    Of the rest it says the smallest change that it would have seen, and whether a difference comes
    from the code, the method, the machine or noise.
    """
    from profkit.cli import sources
    from profkit.cli.output import print_blocks, say, say_each
    from profkit.evidence.gate import judge_gate
    from profkit.evidence.noise import KnownSpreads
    from profkit.evidence.runs import Evidence
    from profkit.evidence.stats import ALPHA
    from profkit.show.views.history import gate_blocks

    try:
        if is_file(base) and not is_folder(head):
            return _gate_benchmarks(base, head, strict)
        for folder in (base, head):
            _require_folder(folder)
        known = KnownSpreads(history, ALPHA).read_all()
        before, after = (Evidence(x, headers=sources.find_headers(x)) for x in (base, head))
        report = judge_gate(before, after, case, strict, known)
    except ProfkitError as error:
        if not bisect:
            raise
        say(error)
        return _SKIP
    print_blocks(gate_blocks(report), report)
    if bisect and report.status == options.COULD_NOT:
        left = _SKIP
    else:
        left = report.status
    reasons = (ProfkitError(f"exit status {left}: {reason}") for reason in report.reasons)
    say_each([*known.problems, *reasons], quiet=options.FORM.quiet)
    return left


def _gate_benchmarks(base: Path, head: Path, strict: bool) -> int:
    """Print what two results of another benchmark tool say; return the exit status."""
    from profkit.cli.output import print_blocks, say_each
    from profkit.evidence.benchmarks import judge_benchmarks
    from profkit.show.views.history import gate_blocks

    report = judge_benchmarks(base, head, strict)
    print_blocks(gate_blocks(report), report)
    reasons = (ProfkitError(f"exit status {report.status}: {why}") for why in report.reasons)
    say_each(reasons, quiet=options.FORM.quiet)
    return report.status


def _require_folder(folder: Path) -> None:
    """Raise a ProfkitError where there is no such folder, or no such file of a benchmark tool."""
    if folder.suffix == ".json" and not is_there(folder):
        raise ProfkitError(f"{folder}: no such file", "name two results of one tool")
    if not is_folder(folder):
        raise ProfkitError(f"{folder}: no such folder", "git worktree add base origin/main")
