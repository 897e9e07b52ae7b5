"""What ncu and its program print  ->  a log, the program's own words, how far it is, what went wrong.

ncu writes a line for each kernel in pieces (`==PROF== Profiling "f" - 3 (4/62): 0%....50%...`),
between lines of the program. All of it goes into the log; only what is the program's is passed on.
Faults are a table, of which the first line that matches explains the run; its texts are those of
Nsight Compute 2020 to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect.process import Sink
from profkit.errors import ProfkitError
from profkit.files import open_new_log
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import Clause, KernelName, NcuOptions, RegexText


class NoCounters(ProfkitError):
    """This user may not read performance counters: timing works, ncu does not."""


PERMISSION = (
    "run as root, or let every user read counters: "
    'echo "options nvidia NVreg_RestrictProfilingToAdminUsers=0" > /etc/modprobe.d/nvidia-prof.conf'
    " and reboot; in a container, start it with --cap-add=SYS_ADMIN; or do without counters: "
    "profkit profile --no-counters, or profkit ablate VARIANT, measures what each cause costs"
)
LOCK = (
    "another ncu is running, or one of another user left its lock: wait for it, delete the file, "
    "or set TMPDIR to a folder of your own"
)
_FAULTS = (  # (pattern, message, hint)
    (r"ERR_NVGPUCTRPERM", "this user may not read the GPU's performance counters", PERMISSION),
    (
        r"nsight-compute-lock|Failed to (?:open|create|acquire).*lock",
        "ncu cannot get its lock file (nsight-compute-lock in the folder for temporary files)",
        LOCK,
    ),
    (
        r"No space left on device|Failed to (?:save|write|export|create) (?:the )?(?:report|file)"
        r"|Failed to open.*ncu-rep",
        "ncu could not write its report",
        "make room on the disk, or choose another folder with --artifacts",
    ),
    (
        r"driver is not compatible|InsufficientDriver|driver version is (?:insufficient|too old)"
        r"|not supported by this version|UnsupportedGpu|No supported GPU|LibraryNotLoaded"
        r"|Unsupported driver|DriverNotSupported",
        "this Nsight Compute does not go with this driver or GPU",
        "install the Nsight Compute of the CUDA version that nvidia-smi shows; "
        "profkit doctor lists both versions",
    ),
    (
        r"resource was unavailable|DriverResourceUnavailable",
        "another tool holds the GPU's profiling hardware",
        "stop other profilers (ncu, nsys, DCGM: dcgmi profile --pause) and run it again",
    ),
    (
        r"CUDA_ERROR_OUT_OF_MEMORY|[Oo]ut of memory|std::bad_alloc|MemoryError",
        "out of memory under ncu, which keeps a copy of what a kernel overwrites",
        "choose a smaller case, or free the GPU: nvidia-smi lists who uses it",
    ),
    (
        r"unrecogni[sz]ed option|unknown option|the argument .* is invalid",
        "this ncu does not know an option that profkit gives it",
        "install Nsight Compute 2022.1 or newer",
    ),
    (
        r"Failed to prepare kernel|Failed to profile|Unknown Error on device",
        "ncu gave up on a kernel",
        "run profkit check --sanitize: an error inside the kernel shows there; "
        "else collect less: --set basic",
    ),
)


def explain_known_fault(output: str) -> ProfkitError | None:
    """Return the error that stands for a known fault in the output of ncu; None where there is none."""
    for pattern, message, hint in _FAULTS:
        if match := re.search(pattern, output):
            start = output.rfind("\n", 0, match.start()) + 1
            line, *_ = output[start:].split("\n", 1)
            line = re.sub(r"^==\w+==\s*", "", line.strip())
            line = line if len(line) <= 200 else line[:197] + "..."
            kind = NoCounters if hint is PERMISSION else ProfkitError
            return kind(f"{message}: {line}", hint)
    return None


def find_program_failure(output: str) -> Clause | None:
    """Return how the profiled program ended, if ncu says that it failed."""
    if m := re.search(r"The application returned an error code \((-?\d+)\)", output):
        return f"it returned {m[1]}"
    if m := re.search(r"The application terminated with(?: signal)? ?\(?(\w+)\)?", output):
        return f"it was killed by signal {m[1]}"
    return None


LOG = ".ncu.log"  # next to the report run.ncu-rep; run.log may be the user's own
_MARK = b"=="  # what a line of ncu begins with
_KERNEL = re.compile(rb'^==PROF== Profiling "(?P<name>.*)" - (?P<n>\d+)(?: \(\d+/(?P<of>\d+)\))?:')
_AVAILABLE = re.compile(r"^(?:==\w+==)?\s*\d+\.\s+(?P<name>\S.*)$")
_PENDING = 1 << 16  # bytes of a line without an end that are kept to look at
Progress = Callable[[int, int | None, str], None]


class NcuOutputSplitter:
    """A place for a program's output under ncu.

    The log gets all of it, `program` the program's own words. `progress` is called with a kernel's
    number, how many there will be (None: not known) and its name.
    """

    def __init__(
        self, log: Path, program: Sink | None = None, progress: Progress | None = None
    ) -> None:
        self.log = log
        self._program = program
        self._progress = progress
        self._line = b""
        self._begun = False
        self._seen = -1
        try:
            self._file = open_new_log(log)
        except OSError as error:
            raise ProfkitError(
                f"{log}: cannot be written: {error.strerror}", "choose another folder with -o"
            ) from error

    def write(self, content: bytes) -> int:
        """Write to the log, and pass on what is the program's own."""
        self._file.write(content)
        for part in content.splitlines(keepends=True):
            self._process_part(part)
        return len(content)

    def flush(self) -> None:
        """Write out what is held back."""
        self._file.flush()
        if self._program:
            self._program.flush()

    def close(self) -> None:
        """Pass on what is left, and close the log."""
        self._forward_program_output()
        self._file.close()

    def _process_part(self, part: bytes) -> None:
        """Take a part of a line: of ncu's own, or of the program's."""
        self._line = (self._line + part)[-_PENDING:]
        ends = part.endswith((b"\n", b"\r"))
        if self._is_ncu_line():
            self._report_progress()
        elif ends or not _MARK.startswith(self._line[:2]):
            self._forward_program_output()
        if ends:
            self._line = b""
            self._begun = False

    def _is_ncu_line(self) -> bool:
        """Return whether ncu wrote the line that has begun."""
        return not self._begun and self._line.startswith(_MARK)

    def _forward_program_output(self) -> None:
        """Pass on what the program wrote of a line."""
        if self._program and self._line and not self._is_ncu_line():
            self._program.write(self._line)
        self._begun = True
        self._line = b""

    def _report_progress(self) -> None:
        """Report a kernel that ncu begins with."""
        line = _KERNEL.match(self._line)
        if line is None or self._progress is None or int(line["n"]) == self._seen:
            return
        self._seen = int(line["n"])
        of = int(line["of"]) if line["of"] else None
        name = line["name"].decode("utf-8", "replace")
        self._progress(self._seen + 1, of, get_base_name_of_kernel(name) or name)


