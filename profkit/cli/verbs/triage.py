"""A program, or a recording of it  ->  where its step goes, and what to do about it first.

profkit triage -- python train.py             # watched, then counted
profkit triage -o step.triage --budget 60 --timeout 300 -- python train.py
profkit triage trace.json.gz                  # of torch.profiler, no GPU needed
profkit triage trace.json.gz --step-ms 16.5   # what a plain run takes
profkit triage run.sqlite --range train_step --json --quiet    # of nsys
profkit triage rank0.json.gz rank1.json.gz --markdown    # a trace a rank
profkit triage --ranks all -- torchrun --nproc-per-node 2 train.py
profkit triage trace.json.gz --page step.html # with the step's timeline
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from json import dumps
from pathlib import Path
from tempfile import gettempdir

from profkit.cli import options
from profkit.cli.options import argument, flag
from profkit.cli.output import note, print_blocks, say, spinner
from profkit.cli.sources import is_triage, refuse_other
from profkit.cli.targets import watched
from profkit.errors import ProfkitError
from profkit.files import (
    cannot_write,
    check_output,
    make_folder,
    move_folder,
    temporary_folder,
    write_bytes,
    write_text,
)
from profkit.measure import timeline as recorder
from profkit.program import counts as counting
from profkit.program.counts import Counts
from profkit.program.document import NAME, triage_document
from profkit.program.ranks import gpu_of, only_ranks
from profkit.program.readers import injected, store
from profkit.program.recorded import judge_recordings, kept_report
from profkit.program.timeline import Timeline
from profkit.program.triage import Triage, triage_timeline
from profkit.reports.figures import base_name
from profkit.show.views.triage import triaged

INSTEAD = {".html": "--page {}", ".json": "--json > {}", ".md": "--markdown > {}"}
INSTEAD[".htm"] = INSTEAD[".html"]
RECORDINGS = {".json", ".gz", ".sqlite", ".triage", ".nsys-rep"}


@options.verb("Understand a program", forms="json markdown quiet")
def triage_program(
    what: list[str] = argument("RECORDING or -- COMMAND...", "A trace, or what to run.", ...),
    range_: str = flag("--range NAME", "The NVTX range that is a step.", ""),
    step_ms: float | None = flag("--step-ms MS", "A step's time without profiler.", None, min=0.0),
    ranks: str = flag("all|N,...", "Of a distributed program: which ranks.", "all"),
    budget: float = flag("S", "Seconds for counters; 0 takes none.", 180.0, min=0),
    timeout: float = flag("S", "Seconds for the run that is watched.", 600.0, min=1),
    output: Path | None = flag("--output -o DIR", "Keep timeline and answer there.", None),
    page: Path | None = flag("FILE", "Write it as an HTML page too.", None),
) -> int:
    """Where a whole program's step goes, and what to do first."""
    _may_write(output, page, what)
    recordings = _recordings(what)
    with _place(output) as folder:
        if recordings:
            answer, counts = judge_recordings(recordings, ranks, range_, step_ms)
        else:
            timeline = only_ranks(_record(what, timeout), ranks)
            answer, counts = triage_timeline(timeline, range_, step_ms), None
        if budget and not recordings:
            counts = _count(what, answer, budget, folder / "counters.ncu-rep")
            answer = triage_timeline(answer.timeline, range_, step_ms, counts.gains)
        counts = _report_kept(counts, folder, output)
        content = triage_document(answer, counts)
        if output:
            store.write(answer.timeline, folder)
            write_text(folder / NAME, dumps(content, indent=1, allow_nan=False))
    if page:
        from profkit.show.page import PageProgram, program_page

        name = content["program"]["command"] or content["program"]["how"]
        write_text(page, program_page(PageProgram(name, answer, content)))
    print_blocks(triaged(content), content)
    return options.DONE


@contextmanager
def _place(output: Path | None) -> Iterator[Path]:
    """A folder that becomes the output, whole, when the block ends well; gone where none is wanted."""
    if output:
        make_folder(output.parent)
    with ExitStack() as stack:
        try:
            place = stack.enter_context(temporary_folder(output.parent if output else None))
        except OSError as error:
            raise cannot_write(output.parent if output else gettempdir(), error) from error
        folder = place / "triage"
        folder.mkdir()
        yield folder
        if output:
            move_folder(folder, output)
            note(f"{output}: kept")


def _may_write(output: Path | None, page: Path | None, what: Sequence[str]) -> None:
    """Raise a ProfkitError where something else would be overwritten, or nothing could be."""
    if page:
        check_output(page, what)
    if output and output.suffix.lower() in INSTEAD:
        raise ProfkitError(
            f"-o {output}: keeps a folder, no file of that kind",
            f"for the file: {INSTEAD[output.suffix.lower()].format(output)}; for the folder: -o "
            f"{output.with_suffix('.triage')}",
        )
    if output and output.exists() and not is_triage(output):
        raise ProfkitError(f"-o {output}: is there already", "name a folder that is not there")


def _recordings(what: Sequence[str]) -> list[Path]:
    paths = [Path(word) for word in what]
    known = [p for p in paths if p.suffix in RECORDINGS or p.is_dir()]
    recorded = len(known) == len(paths)
    for path in paths if recorded else paths[:1]:
        if recorded or not os.access(path, os.X_OK):  # what may be run is a command
            refuse_other(path, "triage")
    return paths if recorded else []


def _record(command: Sequence[str], timeout: float) -> Timeline:
    echo = None if options.FORM.quiet else sys.stderr.buffer
    with temporary_folder() as folder, spinner() as progress:
        progress("timeline")
        done = recorder.record_timeline(command, folder, timeout, echo)
        timeline = injected.read_injected(folder)
    notes = (*timeline.notes, done.note) if done.note else timeline.notes
    note(f"timeline: {done.seconds:.1f} s")
    return replace(timeline, command=" ".join(command), notes=notes)


def _count(command: Sequence[str], answer: Triage, budget: float, report: Path) -> Counts:
    """Return counters of the groups that matter; why there are none, where there are none."""
    groups = answer.groups
    device = gpu_of(answer.process) if len(answer.timeline.processes) > 1 else None
    names = [base_name(g.name) for g in counting.wanted(groups)]
    if not names:
        return Counts(notes=("no kernel to count",))
    try:
        with watched(report.with_suffix(".log"), program=False) as words:
            done = recorder.count_kernels(command, names, report, budget, words, device)
            note(f"counters: {len(done.kernels)} launches, {done.seconds:.1f} s")
            counted = counting.read_counts(report, groups)
        recorder.packed_report(report)
    except ProfkitError as error:  # the timeline is an answer too
        say(error)
        return Counts(notes=(f"nothing was counted: {error.message}",))
    if device is None:
        return counted
    text = (
        f"counters are rank {answer.process.rank}'s (GPU {device}); the other ranks waited in "
        "their collectives, which were not replayed; NCCL's watchdog allows 10 minutes"
    )
    return replace(counted, notes=(*counted.notes, text))


def _report_kept(counts: Counts | None, folder: Path, output: Path | None) -> Counts | None:
    """Return the counters with the place of their report: beside the answer, or where it was."""
    if counts is None or not counts.report:
        return counts
    read = Path(counts.report)
    if output is None:
        return counts if read.parent != folder else replace(counts, report="")
    if read.parent != folder:
        write_bytes(folder / read.name, read.read_bytes())
    report = kept_report(folder)
    return replace(counts, report=str(output / report.name) if report else "")
