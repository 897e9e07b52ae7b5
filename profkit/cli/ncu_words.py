"""ncu's output while it runs  ->  the program's own words, and a bar of the kernels."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.cli.options import FORM
from profkit.cli.output import print_note
from profkit.collect.ncu_output import NcuOutputSplitter
from profkit.errors import ProfkitError
from profkit.show.text.escape import escape_text

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def show_ncu_output(
    log_path: Path, is_program_output_shown: bool = True
) -> Iterator[NcuOutputSplitter]:
    """Show ncu's output while it runs, all of which goes to `log_path`.

    `is_program_output_shown`: whether the program's own words are passed on.
    """
    aloud = is_program_output_shown and not FORM.quiet
    with ExitStack() as stack:
        if FORM.quiet or not sys.stderr.isatty():
            sink = NcuOutputSplitter(log_path, sys.stderr.buffer if aloud else None)
        else:
            from rich.progress import BarColumn, Progress, TextColumn

            from profkit.show.text.terminal import make_console

            columns = (TextColumn("{task.description}", markup=False), BarColumn())
            bar = Progress(*columns, console=(on := make_console(stderr=True)), transient=True)
            stack.enter_context(bar)
            task = bar.add_task("ncu starts the program", total=None)

            def show_progress_of(
                kernel_number: int, kernel_count: int | None, kernel_name: str
            ) -> None:
                if kernel_count:
                    where = f"[{kernel_number}/{kernel_count}]"
                else:
                    where = f"[{kernel_number}]"
                bar.update(
                    task,
                    description=f"{where} {escape_text(kernel_name)}",
                    completed=kernel_number,
                    total=kernel_count,
                )

            sink = NcuOutputSplitter(
                log_path, _ProgramOutputAboveBar(on) if aloud else None, show_progress_of
            )
        try:
            yield sink
        except ProfkitError:
            print_note(f"{log_path}: all that ncu said")
            raise
        finally:
            sink.close()


class _ProgramOutputAboveBar:
    """The program's words above the bar, line by line."""

    def __init__(self, console: Console) -> None:
        self._on = console
        self._left = b""

    def write(self, content: bytes) -> int:
        *lines, self._left = (self._left + content).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._on.print(escape_text(line.decode("utf-8", "replace")))
        return len(content)

    def flush(self) -> None:
        """Do nothing: lines are shown as soon as they are whole."""
