"""Recordings that profkit does not read: how each is known, and what works in its place.

One table: the errors say it, and docs/howto/triage.md shows it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from profkit.errors import ProfkitError

TORCH = "record with torch.profiler (export_chrome_trace) or nsys; or profkit triage -- COMMAND"
NVIDIA_ONLY = "triage supports NVIDIA GPUs, and AMD GPUs except for findings about NVIDIA's units"


@dataclass(frozen=True)
class OtherRecording:
    """A kind of recording that is recognised, and not read."""

    what: str  # "a trace of an Intel XPU"
    instead: str  # what works in its place
    suffixes: tuple[str, ...] = ()  # how its file's name ends
    begins: tuple[bytes, ...] = ()  # how its content begins, without what is blank
    holds: tuple[bytes, ...] = ()  # all of these stand in its first kilobytes
    tables: tuple[str, ...] = ()  # of a SQLite file: how a table's name begins
    categories: tuple[str, ...] = ()  # of a Chrome trace: how an event's category begins
    processes: tuple[str, ...] = ()  # of a Chrome trace: how a process's name begins


OTHERS = (
    OtherRecording(
        what="a trace of an Intel XPU",
        instead=NVIDIA_ONLY,
        categories=("xpu_",),
    ),
    OtherRecording(
        what="a trace of an MTIA accelerator",
        instead=NVIDIA_ONLY,
        categories=("mtia_",),
    ),
    OtherRecording(
        what="a trace of an Ascend NPU",
        instead=NVIDIA_ONLY,
        categories=("npu", "Ascend Hardware"),
        processes=("Ascend Hardware", "CANN"),
    ),
    OtherRecording(
        what="a trace of a Gaudi HPU",
        instead=NVIDIA_ONLY,
        categories=("hpu_",),
    ),
    OtherRecording(
        what="a trace of another accelerator (PyTorch's PrivateUse1)",
        instead=NVIDIA_ONLY,
        categories=("privateuse1_", "musa_", "mlu_"),
    ),
    OtherRecording(
        what="a trace of JAX or TensorFlow (XLA's trace viewer)",
        instead="profkit triage -- python train.py, or nsys profile and its SQLite export",
        processes=("/device:", "/host:", "/job:"),
    ),
    OtherRecording(
        what="an XPlane of JAX or TensorFlow",
        instead="profkit triage -- python train.py, or nsys profile and its SQLite export",
        suffixes=(".xplane.pb",),
    ),
    OtherRecording(
        what="a dump of an XLA program, which has no times",
        instead="profkit triage -- python train.py, or nsys profile and its SQLite export",
        begins=(b"HloModule",),
    ),
    OtherRecording(
        what="a profile of Proton (Triton), which has times of kernels and no timeline of the host",
        instead=TORCH,
        suffixes=(".hatchet", ".chrome_trace"),
        holds=(b'"children"', b'"frame"', b'"metrics"'),
    ),
    OtherRecording(
        what="a PyTorch execution trace, which has operators and no times of the GPU",
        instead="record with torch.profiler too, and give the file that export_chrome_trace wrote",
        holds=(b'"schema"', b'"nodes"', b'"inputs"'),
    ),
    OtherRecording(
        what="counters of kernels taken by torch.profiler (CUPTI's range profiler)",
        instead="record once more without profiler metrics: counting runs kernels one by one",
        categories=("cuda_profiler_range",),
    ),
    OtherRecording(
        what="a recording of ROCm's own profilers",
        instead="record with torch.profiler (export_chrome_trace)",
        suffixes=(".rpd", ".pftrace", "results.csv"),
        holds=(b"rocprofiler-sdk-tool",),
        tables=("rocpd_",),
    ),
    OtherRecording(
        what="a recording of nvprof",
        instead="record with nsys profile --trace=cuda,nvtx, and export it",
        suffixes=(".nvvp", ".nvprof"),
        tables=("CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",),
    ),
    OtherRecording(
        what="a report of Nsight Systems, which must be exported to SQLite",
        instead="nsys export --type sqlite --output x.sqlite REPORT",
        suffixes=(".nsys-rep", ".qdrep", ".qdstrm", ".nsys-rep.zip"),
    ),
    OtherRecording(
        what="a packed archive",
        instead="unpack it and give the recording in it; a .zip is read as it is",
        suffixes=(".tar", ".tgz", ".txz", ".tbz2", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst"),
        begins=(b"\xfd7zXZ\0", b"BZh", b"7z\xbc\xaf\x27\x1c", b"Rar!"),
    ),
    OtherRecording(
        what="samples of a CPU profiler",
        instead=TORCH,
        suffixes=(".speedscope.json", ".prof", ".folded"),
        holds=(b"speedscope",),
    ),
    OtherRecording(
        what="a snapshot of the GPU's memory",
        instead=TORCH,
        suffixes=(".pickle", ".pkl"),
    ),
)


def explain_known_kind(
    path: Path,
    *,
    head: bytes = b"",
    tables: Collection[str] = (),
    categories: Collection[str] = (),
    processes: Collection[str] = (),
) -> ProfkitError | None:
    """Return what to say of a file that cannot be read, where it is of a known kind.

    Args:
        path: The file.
        head: Its first kilobytes.
        tables: Of a SQLite file.
        categories: Of the events of a Chrome trace.
        processes: Names of the processes of a Chrome trace.
    """
    for other in OTHERS:
        known = (
            path.name.lower().endswith(other.suffixes)
            or head.lstrip().startswith(other.begins)
            or (bool(other.holds) and all(word in head for word in other.holds))
            or _any_name_starts_with(tables, other.tables)
            or _any_name_starts_with(categories, other.categories)
            or _any_name_starts_with(processes, other.processes)
        )
        if known:
            return ProfkitError(f"{path}: {other.what}, which triage cannot read", other.instead)
    return None


def _any_name_starts_with(names: Collection[str], beginnings: tuple[str, ...]) -> bool:
    """Return whether one of some names begins like one of those that are known."""
    return any(name.startswith(beginnings) for name in names)


def list_unread_formats() -> Iterator[tuple[str, str]]:
    """Yield what is not read, and what works in its place, as rows of the table in the docs."""
    for other in OTHERS:
        yield other.what, other.instead
