"""A name  ->  what the rule or metric means.

# Explain a rule, a finding of triage, a metric or a term in a verdict.
profkit explain shared-bank-conflicts
# Explain a label of Nsight Compute, or a term from a screen.
profkit explain DRAM Throughput
profkit explain waiting for launches
# Show its metrics too, and which sections of ncu collect them.
profkit explain shared-bank-conflicts --all
# List every rule and every metric.
profkit explain
# Write the whole reference.
profkit explain --markdown
"""

from __future__ import annotations

import typer

from profkit.cli import options

GROUP = "Understand a kernel"
SUMMARY = "Explain a rule, a metric or a term in a verdict."


@options.verb(GROUP, SUMMARY, forms="")
def explain_name(
    names: list[str] | None = typer.Argument(
        None,
        metavar="NAME",
        help="Name a rule, metric, stall, label of ncu or term from a screen. Default: list all.",
        autocompletion=options.list_explainable_names,
    ),
    every: bool = typer.Option(
        False, "--all", help="Print metrics, ncu sections and NVIDIA's own page, too."
    ),
    markdown: bool = typer.Option(
        False, "--markdown", help="Print Markdown; without a name, the whole reference."
    ),
) -> int:
    from profkit.cli.output import print_blocks
    from profkit.show.views import explain as pages

    options.FORM.markdown = markdown
    if names and (every or markdown):
        print_blocks(pages.explain(" ".join(names)).blocks())
    elif names:
        print_blocks(pages.show_short_page(" ".join(names)))
    else:
        print_blocks(pages.show_reference() if markdown else pages.show_index())
    return options.DONE
