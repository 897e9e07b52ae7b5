"""A question in SQL  ->  its answer from the tables of a history.

# List the tables and their columns.
profkit query
# Find the fastest run of each variant.
profkit query 'SELECT variant, min(median) FROM runs GROUP BY variant'
# Read the diagnosed reports of another history.
profkit query 'SELECT * FROM reports' --history runs/history --json
# Write the tables for a pull request.
profkit query --markdown --quiet
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import measure_memory_left, measure_processor_time
from profkit.records.paths import HISTORY

if TYPE_CHECKING:
    from profkit.evidence.history import History
    from profkit.units import ExitStatus, ProcessId, Seconds

GROUP = "Judge a change"
SUMMARY = "Query a history with SQL."

# Of a question whose memory is limited, seconds of processors: its own two minutes, and the rest.
SECONDS_MOST = 150.0
_PAUSE = 0.02  # seconds between two looks
# Looks, a minute of them, at which it has taken no more of a processor: then its threads wait for each
# other. On a busy machine it takes little, and more than that.
_STILL_MOST = 3000
ROWS_SHOWN = 10_000  # of an answer as a table: more is nothing to read

Question = Annotated[
    str | None,
    typer.Argument(
        metavar="QUESTION",
        help="Give a query for DuckDB. Default: list the tables and their columns.",
    ),
]


@options.verb(GROUP, SUMMARY, forms="json markdown quiet")
def answer_question(question: Question = None, history: options.HistoryDir = HISTORY) -> int:
    from profkit.cli.output import print_errors
    from profkit.evidence.history import History

    if question is None:
        _print_history_schema()
        return options.DONE
    if measure_memory_left() is not None:
        status = _start_fork_and_wait()
        if status is not None:
            return status
    problems = _print_query_answer(History(history), question)
    print_errors(problems, quiet=options.FORM.quiet)
    if problems:
        return options.COULD_NOT
    return options.DONE


def _start_fork_and_wait() -> ExitStatus | None:
    """Fork; return the fork's exit status here, and None in the fork, which goes on.

    Where memory is limited, DuckDB may crash for lack of it, or wait for ever.

    Raises:
        ProfkitError: The fork crashed, or did not end.
    """
    sys.stdout.flush()
    fork = os.fork()
    if fork == 0:
        return None
    hint = "allow more: --max-memory, or ulimit -v; or ask for less"
    try:
        for _ in _watch_processor_time(fork):
            ended, status = os.waitpid(fork, os.WNOHANG)
            if not ended:
                time.sleep(_PAUSE)
                continue
            fork = 0
            code = os.waitstatus_to_exitcode(status)
            if code >= 0:
                return code
            name = signal.Signals(-code).name
            why = f"the query process crashed ({name}): memory is limited"
            raise ProfkitError(why, hint)
        raise ProfkitError("the question: its process does not come to an end", hint)
    finally:
        if fork:
            _end_and_reap_fork(fork)


def _watch_processor_time(pid: ProcessId) -> Iterator[Seconds]:
    """Yield what a process has taken of processors, until that is too much or stands still.

    Where the system does not say what it has taken, the clock counts in its place.
    """
    began = time.monotonic()
    before = -1.0
    still = 0
    while before <= SECONDS_MOST and still < _STILL_MOST:
        taken = measure_processor_time(pid)
        if taken is None:
            taken = time.monotonic() - began
        still = still + 1 if taken == before else 0
        before = taken
        yield taken


def _end_and_reap_fork(fork: ProcessId) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(fork, signal.SIGKILL)
        os.waitpid(fork, 0)


def _print_history_schema() -> None:
    from profkit.cli.output import print_blocks
    from profkit.evidence.tables import SCHEMA, ColumnsDocument, list_schema_rows
    from profkit.show.views.history import show_history_schema

    columns = list_schema_rows()
    print_blocks(show_history_schema(SCHEMA, columns), ColumnsDocument(columns=tuple(columns)))


def _print_query_answer(history: History, question: str) -> list[ProfkitError]:
    """Print the answer; return what of the history could not be read."""
    from profkit.cli.output import print_blocks
    from profkit.evidence.history import ROWS_MOST, query_history
    from profkit.evidence.tables import QueryDocument
    from profkit.show.views.history import list_plain_rows, show_query_answer

    frame, problems = query_history(history, question)
    if options.FORM.json:
        most = ROWS_MOST
    else:
        most = ROWS_SHOWN
    if len(frame) > most:
        hint = "ask for less: WHERE, GROUP BY or LIMIT"
        problems.append(ProfkitError(f"the answer is cut: its first {most:,} rows", hint))
        frame = frame.head(most)
    print_blocks(show_query_answer(frame), QueryDocument(rows=tuple(list_plain_rows(frame))))
    return problems
