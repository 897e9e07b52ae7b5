"""A question in SQL  ->  its answer from the tables of a history.

profkit query                                 # the tables and their columns
profkit query 'SELECT variant, min(median) FROM runs GROUP BY variant'
profkit query 'SELECT * FROM reports' --history runs/history --json
profkit query --markdown --quiet
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.errors import ProfkitError
    from profkit.evidence.history import History

GROUP = "Did it help"
SUMMARY = "Answer a question in SQL from everything in a history."

Question = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION", help="A question to DuckDB; without one, the tables and their columns."
    ),
]


@options.verb(GROUP, SUMMARY, forms="json markdown quiet")
def answer_question(question: Question = None, history: options.HistoryDir = HISTORY) -> int:
    from profkit.cli.output import say_each
    from profkit.evidence.history import History

    if question is None:
        _print_tables()
        return options.DONE
    problems = _print_answer(History(history), question)
    say_each(problems, quiet=options.FORM.quiet)
    return options.COULD_NOT if problems else options.DONE


def _print_tables() -> None:
    from profkit.cli.output import print_blocks
    from profkit.evidence.tables import SCHEMA, ColumnsDocument, schema_rows
    from profkit.show.views.history import schema_blocks

    columns = schema_rows()
    print_blocks(schema_blocks(SCHEMA, columns), ColumnsDocument(columns=tuple(columns)))


def _print_answer(history: History, question: str) -> list[ProfkitError]:
    """Print the answer; return what of the history could not be read."""
    from profkit.cli.output import print_blocks
    from profkit.evidence.history import query
    from profkit.evidence.tables import QueryDocument
    from profkit.show.views.history import answer_blocks, rows_of

    frame, problems = query(history, question)
    print_blocks(answer_blocks(frame), QueryDocument(rows=tuple(rows_of(frame))))
    return problems
