"""Recordings or a command, and what was asked  ->  a judged program, printed and kept."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli import options
from profkit.cli.output import (
    print_blocks,
    print_brief,
    print_compact_json,
    print_note,
    refuse_overwriting_evidence,
)
from profkit.cli.sources import is_timeline_folder, is_triage_folder, refuse_file_of_another_verb
from profkit.errors import ProfkitError
from profkit.files import (
    copy_file,
    expand_home,
    is_executable,
    is_file,
    is_folder,
    is_path_there,
    list_folder_entries,
    make_folder,
    make_temporary_folder,
    make_write_error,
    move_folder,
    resolve_path,
    verify_output_can_be_written,
    write_text,
)
from profkit.program.counts import KernelVerdicts
from profkit.program.document import (
    NAME,
    SECOND_NAME,
    SecondTriageDocument,
    TriageDocument,
    convert_to_second_form,
    make_triage_document,
)
from profkit.program.ranks import select_ranks
from profkit.program.readers import list_suffixes, store
from profkit.program.readers.gathered import STANDARD_INPUT
from profkit.program.recorded import REPORTS, judge_recordings
from profkit.program.triage import Triage, triage_timeline
from profkit.show.text.blocks import TextLine
from profkit.show.views.triage import (
    ORIGINS,
    show_triage,
    suggest_commands,
    write_brief_triage,
)

if TYPE_CHECKING:
    from profkit.collect.timeline import RecordingWindow
    from profkit.program.timeline import Timeline
    from profkit.units import CommandWords

BY = (*ORIGINS, "kernel")
VERSIONS = (1, 2)  # of profkit.triage
INSTEAD = {".html": "--page {}", ".json": "--json > {}", ".md": "--markdown > {}"}
INSTEAD[".htm"] = INSTEAD[".html"]
OTHER_SUFFIXES = (
    ".gz",
    ".triage",
    ".nsys-rep",
    ".zip",
)  # what holds recordings, or becomes one


@dataclass(frozen=True)
class Question:
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
        if options.FORM.brief:
            print_brief_answer(content)
            return
        document: TriageDocument | SecondTriageDocument = content
        if self.version != 1:
            document = convert_to_second_form(content)
        print_blocks(chain(show_triage(content, by=self.by), suggest_commands(content)), document)


def print_brief_answer(content: TriageDocument) -> None:
    """Print the answer in few lines; as data, with the keys that tools for agents have."""
    if options.FORM.json:
        from profkit.show.views.agents import make_triage_entry

        print_compact_json(make_triage_entry(convert_to_second_form(content)))
    else:
        print_brief(write_brief_triage(content))


def judge_and_save(paths: Sequence[Path], question: Question, outputs: Outputs) -> TriageDocument:
    """Judge recordings of one program, a file per rank, and keep what was asked for."""
    answer, counts = judge_recordings(paths, question.ranks, question.step, question.step_ms)
    content = make_triage_document(
        answer, outputs.set_final_report_path(counts or KernelVerdicts())
    )
    outputs.name = paths[0].name
    outputs.save_recording(answer.timeline, content, counts)
    outputs.write_files(answer, content)
    return content


def print_annotations(content: TriageDocument, annotation_format: str, recording: str) -> None:
    """Print each finding at its source line, a line each."""
    from profkit.show.annotations import WRITERS, annotate_step

    print(WRITERS[annotation_format](annotate_step(content, recording)), end="")


def record_and_judge(
    command: CommandWords, window: RecordingWindow, question: Question, outputs: Outputs
) -> None:
    """Record, judge and print; then count, and print a sharper answer."""
    from profkit.cli import watching

    timeline, ended = watching.record_program(command, window)
    timeline = select_ranks(timeline, question.ranks)
    outputs.save_timeline(timeline)
    answer = triage_timeline(timeline, question.step, question.step_ms)
    counts = None
    if question.budget and not ended:
        counts = KernelVerdicts(notes=(watching.UNENDED,))
    content = make_triage_document(answer, counts)
    outputs.save_answer(answer, content)
    if not question.budget or not ended:
        question.print_answer(content)
        return
    # One document is one answer: it waits for the counters, unless they do not come.
    one_document = options.FORM.json or options.FORM.markdown
    if one_document:
        with _print_answer_if_interrupted(content, question):
            counts = _collect_counters(command, answer, question, outputs)
    else:
        question.print_answer(content)
        sys.stdout.flush()
        print_note(
            "now collecting counters of the important kernels; press Ctrl-C to stop and keep this "
            "answer"
        )
        counts = _collect_counters(command, answer, question, outputs)
    sharper = triage_timeline(timeline, question.step, question.step_ms, counts.expected_gains)
    content = make_triage_document(sharper, counts)
    outputs.save_answer(sharper, content)
    if one_document or counts.groups:
        question.print_answer(content)
    else:
        print_blocks([TextLine(text, "note") for text in counts.notes])


@contextmanager
def _print_answer_if_interrupted(content: TriageDocument, question: Question) -> Iterator[None]:
    """Print the answer that is known if the block does not end well, whatever ends it."""
    is_done = False
    try:
        yield
        is_done = True
    finally:
        if not is_done:
            question.print_answer(content)


def _collect_counters(
    command: CommandWords, answer: Triage, question: Question, outputs: Outputs
) -> KernelVerdicts:
    """Collect hardware counters of the kernels that matter, within the budget."""
    from profkit.cli import watching

    with outputs.open_report_folder() as folder:
        report = folder / "counters.ncu-rep"
        counts = watching.collect_program_counters(command, answer, question.budget, report)
    if outputs.output is None:  # the report went with its folder
        return replace(counts, report="")
    return counts


@dataclass
class Outputs:
    """What is kept of an answer, as soon as it is known: each file whole, or not there."""

    output: Path | None
    page: Path | None
    trace: Path | None
    speedscope: Path | None
    name: str = ""  # of the recording that was read; empty for a command

    def check_outputs(self, recordings_or_command: Sequence[str]) -> None:
        """Raise a ProfkitError where something else would be overwritten, or nothing could be."""
        _check_output_paths(self.output, self.page, recordings_or_command)
        for file in (self.trace, self.speedscope):
            if file:
                verify_output_can_be_written(file, recordings_or_command)

    def save_timeline(self, timeline: Timeline) -> None:
        """Keep what was recorded, before anything is made of it."""
        if self.output:
            with _open_output(self.output) as folder:
                store.write_timeline(timeline, folder)

    def save_answer(self, answer: Triage, content: TriageDocument) -> None:
        """Keep what is known now with the timeline, in place of what was known before."""
        if self.output:
            _write_documents(self.output, content)
        self.write_files(answer, content)

    def save_recording(
        self, timeline: Timeline, content: TriageDocument, counts: KernelVerdicts | None
    ) -> None:
        """Keep a recording that was read, its answer, and the report that its counters are from."""
        if self.output is None:
            return
        with _open_output(self.output) as folder:
            store.write_timeline(timeline, folder)
            if counts and counts.report:
                copy_file(counts.report, folder / Path(counts.report).name)
            _write_documents(folder, content)

    def set_final_report_path(self, counts: KernelVerdicts) -> KernelVerdicts:
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
            from profkit.show.exports import write_chrome_trace, write_speedscope

            if self.trace:
                write_chrome_trace(self.trace, answer)
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


def _check_output_paths(
    output: Path | None, page: Path | None, recordings_or_command: Sequence[str]
) -> None:
    """Raise a ProfkitError where something else would be overwritten, or nothing could be."""
    if page:
        verify_output_can_be_written(page, recordings_or_command)
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
    if (
        output
        and is_path_there(output)
        and not (is_triage_folder(output) or is_timeline_folder(output))
    ):
        raise ProfkitError(f"-o {output}: already exists", "name a folder that is not there")
    if output:
        _refuse_foreign_files(output)


def _refuse_foreign_files(output: Path) -> None:
    """Raise a ProfkitError where a folder that is replaced holds what profkit did not put there."""
    own = {NAME, SECOND_NAME, store.HEAD, *REPORTS, *(f"{table}.parquet" for table in store.TABLES)}
    others = [entry.name for entry in list_folder_entries(output) if entry.name not in own]
    if others:
        raise ProfkitError(
            f"-o {output}: would replace the folder, and {others[0]} in it is not profkit's",
            "move it to another folder, or name a folder that is not there",
        )


def _is_recording_name(path: Path) -> bool:
    """Return whether this names a recording: by its ending, or because nobody could run it."""
    if path == STANDARD_INPUT or is_folder(path):
        return True
    if path.name.endswith((*list_suffixes(), *OTHER_SUFFIXES)):
        return True
    return is_file(path) and not is_executable(path)


def list_recordings_unless_command(words: Sequence[str]) -> list[Path]:
    paths = [expand_home(word) for word in words]
    recorded = all(_is_recording_name(path) for path in paths)
    for path in paths if recorded else paths[:1]:
        if path == STANDARD_INPUT:
            continue
        if recorded or not is_executable(path):  # what may be run is a command
            refuse_file_of_another_verb(path, "triage")
    if recorded:
        return paths
    return []
