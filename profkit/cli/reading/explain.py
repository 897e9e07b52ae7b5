"""A name  ->  what the rule or metric means."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli import complete
from profkit.cli.verb import Verb


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
    """What a rule or a metric means and needs, with an example."""
    from profkit.show.views import explain as pages

    if name is None:
        print(pages.reference_document() if markdown else pages.index())
        return
    page = pages.explain(name)
    print(page.markdown if markdown else page)


VERB = Verb(
    run=explain_name,
    examples=(
        "profkit explain                               # every rule and every metric",
        "profkit explain shared-bank-conflicts         # or a limiter, or ncu's metric",
        "profkit explain --markdown                    # the whole reference",
    ),
)
