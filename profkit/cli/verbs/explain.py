"""A name  ->  what the rule or metric means."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli import complete, options


def explain_name(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RULE-or-METRIC",
            help="All of them when left out.",
            autocompletion=complete.pages,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As Markdown; without a name the whole reference.")
    ] = False,
) -> None:
    """What a rule, a metric or a word of the verdict means."""
    from profkit.cli.output import print_blocks
    from profkit.show.views import explain as pages

    if name is not None:
        print_blocks(pages.explain(name).blocks(), as_markdown=markdown)
    elif markdown:
        print(pages.reference_document(), end="")
    else:
        print_blocks(pages.index())


VERB = options.Verb(
    run=explain_name,
    group="Understand a kernel",
    examples=(
        "profkit explain                               # every rule and every metric",
        "profkit explain shared-bank-conflicts         # or a word of a verdict, a metric",
        "profkit explain --markdown                    # the whole reference",
    ),
)
