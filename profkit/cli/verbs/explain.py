"""A name  ->  what the rule or metric means.

# Explain a rule, a finding of triage, a metric or a word of a verdict.
profkit explain shared-bank-conflicts
# Explain what Nsight Compute calls a metric or a stall.
profkit explain 'DRAM Throughput'
# List every rule and every metric.
profkit explain
# Write the whole reference.
profkit explain --markdown
"""

from __future__ import annotations

import typer

from profkit.cli import options

GROUP = "Understand a kernel"
SUMMARY = "Explain a rule, a metric or a word of a verdict."


@options.verb(GROUP, SUMMARY, forms="")
def explain_name(
    name: str | None = typer.Argument(
        None,
        metavar="NAME",
        help="Name a rule, a metric, a limiter, a stall or a label of ncu. Default: list all.",
        autocompletion=options.list_known_pages,
    ),
    markdown: bool = typer.Option(
        False, "--markdown", help="Print Markdown; without a name, the whole reference."
    ),
) -> int:
    from profkit.cli.output import print_blocks
    from profkit.show.views import explain as pages

    options.FORM.markdown = markdown
    if name is not None:
        print_blocks(pages.explain(name).blocks())
    else:
        print_blocks(pages.show_reference() if markdown else pages.show_index())
    return options.DONE
