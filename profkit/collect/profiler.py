"""A program and what to look at  ->  one report. The only module that starts ncu.

ncu writes into a folder of its own; the report is moved to its place when it is whole and holds
what was asked for. The clocks run as they would without a profiler, caches are flushed before
each replay (ncu's default, stated), and source files travel inside the report.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from profkit.collect import ncu_output, process
from profkit.errors import ProfkitError
from profkit.files import get_file_size_or_zero, is_file, make_temporary_folder, move_file
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import CommandWords, KernelName, NcuOptions


CLOCKS = "none"  # ncu's default locks them to base: durations would be of another machine
TIMEOUT = 600.0  # seconds for one report; --timeout changes it
NAMED = 40  # kernels named where none matched


@dataclass(frozen=True)
class CollectOptions:
    """How ncu profiles a program."""

    set: str = "full"  # ncu's --set
    # ncu's --cache-control: all flushes before every replay, none leaves caches warm
    cache: str = "all"
    timeout: float = TIMEOUT  # seconds after which ncu and its program are stopped
    # which launches, from launch_filters; empty takes all that the program marks
    filters: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None  # the environment of ncu and its program; None inherits
    sections: tuple[str, ...] = ()  # ncu's --section, instead of a set


class ProfiledCall(Protocol):
    """One call of a variant or a reference, which a program makes."""

    @property
    def label(self) -> str: ...

    def write_program(self, folder: Path) -> list[str]:
        """Return the program that makes this call, told by a file that is written into the folder."""


@dataclass(frozen=True)
class CollectedReport:
    """A report that ncu wrote."""

    path: Path
    command: tuple[str, ...]
    seconds: float  # how long ncu ran
    kernels: tuple[str, ...]  # names of the kernels it holds, in order
    note: str = ""  # how the program ended, if it failed after its kernels had been profiled


def make_common_ncu_command(ncu: Path, options: CollectOptions) -> list[str]:
    """Return the command of ncu that all profiles have in common."""
    selection = []
    for section in options.sections:
        selection += ["--section", section]
    if not selection:
        selection = ["--set", options.set]
    command = [str(ncu), *selection, "--clock-control", CLOCKS]
    command += ["--cache-control", options.cache, "--import-source", "yes", "--nvtx"]
    return command


def profile_one_call(
    call: ProfiledCall,
    expected_kernels: Sequence[KernelName],
    report: Path,
    ncu: Path,
    options: CollectOptions,
) -> CollectedReport:
    """Profile exactly one call of a variant or a reference, which launches the expected kernels.

    Whatever goes wrong, no file is left; another kernel in the report is an error too.
    """
    with _make_folder_beside_report(report) as folder:
        program = call.write_program(folder)
        # Profiling starts where the program says so, never by the name of a kernel.
        limits = ["--profile-from-start", "off", "--target-processes", "application-only"]
        command = [*make_common_ncu_command(ncu, options), *limits]
        draft, done = _run_ncu(command, program, folder, options)
        if ended := ncu_output.find_program_failure(done.output):
            raise _explain_failed_program(ended, done)
        kernels = read_kernel_names_of_report(draft)
        verify_captured_kernels(expected_kernels, kernels, call.label)
        return _move_report_into_place(draft, report, command + program, done, kernels)


def verify_captured_kernels(
    expected_kernels: Sequence[KernelName], captured_kernels: Sequence[KernelName], call_name: str
) -> None:
    """Fail if a report holds anything else than the kernels of one call."""
    launched = list(map(get_base_name_of_kernel, expected_kernels))
    profiled = list(map(get_base_name_of_kernel, captured_kernels))
    if launched != profiled:
        raise ProfkitError(
            f"{call_name}: ncu captured {', '.join(profiled) or 'nothing'}, asked for "
            f"{', '.join(launched)}",
            "the launcher starts other kernels under a profiler than without: "
            "does it look at the environment?",
        )


def profile_program(
    program: CommandWords,
    report: Path,
    ncu: Path,
    options: CollectOptions,
    echo: process.Sink | None = None,
) -> CollectedReport:
    """Profile a program into a report, in place of an older one when it is complete."""
    with _make_folder_beside_report(report) as folder:
        command = [*make_common_ncu_command(ncu, options), *options.filters]
        draft, done = _run_ncu(command, program, folder, options, echo)
        kernels = read_kernel_names_of_report(draft)
        kept = _move_report_into_place(draft, report, [*command, *program], done, kernels)
        return replace(kept, note=ncu_output.find_program_failure(done.output) or "")


def make_launch_filter_options(
    kernel_regex: str | None,
    skipped_launches: int,
    most_launches: int | None,
    nvtx_range: str | None = None,
) -> NcuOptions:
    """Return launches of kernels whose name matches, from the skip-th, count of them, in ncu's options.

    `kernel_regex` is a regular expression on the demangled name, as reports and `diagnose --kernel`
    have it: template arguments are what tells one elementwise kernel from another. None takes every
    kernel, and every launch for `most_launches`; with `nvtx_range`, only inside of this range.
    """
    filters: list[str] = []
    if kernel_regex is not None:
        require_valid_kernel_regex(kernel_regex)
        regex = f"regex:{ncu_output.make_pattern_case_insensitive(kernel_regex)}"
        filters += ["--kernel-name-base", "demangled", "--kernel-name", regex]
    if skipped_launches:
        filters += ["--launch-skip", str(skipped_launches)]
    if most_launches is not None:
        filters += ["--launch-count", str(most_launches)]
    return (*filters, *(ncu_output.make_nvtx_filter_options(nvtx_range) if nvtx_range else ()))


def require_valid_kernel_regex(kernel_regex: str) -> None:
    """Raise a ProfkitError where --kernel is no regular expression."""
    try:
        re.compile(kernel_regex)
    except re.error as error:
        raise ProfkitError(
            f"--kernel {kernel_regex}: {error}", "give a regular expression"
        ) from error


@contextmanager
def _make_folder_beside_report(report: Path) -> Iterator[Path]:
    """Give a folder next to the report, on the same disk, gone afterwards."""
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        with make_temporary_folder(report.parent) as folder:
            yield folder
    except OSError as error:
        raise ProfkitError(
            f"cannot write in {report.parent}: {error.strerror}", "choose another --artifacts"
        ) from error


def _run_ncu(
    command: list[str],
    program: CommandWords,
    folder: Path,
    options: CollectOptions,
    echo: process.Sink | None = None,
) -> tuple[Path, process.FinishedCommand]:
    """Run ncu; the report it wrote, or an error that says why there is none."""
    draft = folder / "report.ncu-rep"
    threading.Thread(target=_preload_readers, daemon=True).start()
    whole = [*command, "--force-overwrite", "--export", str(draft), *program]
    done = process.run_command(whole, options.timeout, options.env, echo)
    if done.status is None:
        raise ProfkitError(
            f"ncu was stopped after {options.timeout:.0f} s",
            "a kernel that hangs shows with profkit check; a long one needs --timeout, "
            "or --set basic, which replays it less often",
        )
    known = ncu_output.explain_known_fault(done.output)
    if known and (done.status or not is_file(draft) or isinstance(known, ncu_output.NoCounters)):
        raise known
    ended = ncu_output.find_program_failure(done.output)
    if done.status and not (ended and is_file(draft)):
        raise _explain_failed_program(ended, done)
    if not is_file(draft) or get_file_size_or_zero(draft) == 0:
        raise _explain_no_profiled_launch(done)
    return draft, done


def _explain_no_profiled_launch(done: process.FinishedCommand) -> ProfkitError:
    if "==PROF== Connected to process" not in done.output:
        return ProfkitError(
            "the command started no CUDA under ncu: no report was written",
            "ncu follows the processes that it starts, not those of a server, a container or a "
            "scheduler; is it the command that works on the GPU?",
        )
    names = ncu_output.list_kernels_named_by_ncu(done.output)
    listed = ""
    if names:
        listed = f"there are: {', '.join(names[:NAMED])}"
    more = ""
    if len(names) > NAMED:
        more = f" and {len(names) - NAMED} more"
    return ProfkitError(
        "ncu matched no kernel: no report was written",
        listed + more
        or "look at the names with --kernel '.*' --count 10, or give a --skip that is smaller",
    )


def _explain_failed_program(ended: str | None, done: process.FinishedCommand) -> ProfkitError:
    own = []
    for s in done.output.splitlines():
        if s.strip() and not s.startswith("=="):
            own.append(s)
    return ProfkitError(
        f"the profiled program failed under ncu: {ended or f'ncu ended with {done.status}'}"
        + (f": {own[-1].strip()[:200]}" if own else ""),
        "run it once without ncu; if it is right there, try --sanitize",
    )


def _preload_readers() -> None:
    """Import what reads the report while ncu runs: it takes as long as a small report does."""
    import importlib

    for name in ("profkit.reports.reader", "ncu_report", "profkit.evidence.samples"):
        try:
            importlib.import_module(name)
        except (ImportError, ProfkitError):
            return  # whoever needs it says so


def read_kernel_names_of_report(report: Path) -> list[KernelName]:
    """Return the kernels in a report, in order; an error if it is damaged or a launch failed."""
    from profkit.reports.reader import read_report_files

    read_back = read_report_files([report])
    (file,) = read_back.files
    if file.status != "ok":
        raise ProfkitError(f"ncu wrote a report that is {file.status}: {file.message}", "again")
    launches = list(chain.from_iterable(part.iterate_launches() for part in read_back.parts))
    if any(launch["status"] == "failed" for launch in launches):
        raise ProfkitError(
            "ncu gave up on a kernel: its launch is in the report without a duration",
            "collect less with --set basic; profkit check --sanitize shows errors in the kernel",
        )
    return [str(launch["kernel"]) for launch in launches]


def _move_report_into_place(
    finished_report: Path,
    final_path: Path,
    command: CommandWords,
    done: process.FinishedCommand,
    kernels: Sequence[KernelName],
) -> CollectedReport:
    """Move a whole report to its place. The record next to the old one no longer fits: it goes."""
    final_path.with_suffix(".json").unlink(missing_ok=True)
    move_file(finished_report, final_path)
    return CollectedReport(final_path, tuple(command), done.seconds, tuple(kernels))
