"""A word of the verdict (ncu's own), or a source line  ->  plain words: "data from shared memory"."""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from profkit.diagnosis.launches import LINES, Judged
from profkit.diagnosis.rule import Diagnosis, Finding, SourceShare
from profkit.diagnosis.rules import waits
from profkit.reports.figures import share
from profkit.show.text.figures import worth

WAITS = dict(sorted(waits.WAITS.items()))
# What is full, by the unit's limiter.
UNITS = {
    "atomics": "atomics on few addresses",
    "constant": "the constant cache",
    "dram": "DRAM bandwidth",
    "fp16": "the FP16 pipe",
    "fp32": "the FP32 pipe",
    "fp64": "the FP64 pipe",
    "int": "the integer pipe",
    "issue": "the issue slots",
    "l1": "L1 bandwidth",
    "l2": "L2 bandwidth",
    "shared": "shared memory",
    "tensor": "the tensor cores",
    "texture": "the texture unit",
    "xu": "the special functions",
}
# What is wrong with a launch's shape.
SHAPES = {
    "grid_too_small": "a grid with too few blocks for the GPU",
    "imbalance": "SMs that get unequal work",
    "tail": "a last wave of blocks that fills few SMs",
    "too_short": "the launch itself, which takes as long as the work",
}
BOUNDS = {
    "memory": "a unit of the memory system is near what it can reach",
    "compute": "a pipe or the issue slots are near what they can reach",
    "latency": "nothing is near its peak: the warps wait, and too few others are ready meanwhile",
    "launch": "the shape of the launch leaves the GPU idle",
    "balanced": "a unit of the memory system and one that computes are near what they reach at once",
    "unknown": "what would decide was not collected",
}


def bound_by(diagnosis: Diagnosis) -> str:
    """The verdict as the rest of a sentence that begins with the kernel's name."""
    limiter = diagnosis.limiter
    if limiter is None:
        if diagnosis.bound == "latency":
            return "waits: nothing is near its peak"
        return "waits for something that was not collected"
    if diagnosis.bound == "latency":
        return f"waits for {WAITS.get(limiter, limiter)} ({limiter})"
    if diagnosis.bound == "launch":
        return f"is held back by {SHAPES.get(limiter, limiter)} ({limiter})"
    units = " and ".join(UNITS.get(part, part) for part in limiter.split("+"))
    return f"is bound by {units} ({limiter})"


def named(run: Judged) -> str:
    """The variant and the case that a launch is of; "" where it is of none."""
    return " ".join(filter(None, (run.variant, run.case)))


def in_report(run: Judged) -> str:
    """A launch by the file that it is in: "my.ncu-rep #0"."""
    return f"{basename(run.report)} #{run.index}"


def device_of(run: Judged) -> str:
    """What it ran on."""
    return run.device or "device unknown"


def finding_words(finding: Finding) -> str:
    """A finding behind the name of its rule: what fixing it is worth, and the cause."""
    expected = "" if finding.note else f" ({worth(finding)})"
    return f"{expected}: {finding.cause}"


def at(line: SourceShare) -> str:
    """A line and its part: "stage.cu:41 (63 %, for LDG at stage.cu:38)"."""
    source = line.waits_for
    where = f"{basename(line.file)}:{line.line}"
    if source is None:
        return f"{where} ({share(line.share)})"
    if (source.file, source.line) == (line.file, line.line):
        return f"{where} ({share(line.share)}, for {source.opcode})"
    return f"{where} ({share(line.share)}, for {source.opcode} at {basename(source.file)}:{source.line})"


def places_text(finding: Finding) -> str:
    """The first few lines where a finding happens, in one line."""
    return ", ".join(at(line) for line in finding.where[:LINES])


def listed(finding: Finding) -> Iterator[tuple[str, str]]:
    """Every line of a finding: where it is and its part, and its text ("" when not known)."""
    for line in finding.where:
        yield at(line), line.source or ""
