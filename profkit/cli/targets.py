"""Flags of the verbs that measure  ->  what they name; and what is wrong with what was measured."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.cli.options import BAD, COULD_NOT, DONE, FORM
from profkit.cli.output import note, say, say_all, say_each
from profkit.errors import ProfkitError
from profkit.lab.measure.ncu_output import NcuWords
from profkit.lab.measure.targets import Measurements, Target, TargetRun
from profkit.lab.measure.worker import visible_devices
from profkit.show.text.escape import escaped
from profkit.show.views import measured as views

if TYPE_CHECKING:
    from rich.console import Console


def on_gpus(target: Target, gpus: str | None) -> Target:
    return replace(target, visible=tuple(visible_devices(gpus)))


def say_gpus(measured: Measurements) -> None:
    """Say which case was timed on which GPU at which clock, and which GPUs were left out."""
    by_case: dict[str, str] = {}
    for (name, case), gpu in measured.gpus.items():
        times = measured.times.get((name, case))
        clock = times.after.sm_clock if times else None
        at = f" at {clock / 1e6:.0f} MHz" if clock else ""
        by_case.setdefault(case, f"case {case} on {gpu.uuid or gpu.pci}{at}")
    if len({gpu.pci for gpu in measured.gpus.values()}) > 1:
        where = ", ".join(by_case.values())
        note(f"timed on several GPUs, compare within a case: {where}")
    for line in measured.lost:
        note(line)


def choose_names(names: Sequence[str] | None, every: bool) -> Sequence[str]:
    """Return the variants that were named; none with --all, which is the other answer."""
    if bool(names) == every:
        why = "which variants?" if not every else "--all and --variant are two answers"
        raise ProfkitError(why, "--variant ID (profkit list shows them), or --all")
    return names or ()


def say_faults(run: TargetRun, checks: Sequence[dict[str, Any]]) -> int:
    """Say what is wrong on stderr; the worst of it is the exit status."""
    for check in checks:
        say_each(map(ProfkitError, views.faults(check)))
    broken = [b.failure for b in run.builds.values() if b.failure]
    for failure in broken:
        say_all(*failure.message.split("\n", 1))
    judged = {c["variant"] for c in checks}
    lost = [n for n in run.measured.failed if n not in judged]
    for name in lost:
        say(ProfkitError(f"{name}: {run.measured.failed[name]}"))
    if broken:
        return COULD_NOT
    return BAD if any(c["status"] in ("wrong", "failed") for c in checks) else DONE


@contextmanager
def show_ncu_words(log: Path, program: bool = True) -> Iterator[NcuWords]:
    """Show ncu's output while it runs, all of which goes to `log`.

    `program`: whether the program's own words are passed on.
    """
    aloud = program and not FORM.quiet
    with ExitStack() as stack:
        if FORM.quiet or not sys.stderr.isatty():
            sink = NcuWords(log, sys.stderr.buffer if aloud else None)
        else:
            from rich.progress import BarColumn, Progress, TextColumn

            from profkit.show.text.terminal import console

            columns = (TextColumn("{task.description}", markup=False), BarColumn())
            bar = Progress(*columns, console=(on := console(stderr=True)), transient=True)
            stack.enter_context(bar)
            task = bar.add_task("ncu starts the program", total=None)

            def at(number: int, of: int | None, name: str) -> None:
                where = f"[{number}/{of}]" if of else f"[{number}]"
                bar.update(task, description=f"{where} {escaped(name)}", completed=number, total=of)

            sink = NcuWords(log, _Above(on) if aloud else None, at)
        try:
            yield sink
        except ProfkitError:
            note(f"{log}: all that ncu said")
            raise
        finally:
            sink.close()


class _Above:
    """The program's words above the bar, line by line."""

    def __init__(self, on: Console) -> None:
        self._on, self._left = on, b""

    def write(self, content: bytes) -> int:
        *lines, self._left = (self._left + content).replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._on.print(escaped(line.decode("utf-8", "replace")))
        return len(content)

    def flush(self) -> None:
        """Do nothing: lines are shown as soon as they are whole."""
