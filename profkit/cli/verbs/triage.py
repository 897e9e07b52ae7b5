"""A program, or a recording of it  ->  where its step goes, and what to do about it first.

# Run a training script, and say what to fix first.
profkit triage -- python train.py
# Read a recording by torch.profiler; this needs no GPU.
profkit triage trace.json.gz
# Keep the recording, then show where time goes by source line.
profkit triage -o step.triage -- python train.py
profkit triage step.triage --by line
# Record ten seconds of a server that has warmed up, then end it.
profkit triage --after 30 --seconds 10 -- python serve.py
# Record no operators or Python lines, and spend at most a minute on counters.
profkit triage --no-operators --no-lines --budget 60 --timeout 900 -- ./run.sh
# Judge all ranks of a distributed program, or the traces of two of them.
profkit triage --ranks all -- torchrun --nproc-per-node 2 train.py
profkit triage rank0.json.gz rank1.json.gz --markdown
# Read an Nsight Systems export in which an NVTX range marks the steps.
profkit triage run.sqlite --range train_step --step-ms 16.5 --json --quiet
# Look at the findings in a browser, in Perfetto or in speedscope.
profkit triage step.triage --page step.html --open
profkit triage step.triage --trace step.json.gz --speedscope step.speedscope
# Print findings in the same schema as those of a kernel.
profkit triage trace.json.gz --json --schema 2
# Annotate the lines of a pull request.
profkit triage trace.json.gz --format github
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.cli.output import (
    check_format,
    open_in_browser,
    print_blocks,
    print_note,
    refuse_overwriting_evidence,
)
from profkit.cli.sources import is_timeline, is_triage, refuse_other_kind
from profkit.errors import ProfkitError
from profkit.files import (
    check_output,
    copy_file,
    expand_home,
    is_executable,
    is_file,
    is_folder,
    is_there,
    list_folder,
    make_folder,
    make_temporary_folder,
    make_write_error,
    move_folder,
    resolve_path,
    write_text,
)
from profkit.program.counts import Counts
from profkit.program.document import (
    NAME,
    SECOND_NAME,
    SecondTriageDocument,
    TriageDocument,
    convert_to_second_form,
    make_triage_document,
)
from profkit.program.ranks import select_ranks
from profkit.program.readers import store
from profkit.program.readers.gathered import STANDARD_INPUT
from profkit.program.recorded import REPORTS, judge_recordings
from profkit.program.triage import Triage, triage_timeline
from profkit.show.text.blocks import TextLine
from profkit.show.views.triage import ORIGINS, show_triage

if TYPE_CHECKING:
    from profkit.collect.timeline import Window
    from profkit.program.timeline import Timeline

BY = (*ORIGINS, "kernel")
VERSIONS = (1, 2)  # of profkit.triage
INSTEAD = {".html": "--page {}", ".json": "--json > {}", ".md": "--markdown > {}"}
INSTEAD[".htm"] = INSTEAD[".html"]
RECORDINGS = {".json", ".gz", ".sqlite", ".triage", ".nsys-rep", ".zip"}


GROUP = "Understand a program"
SUMMARY = "Find where a program's step spends time, and what to fix first."

What = Annotated[
    list[str],
    typer.Argument(
        metavar="RECORDINGS... | -- COMMAND...",
        help=(
            "Give a trace by torch.profiler, an SQLite export by nsys or a folder that -o kept; one "
            "per rank, or a .zip of them; - reads standard input. Give a command after -- to run "
            "and record it."
        ),
    ),
]
StepRange = Annotated[
    str,
    typer.Option(
        "--range",
        metavar="NAME",
        help="Name the range that marks one step; * matches anything. Default: find the steps.",
    ),
]
StepTime = Annotated[
    float | None,
    typer.Option(
        "--step-ms",
        metavar="MS",
        help="Give the time of one step without a profiler, in ms. Default: estimate it.",
        min=0.0,
    ),
]
Ranks = Annotated[
    str, typer.Option(metavar="N,...", help="Choose ranks of a distributed program: 0,3.")
]
Budget = Annotated[
    float,
    typer.Option(
        metavar="S",
        help="Spend at most S seconds on hardware counters; 0 collects none.",
        min=0,
    ),
]
Timeout = Annotated[
    float, typer.Option(metavar="S", help="Stop the recorded run after S seconds.", min=1)
]
After = Annotated[
    float, typer.Option(metavar="S", help="Start recording S seconds into the run.", min=0)
]
Seconds = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Record for S seconds, then end the program. Default: until it ends.",
        min=0.1,
    ),
]
By = Annotated[
    str,
    typer.Option("--by", metavar="WHAT", help="List GPU time by line, module, operator or kernel."),
]
NoLines = Annotated[
    bool,
    typer.Option("--no-lines", help="Record no Python lines, if recording them slows the program."),
]
NoOperators = Annotated[
    bool,
    typer.Option("--no-operators", help="Record no operators of torch, which slows a few steps."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Keep the recording and the answer in this folder, for later.",
    ),
]
Page = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML page with the timeline.")
]
Trace = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write a trace for Perfetto, with the findings in it."),
]
Speedscope = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write GPU time by call stack, for speedscope."),
]
Schema = Annotated[
    int,
    typer.Option("--schema", metavar="1|2", help="Choose the version of the --json document."),
]


@options.verb(
    GROUP,
    SUMMARY,
    forms="json markdown quiet",
    sections={
        "The step": "range_ step_ms ranks by",
        "Recording a command": "budget timeout after seconds no_lines no_operators",
    },
)
def triage_program(
    what: What,
    range_: StepRange = "",
    step_ms: StepTime = None,
    ranks: Ranks = "all",
    budget: Budget = 180.0,
    timeout: Timeout = 600.0,
    after: After = 0.0,
    seconds: Seconds = None,
    by: By = "kernel",
    no_lines: NoLines = False,
    no_operators: NoOperators = False,
    output: Output = None,
    page: Page = None,
    opens: options.Opens = False,
    trace: Trace = None,
    speedscope: Speedscope = None,
    form: options.Format = None,
    version: Schema = 1,
) -> int:
    """It takes a recording of a program, or a command that it runs and records.

    It prints how long a step takes, how much of that the GPU spends computing, what to change
    (largest expected saving first), and the kernels that take most time.
    """
    check_format(form)
    asked = _Asked(ranks, range_, step_ms, budget, by, version)
    asked.check_options()
    if opens and page is None:
        raise ProfkitError("--open: no page is written", "add --page FILE.html")
    kept = _Kept(output, page, trace, speedscope)
    kept.check_outputs(what)
    if recordings := _list_recordings(what):
        content = _judge_recordings(recordings, asked, kept)
        if form:
            _print_annotations(content, form, what[0])
        else:
            asked.print_answer(content)
    elif form:
        raise ProfkitError(
            "--format needs a recording", "keep it first: profkit triage -o NAME.triage -- ..."
        )
    else:
        from profkit.collect.timeline import Window

        window = Window(after, seconds, timeout, not no_lines, not no_operators)
        _record_and_judge(what, window, asked, kept)
    if opens and page:
        open_in_browser(page)
    return options.DONE


@dataclass(frozen=True)
class _Asked:
    """Which part of a program is judged, and how the answer is printed."""

    ranks: str
    step: str
    step_ms: float | None
    budget: float  # seconds
    by: str  # the table has a row of each
    version: int  # of the document

    def check_options(self) -> None:
        """Raise a ProfkitError for an unknown version or table."""
        if self.version != 1 and not options.FORM.json:
            raise ProfkitError("--schema chooses the version of a document", "add --json")
        if self.version not in VERSIONS:
            raise ProfkitError(f"--schema {self.version}: no such version", "1 or 2")
        if self.by not in BY:
            raise ProfkitError(f"--by {self.by}: no such table", f"one of {', '.join(BY)}")

    def print_answer(self, content: TriageDocument) -> None:
        """Print the answer, as a document in the version that was asked for where JSON was."""
        document: TriageDocument | SecondTriageDocument = content
        if self.version != 1:
            document = convert_to_second_form(content)
        print_blocks(show_triage(content, by=self.by), document)


def _judge_recordings(paths: Sequence[Path], asked: _Asked, kept: _Kept) -> TriageDocument:
    """Judge recordings of one program, a file per rank, and keep what was asked for."""
    answer, counts = judge_recordings(paths, asked.ranks, asked.step, asked.step_ms)
    content = make_triage_document(answer, kept.set_final_report_path(counts or Counts()))
    kept.name = paths[0].name
    kept.keep_recording(answer.timeline, content, counts)
    kept.write_files(answer, content)
    return content


def _print_annotations(content: TriageDocument, form: str, recording: str) -> None:
    """Print each finding at its source line, a line each."""
    from profkit.show.annotations import WRITERS, annotate_step

    print(WRITERS[form](annotate_step(content, recording)), end="")


def _record_and_judge(command: Sequence[str], window: Window, asked: _Asked, kept: _Kept) -> None:
    """Record, judge and print; then count, and print a sharper answer."""
    from profkit.cli import watching

    timeline, ended = watching.record_program(command, window)
    timeline = select_ranks(timeline, asked.ranks)
    kept.keep_timeline(timeline)
    answer = triage_timeline(timeline, asked.step, asked.step_ms)
    counts = None
    if asked.budget and not ended:
        counts = Counts(notes=(watching.UNENDED,))
    content = make_triage_document(answer, counts)
    kept.keep_answer(answer, content)
    if not asked.budget or not ended:
        asked.print_answer(content)
        return
    # One document is one answer: it waits for the counters, unless they do not come.
    one_document = options.FORM.json or options.FORM.markdown
    if one_document:
        with _print_answer_if_interrupted(content, asked):
            counts = _count_kernels(command, answer, asked, kept)
    else:
        asked.print_answer(content)
        sys.stdout.flush()
        print_note(
            "now collecting counters of the important kernels; press Ctrl-C to stop and keep this "
            "answer"
        )
        counts = _count_kernels(command, answer, asked, kept)
    sharper = triage_timeline(timeline, asked.step, asked.step_ms, counts.gains)
    content = make_triage_document(sharper, counts)
    kept.keep_answer(sharper, content)
    if one_document or counts.groups:
        asked.print_answer(content)
    else:
        print_blocks([TextLine(text, "note") for text in counts.notes])


@contextmanager
def _print_answer_if_interrupted(content: TriageDocument, asked: _Asked) -> Iterator[None]:
    """Print the answer that is known if the block does not end well, whatever ends it."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            asked.print_answer(content)


