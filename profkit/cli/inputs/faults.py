"""What was made and checked  ->  what is wrong with it, on stderr, and the exit status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from profkit.cli.options import BAD, COULD_NOT
from profkit.cli.output import say, say_all, say_each
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.measure.runs import TargetRun


def leave_with_faults(run: TargetRun, checks: Sequence[dict[str, Any]]) -> None:
    """Say what is wrong on stderr; the worst of it is the exit status."""
    from profkit.show.views import measured

    for check in checks:
        say_each(map(ProfkitError, measured.faults(check)))
    broken = [b for b in run.builds.values() if b.error]
    for built in broken:
        say_all(f"{built.variant.path} does not compile", built.error or "")
    judged = {c["variant"] for c in checks}
    lost = [n for n in run.measured.failed if n not in judged]
    for name in lost:
        say(ProfkitError(f"{name}: {run.measured.failed[name]}"))
    if broken:
        raise typer.Exit(COULD_NOT)
    if any(c["status"] in ("wrong", "failed") for c in checks):
        raise typer.Exit(BAD)
