"""What ncu printed  ->  what is wrong, and what to do about it.

One table; the first line of it that matches explains the run. Texts are those of Nsight Compute
2020 to 2026.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from profkit.errors import ProfkitError


class NoCounters(ProfkitError):
    """This user may not read performance counters: timing works, ncu does not."""


@dataclass(frozen=True)
class Fault:
    """One way in which a run of ncu fails."""

    pattern: str
    message: str
    hint: str


PERMISSION = (
    "run as root, or let every user read counters: "
    'echo "options nvidia NVreg_RestrictProfilingToAdminUsers=0" > /etc/modprobe.d/nvidia-prof.conf'
    " and reboot; in a container, start it with --cap-add=SYS_ADMIN"
)
LOCK = (
    "another ncu is running, or one of another user left its lock: wait for it, delete the file, "
    "or set TMPDIR to a folder of your own"
)
_FAULTS = (
    Fault(r"ERR_NVGPUCTRPERM", "this user may not read the GPU's performance counters", PERMISSION),
    Fault(
        r"nsight-compute-lock|Failed to (?:open|create|acquire).*lock",
        "ncu cannot get its lock file (nsight-compute-lock in the folder for temporary files)",
        LOCK,
    ),
    Fault(
        r"No space left on device|Failed to (?:save|write|export|create) (?:the )?(?:report|file)"
        r"|Failed to open.*ncu-rep",
        "ncu could not write its report",
        "make room on the disk, or choose another folder with --artifacts",
    ),
    Fault(
        r"driver is not compatible|InsufficientDriver|driver version is (?:insufficient|too old)"
        r"|not supported by this version|UnsupportedGpu|No supported GPU|LibraryNotLoaded"
        r"|Unsupported driver|DriverNotSupported",
        "this Nsight Compute does not go with this driver or GPU",
        "install the Nsight Compute of the CUDA version that nvidia-smi shows; "
        "profkit doctor lists both versions",
    ),
    Fault(
        r"resource was unavailable|DriverResourceUnavailable",
        "another tool holds the GPU's profiling hardware",
        "stop other profilers (ncu, nsys, DCGM: dcgmi profile --pause) and run it again",
    ),
    Fault(
        r"CUDA_ERROR_OUT_OF_MEMORY|[Oo]ut of memory|std::bad_alloc|MemoryError",
        "out of memory under ncu, which keeps a copy of what a kernel overwrites",
        "choose a smaller case, or free the GPU: nvidia-smi lists who uses it",
    ),
    Fault(
        r"unrecogni[sz]ed option|unknown option|the argument .* is invalid",
        "this ncu does not know an option that profkit gives it",
        "install Nsight Compute 2022.1 or newer",
    ),
    Fault(
        r"Failed to prepare kernel|Failed to profile|Unknown Error on device",
        "ncu gave up on a kernel",
        "run profkit check --sanitize: an error inside the kernel shows there; "
        "else collect less: --set basic",
    ),
)


def known_fault(output: str) -> ProfkitError | None:
    """The first known fault in ncu's output."""
    for fault in _FAULTS:
        if match := re.search(fault.pattern, output):
            kind = NoCounters if fault.hint is PERMISSION else ProfkitError
            return kind(f"{fault.message}: {_line(output, match.start())}", fault.hint)
    return None


def _line(output: str, at: int) -> str:
    """The line of the output that holds a position, cut to a sensible length."""
    start = output.rfind("\n", 0, at) + 1
    end = output.find("\n", at)
    line = output[start : end if end >= 0 else None].strip()
    line = re.sub(r"^==\w+==\s*", "", line)
    return line if len(line) <= 200 else line[:197] + "..."


def program_failed(output: str) -> str | None:
    """How the profiled program ended, if ncu says that it failed."""
    if m := re.search(r"The application returned an error code \((-?\d+)\)", output):
        return f"it returned {m[1]}"
    if m := re.search(r"The application terminated with(?: signal)? ?\(?(\w+)\)?", output):
        return f"it was ended by signal {m[1]}"
    return None


def said_by_program(output: str) -> str:
    """The last line that the profiled program itself printed."""
    own = [s for s in output.splitlines() if s.strip() and not s.startswith("==")]
    return own[-1].strip()[:200] if own else ""
