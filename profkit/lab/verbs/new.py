"""A name  ->  a problem's folder to begin with.

# Create a problem with a first variant in CUDA.
profkit new row-sum
# Create one in Triton, in a folder of your own.
profkit new layernorm --language triton --kernels mine
# Print which files were written, as JSON.
profkit new decode --json --quiet
"""

from __future__ import annotations

from pathlib import Path

import typer

from profkit.cli import options

GROUP = "Work on your own kernels"
SUMMARY = "Create a folder for a new problem, in CUDA or Triton."


@options.verb(GROUP, SUMMARY)
def create_problem_folder(
    problem: str = typer.Argument(..., metavar="PROBLEM", help="Name the problem: row-sum."),
    language: str = typer.Option(
        "cuda",
        "--language",
        metavar="NAME",
        help="Choose the language of its first variant: cuda or triton.",
    ),
    kernels: options.Kernels = None,
) -> int:
    """The folder gets a problem.py and a first variant, which profkit check can run."""
    from profkit.cli.output import print_blocks, print_note
    from profkit.lab.measure.variants import problem as problems
    from profkit.show.views import measured

    written = problems.write_files_of_new_problem(problem, language, kernels or Path("kernels"))
    folder = written[0].parent
    document = problems.NewDocument(folder=folder, files=tuple(written))
    print_blocks(measured.show_written_files(folder, written), document)
    place = ""
    if kernels:
        place = f" --kernels {kernels}"
    if not options.FORM.json:
        print_note(f"next: profkit check --variant {problem}/first{place}")
    return options.DONE
