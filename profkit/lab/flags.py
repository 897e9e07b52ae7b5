"""Flags of the verbs that measure  ->  what they name; and what is wrong with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profkit.cli.options import BAD, COULD_NOT, DONE
from profkit.cli.output import print_error, print_error_with_output, print_errors, print_note
from profkit.errors import ProfkitError
from profkit.lab.measure.targets import Measurements, Target, TargetRun
from profkit.lab.measure.worker import list_visible_devices_of_workers
from profkit.show.views import measured as views

if TYPE_CHECKING:
    from profkit.units import ExitStatus


def set_visible_gpus(target: Target, gpus: str | None) -> Target:
    """Return the target with the CUDA_VISIBLE_DEVICES of each worker, by --gpus."""
    return replace(target, visible=tuple(list_visible_devices_of_workers(gpus)))


def print_gpus_of_cases(measured: Measurements) -> None:
    """Say which case was timed on which GPU at which clock, and which GPUs were left out."""
    by_case: dict[str, str] = {}
    for (name, case), gpu in measured.gpus.items():
        times = measured.times.get((name, case))
        clock = None
        if times:
            clock = times.after.sm_clock
        at = ""
        if clock:
            at = f" at {clock / 1e6:.0f} MHz"
        by_case.setdefault(case, f"case {case} on {gpu.uuid or gpu.pci}{at}")
    if len({gpu.pci for gpu in measured.gpus.values()}) > 1:
        where = ", ".join(by_case.values())
        print_note(f"timed on several GPUs, compare within a case: {where}")
    for line in measured.lost:
        print_note(line)


def require_names_or_all(names: Sequence[str] | None, are_all_asked_for: bool) -> Sequence[str]:
    """Return the variants that were named; none with --all, which is the other answer."""
    if bool(names) == are_all_asked_for:
        if not are_all_asked_for:
            why = "which variants?"
        else:
            why = "--all and --variant cannot be combined"
        raise ProfkitError(why, "--variant ID (profkit list shows them), or --all")
    return names or ()


def print_faults_and_get_exit_status(
    run: TargetRun, checks: Sequence[dict[str, Any]]
) -> ExitStatus:
    """Say what is wrong on stderr; the worst of it is the exit status."""
    for check in checks:
        print_errors(map(ProfkitError, views.list_check_faults(check)))
    broken = []
    for b in run.builds.values():
        if b.failure:
            broken.append(b.failure)
    for failure in broken:
        print_error_with_output(*failure.message.split("\n", 1))
    judged = {c["variant"] for c in checks}
    lost = []
    for n in run.measured.failed:
        if n not in judged:
            lost.append(n)
    for name in lost:
        print_error(ProfkitError(f"{name}: {run.measured.failed[name]}"))
    if broken:
        return COULD_NOT
    if any(c["status"] in ("wrong", "failed") for c in checks):
        return BAD
    return DONE
