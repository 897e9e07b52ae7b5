"""A command  ->  its timeline, recorded here, and counters of the kernels that matter in it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli import options
from profkit.cli.ncu_words import show_ncu_output
from profkit.cli.output import print_error, print_note, show_spinner
from profkit.collect import timeline as recorder
from profkit.errors import ProfkitError
from profkit.files import make_temporary_folder
from profkit.program import counts as counting
from profkit.program.counts import KernelVerdicts
from profkit.program.ranks import find_busiest_gpu_of_process
from profkit.program.readers import injected
from profkit.program.timeline import Timeline
from profkit.program.triage import Triage
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import CommandWords, HasEndedByItself


UNENDED = (
    "no counters were collected: that takes a run that ends by itself, and this one did not; to "
    "profile one kernel: profkit profile --kernel NAME --count 1 -- COMMAND"
)


def record_program(
    command: CommandWords, window: recorder.RecordingWindow
) -> tuple[Timeline, HasEndedByItself]:
    """Record a command's timeline; also say whether it ended by itself."""
    if options.FORM.quiet:
        echo = None
    else:
        echo = sys.stderr.buffer
    with make_temporary_folder() as folder, show_spinner() as progress:
        progress("timeline")
        done = recorder.record_timeline(command, folder, window, echo)
        timeline = injected.read_injected_recording(folder)
    notes = timeline.notes
    if done.note:
        notes = (*notes, done.note)
    print_note(f"timeline: {done.seconds:.1f} s")
    return replace(timeline, command=" ".join(command), notes=notes), done.by_itself


def collect_program_counters(
    command: CommandWords, judged_triage: Triage, budget_s: float, report_path: Path
) -> KernelVerdicts:
    """Return counters of the groups that matter; why there are none, where there are none."""
    groups = judged_triage.groups
    device = None
    if len(judged_triage.timeline.processes) > 1:
        device = find_busiest_gpu_of_process(judged_triage.process)
    names = [get_base_name_of_kernel(g.name) for g in counting.choose_groups_to_count(groups)]
    if not names:
        return KernelVerdicts(notes=("no kernel to profile",))
    try:
        with show_ncu_output(
            report_path.with_suffix(".log"), is_program_output_shown=False
        ) as words:
            done = recorder.profile_second_of_each_shape(
                command, names, report_path, budget_s, words, device
            )
            print_note(f"counters: {len(done.kernels)} launches, {done.seconds:.1f} s")
            counted = counting.judge_groups_by_counters(report_path, groups)
        packed = recorder.compress_report(report_path)
    except ProfkitError as error:  # the timeline is an answer too
        print_error(error)
        return KernelVerdicts(notes=(f"no counters were collected: {error.message}",))
    counted = replace(counted, report=str(packed))
    if device is None:
        return counted
    text = (
        f"counters are from rank {judged_triage.process.rank} (GPU {device}); the other ranks waited in "
        "their collectives, which were not replayed; NCCL's watchdog allows 10 minutes"
    )
    return replace(counted, notes=(*counted.notes, text))
