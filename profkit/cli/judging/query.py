"""A question in SQL  ->  its answer from the history's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli.options import COULD_NOT, HistoryDir, Json, Markdown, Quiet
from profkit.cli.output import one_form, print_blocks, say_each
from profkit.cli.verb import Verb
from profkit.records.artifacts import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.history.steps import ColumnsDocument, QueryDocument


def run_query(
    sql: Annotated[
        str | None, typer.Argument(help="DuckDB's SQL; left out, the tables and their columns.")
    ] = None,
    history: HistoryDir = HISTORY,
    json: Json = False,
    markdown: Markdown = False,
    quiet: Quiet = False,
) -> None:
    """Ask the history in SQL, of runs, launches, reports and twins."""
    from profkit.evidence.history.dataset import History, query
    from profkit.evidence.history.tables import SCHEMA, schema_rows
    from profkit.show.views.history import answer_blocks, rows_of, schema_blocks

    one_form(json, markdown)
    if sql is None:
        columns = schema_rows()
        tables: ColumnsDocument = {"schema": SCHEMA, "columns": columns}
        print_blocks(schema_blocks(SCHEMA, columns), tables if json else None, markdown)
        return
    frame, problems = query(History(history), sql)
    document: QueryDocument = {"schema": "profkit.query/1", "rows": rows_of(frame)}
    print_blocks(answer_blocks(frame), document if json else None, markdown)
    say_each(problems, quiet=quiet)
    if problems:
        raise typer.Exit(COULD_NOT)


VERB = Verb(
    run=run_query,
    examples=(
        "profkit query                                 # the tables and their columns",
        "profkit query 'SELECT variant, min(median) FROM runs GROUP BY variant'",
        "profkit query 'SELECT * FROM launches' --history runs/history --json",
        "profkit query 'SELECT count(*) FROM launches' --markdown --quiet",
    ),
)
