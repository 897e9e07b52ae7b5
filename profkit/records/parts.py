"""The parts of a run record (profkit.run/1), as they are in its JSON; None is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from profkit.records.store import MaybeEmpty, WhereKnown

if TYPE_CHECKING:
    from profkit.units import TextOrEmpty


class RecordedSource(msgspec.Struct, frozen=True, kw_only=True):
    """What was built: file (problem/name.cu), hashes of its code and machine code, arch, flags.

    sass is the machine code of the kernels, host that of the launcher with the constants it reads.
    made_from is the hash that the record was made with, where only comments changed since.
    """

    file: str | None = None
    sha256: str | None = None
    sass: str | None = None
    host: WhereKnown[str] = None
    arch: str | None = None
    flags: tuple[str, ...] = ()
    made_from: WhereKnown[str] = None


class BuiltKernel(msgspec.Struct, frozen=True, kw_only=True):
    """What ptxas says of one kernel function: registers, bytes of shared memory, spills, stack."""

    name: str | None = None
    mangled: str | None = None
    arch: str | None = None
    regs: float | None = None
    smem: float | None = None
    spills: float | None = None
    stack: float | None = None


class RecordedLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel launch of one call: shape, bytes of shared memory, blocks that fit on an SM."""

    kernel: str | None = None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    dynamic_smem: float | None = None
    static_smem: float | None = None
    regs: float | None = None
    blocks_per_sm: float | None = None

    def describe_in_one_line(self) -> TextOrEmpty:
        """Return a launch in one line; empty where the grid is not known, as in some older records."""
        if not self.grid:
            return ""
        shapes = ("x".join(map(str, shape)) for shape in (self.grid, self.block))
        numbers = self.dynamic_smem, self.static_smem, self.regs, self.blocks_per_sm
        known = ("?" if n is None else f"{n:.12g}" for n in numbers)
        return " ".join([self.kernel or "?", *shapes, *known])


class CheckedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case and seed of the check, with its largest errors and what is wrong with it."""

    case: str | None = None
    seed: int | None = None
    status: str | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    bias: float | None = None
    faults: tuple[str, ...] = ()


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the check came to; sanitizer: tool -> "clean", or what it found."""

    variant: str | None = None
    status: str | None = None
    atol: float | None = None
    rtol: float | None = None
    cases: tuple[CheckedCase, ...] = ()
    sanitizer: Mapping[str, str] = msgspec.field(default_factory=dict)


class TimedSide(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds per call with the L2 warm or cold, in the order taken, with their interval."""

    median: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    width: float | None = None
    samples: tuple[float, ...] = ()


class TimedSides(msgspec.Struct, frozen=True, kw_only=True):
    """With a warm L2, and with a cold one."""

    warm: TimedSide | None = None
    cold: TimedSide | None = None


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """At one moment clocks (Hz), power and its limit (W), temperature (degrees C); None: not known."""

    sm_clock: float | None = None
    memory_clock: float | None = None
    power: float | None = None
    temperature: float | None = None
    throttle: tuple[str, ...] | None = None  # empty: nothing held the clocks; None: not known
    power_limit: WhereKnown[float] = None


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How it was timed; session is equal for all that took turns in one process."""

    method: str | None = None
    l2: TimedSides = TimedSides()
    why_wide: MaybeEmpty = None  # "": it is narrow
    session: str | None = None
    per_sample: float | None = None
    eager: float | None = None
    host: float | None = None
    bare: float | None = None
    host_bound: bool | None = None
    before: GpuState | None = None
    after: GpuState | None = None


class RecordedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """The GPU: name, SMs, bytes of L2, clocks (Hz), bytes per second of DRAM, driver."""

    name: str | None = None
    arch: str | None = None
    sms: int | None = None
    l2: float | None = None
    sm_clock: float | None = None
    dram_bandwidth: float | None = None
    cuda: str | None = None
    pci: str | None = None
    uuid: str | None = None
    driver: str | None = None


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Of the programs that made it; of a library call also torch's own CUDA and cuDNN."""

    nvcc: str | None = None
    compiler: str | None = None
    ncu: str | None = None
    torch: str | None = None
    cuda: WhereKnown[str] = None
    cudnn: WhereKnown[str] = None


class CaseWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the case needs, by problem.py; floors: unit -> seconds that it takes at least."""

    operations: float | None = None
    compulsory_bytes: float | None = None
    exponentials: float | None = None
    floors: Mapping[str, float] = msgspec.field(default_factory=dict)


class LaunchShape(msgspec.Struct, frozen=True, kw_only=True):
    """How a launch fills the GPU: blocks, how many fit on an SM, waves, SMs without a block."""

    kernel: str | None = None
    blocks: int | None = None
    blocks_per_sm: float | None = None
    waves: float | None = None
    idle_sms: int | None = None


class RecordedReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report next to it."""

    file: str | None = None
    sha256: str | None = None
    launches: int | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The commit that was measured; dirty: whether files differed from it."""

    commit: str | None = None
    dirty: bool | None = None


class NcuRun(msgspec.Struct, frozen=True, kw_only=True):
    """How ncu was run; visible is CUDA_VISIBLE_DEVICES where several GPUs shared the work."""

    command: tuple[str, ...] = ()
    seconds: float | None = None
    clock_control: str | None = None
    cache_control: str | None = None
    set: str | None = None
    visible: WhereKnown[str] = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernels of a variant take at most, per thread or block; None where not known."""

    registers: float | None = None
    shared_static: float | None = None  # bytes per block
    shared_dynamic: float | None = None  # bytes per block
    spills: float | None = None  # bytes of spill stores and loads
    stack: float | None = None  # bytes of stack frame per thread
