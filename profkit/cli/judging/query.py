"""A question in SQL  ->  its answer from the history's tables."""

from __future__ import annotations

from typing import Annotated

import typer

from profkit.cli.judging.history import HISTORY, Folder
from profkit.cli.options import COULD_NOT, Json, Markdown, Quiet
from profkit.cli.output import one_form, print_blocks, say_each
from profkit.cli.verb import Verb


def run_query(
    sql: Annotated[str, typer.Argument(help="DuckDB's SQL on the tables runs and launches.")],
    history: Folder = HISTORY,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Ask the history, in SQL: its tables are `runs` and `launches`."""
    from profkit.evidence.history.dataset import History, query
    from profkit.show.views.history import answer_blocks, rows_of

    one_form(json, markdown)
    frame, problems = query(History(history), sql)
    document = {"schema": "profkit.query/1", "rows": rows_of(frame)}
    print_blocks(answer_blocks(frame), document if json else None, markdown)
    if not quiet:
        say_each(problems)
    if problems:
        raise typer.Exit(COULD_NOT)


VERB = Verb(
    run=run_query,
    examples=(
        "profkit query 'SELECT variant, min(median) FROM runs GROUP BY variant'",
        "profkit query 'SELECT * FROM launches' --history runs/history --json",
        "profkit query 'SELECT count(*) FROM launches' --markdown --quiet",
    ),
)