def _count_kernels(command: Sequence[str], answer: Triage, asked: _Asked, kept: _Kept) -> Counts:
    """Collect hardware counters of the kernels that matter, within the budget."""
    from profkit.cli import watching

    with kept.open_report_folder() as folder:
        report = folder / "counters.ncu-rep"
        counts = watching.count_program(command, answer, asked.budget, report)
    if kept.output is None:  # the report went with its folder
        return replace(counts, report="")
    return counts


@dataclass
class _Kept:
    """What is kept of an answer, as soon as it is known: each file whole, or not there."""

    output: Path | None
    page: Path | None
    trace: Path | None
    speedscope: Path | None
    name: str = ""  # of the recording that was read; empty for a command

    def check_outputs(self, what: Sequence[str]) -> None:
        """Raise a ProfkitError where something else would be overwritten, or nothing could be."""
        _check_outputs(self.output, self.page, what)
        for file in (self.trace, self.speedscope):
            if file:
                check_output(file, what)

    def keep_timeline(self, timeline: Timeline) -> None:
        """Keep what was recorded, before anything is made of it."""
        if self.output:
            with _open_output(self.output) as folder:
                store.write_timeline(timeline, folder)

    def keep_answer(self, answer: Triage, content: TriageDocument) -> None:
        """Keep what is known now with the timeline, in place of what was known before."""
        if self.output:
            _write_documents(self.output, content)
        self.write_files(answer, content)

    def keep_recording(
        self, timeline: Timeline, content: TriageDocument, counts: Counts | None
    ) -> None:
        """Keep a recording that was read, its answer, and the report that its counters are from."""
        if self.output is None:
            return
        with _open_output(self.output) as folder:
            store.write_timeline(timeline, folder)
            if counts and counts.report:
                copy_file(counts.report, folder / Path(counts.report).name)
            _write_documents(folder, content)

    def set_final_report_path(self, counts: Counts) -> Counts:
        """Return the counters with the place where their report will be found."""
        if not counts.report or self.output is None:
            return counts
        return replace(counts, report=str(self.output / Path(counts.report).name))

    @contextmanager
    def open_report_folder(self) -> Iterator[Path]:
        """Give a folder for the counters: the one that is kept, or one that goes."""
        if self.output:
            yield self.output
            return
        with make_temporary_folder() as folder:
            yield folder

    def write_files(self, answer: Triage, content: TriageDocument) -> None:
        """Write the page, and files for other viewers, where they are wanted."""
        if self.trace or self.speedscope:
            from profkit.show.exports import write_speedscope, write_trace

            if self.trace:
                write_trace(self.trace, answer)
            if self.speedscope:
                write_speedscope(self.speedscope, answer)
        if self.page is None:
            return
        from profkit.show.page import render_program_page
        from profkit.show.step import PageProgram

        name = self.name or content["program"]["command"] or content["program"]["how"]
        write_text(self.page, render_program_page(PageProgram(name, answer, content)))


