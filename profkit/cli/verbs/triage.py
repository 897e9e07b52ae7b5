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
# Answer in a few lines of plain text, for an agent.
profkit triage trace.json.gz --brief
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

from pathlib import Path
from typing import Annotated

import typer

from profkit.cli import options
from profkit.cli.output import open_in_browser, require_known_format
from profkit.errors import ProfkitError

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
    typer.Option(
        "--no-operators", help="Record no torch operators; recording them slows a few steps."
    ),
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
    forms="brief json markdown quiet",
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
    from profkit.cli import triaging

    require_known_format(form)
    asked = triaging.Question(ranks, range_, step_ms, budget, by, version)
    asked.check_options()
    if opens and page is None:
        raise ProfkitError("--open: no page is written", "add --page FILE.html")
    kept = triaging.Outputs(output, page, trace, speedscope)
    kept.check_outputs(what)
    if recordings := triaging.list_recordings_unless_command(what):
        content = triaging.judge_and_save(recordings, asked, kept)
        if form:
            triaging.print_annotations(content, form, what[0])
        else:
            asked.print_answer(content)
    elif form:
        raise ProfkitError(
            "--format needs a recording", "keep it first: profkit triage -o NAME.triage -- ..."
        )
    else:
        from profkit.collect.timeline import RecordingWindow

        window = RecordingWindow(after, seconds, timeout, not no_lines, not no_operators)
        triaging.record_and_judge(what, window, asked, kept)
    if opens and page:
        open_in_browser(page)
    return options.DONE