def list_kernels_named_by_ncu(output: str) -> list[KernelName]:
    """Return the kernels that ncu names where none matched, each once and short."""
    _, _, listed = output.partition("Available Kernels:")
    names: dict[str, None] = {}  # in their order
    for line in listed.splitlines():
        match = _AVAILABLE.match(line)
        if match:
            name = match["name"].strip()
            names[get_base_name_of_kernel(name) or name] = None
    return list(names)


def make_pattern_case_insensitive(pattern: str) -> RegexText:
    """Return an expression that matches letters of either case, for an engine without that flag."""
    out = []
    at = 0
    inside = False
    while at < len(pattern):
        rest = pattern[at:]
        c = pattern[at]
        if c == "\\":
            taken = both = rest[:2]
        elif inside and (m := re.match(r"\[:\w+:\]", rest)):
            taken = both = m[0]
        elif inside and (m := re.match(r"([a-zA-Z])-([a-zA-Z])", rest)):
            taken = m[0]
            both = taken.lower() + taken.upper() if m[1].islower() == m[2].islower() else taken
        else:
            inside = c != "]" and (inside or c == "[")
            taken = c
            both = c.lower() + c.upper() if c.isascii() and c.isalpha() else c
            both = both if inside or both == c else f"[{both}]"
        out.append(both)
        at += len(taken)
    return "".join(out)


def make_nvtx_filter_options(name: str) -> NcuOptions:
    """Return options of ncu for launches inside of a range, pushed (NAME/) or started and ended (NAME).

    The name is DOMAIN@NAME for a range that is not of the default domain.
    """
    plain = re.sub(r"([/\[\]*+\\])", r"\\\1", name)
    return ("--nvtx-include", f"{plain}/", "--nvtx-include", plain)