def _write_documents(folder: Path, content: TriageDocument) -> None:
    """Write an answer in both versions of its document."""
    write_text(folder / NAME, dumps(content, indent=1, allow_nan=False))
    write_text(
        folder / SECOND_NAME, dumps(convert_to_second_form(content), indent=1, allow_nan=False)
    )


@contextmanager
def _open_output(output: Path) -> Iterator[Path]:
    """Give a folder that becomes the output, whole, when the block ends well."""
    make_folder(output.parent)
    with ExitStack() as stack:
        try:
            place = stack.enter_context(make_temporary_folder(output.parent))
        except OSError as error:
            raise make_write_error(output.parent, error) from error
        folder = place / "triage"
        folder.mkdir()
        yield folder
        move_folder(folder, output)
        print_note(f"{output}: kept")


def _check_outputs(output: Path | None, page: Path | None, what: Sequence[str]) -> None:
    """Raise a ProfkitError where something else would be overwritten, or nothing could be."""
    if page:
        check_output(page, what)
        refuse_overwriting_evidence(page)
    if output and page and resolve_path(page).is_relative_to(resolve_path(output)):
        why = f"--page {page}: is in the folder that -o {output} replaces"
        raise ProfkitError(why, "name a file outside of it")
    if output and output.suffix.lower() in INSTEAD:
        raise ProfkitError(
            f"-o {output}: writes a folder, not a file of that kind",
            f"for the file: {INSTEAD[output.suffix.lower()].format(output)}; for the folder: -o "
            f"{output.with_suffix('.triage')}",
        )
    if output and is_there(output) and not (is_triage(output) or is_timeline(output)):
        raise ProfkitError(f"-o {output}: already exists", "name a folder that is not there")
    if output:
        _refuse_foreign_files(output)


def _refuse_foreign_files(output: Path) -> None:
    """Raise a ProfkitError where a folder that is replaced holds what profkit did not put there."""
    own = {NAME, SECOND_NAME, store.HEAD, *REPORTS, *(f"{table}.parquet" for table in store.TABLES)}
    others = [entry.name for entry in list_folder(output) if entry.name not in own]
    if others:
        raise ProfkitError(
            f"-o {output}: would replace the folder, and {others[0]} in it is not profkit's",
            "move it to another folder, or name a folder that is not there",
        )


def _is_recording_name(path: Path) -> bool:
    """Return whether this names a recording: by its ending, or because nobody could run it."""
    if path == STANDARD_INPUT or path.suffix in RECORDINGS or is_folder(path):
        return True
    return is_file(path) and not is_executable(path)


def _list_recordings(what: Sequence[str]) -> list[Path]:
    paths = [expand_home(word) for word in what]
    recorded = all(_is_recording_name(path) for path in paths)
    for path in paths if recorded else paths[:1]:
        if path == STANDARD_INPUT:
            continue
        if recorded or not is_executable(path):  # what may be run is a command
            refuse_other_kind(path, "triage")
    if recorded:
        return paths
    return []
