"""What the verbs that compare share: --fail-on, and the exit status of what was compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from profkit.cli.options import COULD_NOT, DONE, FAIL_ON, FORM
from profkit.cli.output import print_note
from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.compare import RunComparison
    from profkit.units import ExitStatus


def parse_fail_on(fail_on_flags: Sequence[str]) -> set[str]:
    """Return what --fail-on names, each flag one word or several with commas."""
    words: set[str] = set()
    for value in fail_on_flags:
        words.update(value.split(","))
    if unknown := words - set(FAIL_ON):
        problem = f"--fail-on {', '.join(sorted(unknown))}: unknown"
        raise ProfkitError(problem, f"one of {', '.join(FAIL_ON)}")
    return words


def report_failures_and_get_exit_status(
    comparisons: Iterable[RunComparison], fail_if: set[str]
) -> ExitStatus:
    """Say on stderr why the exit status is not 0; return it."""
    from profkit.evidence.compare import list_exit_reasons

    worst = DONE
    changes = list(comparisons)
    refused = {change.after for change in changes if not change.compared or change.has_no_pair}
    for code, reason in list_exit_reasons(changes, fail_if):
        worst = max(worst, code)
        name = reason.partition(": ")[0]
        if code == COULD_NOT and name in refused and not FORM.json:
            continue  # the comparison says so, and why
        if code:
            print_note(f"exit status {code}: {reason}")
        else:
            print_note(f"not judged: {reason}")
    return worst
