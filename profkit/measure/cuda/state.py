"""NVML  ->  clocks, power, temperature and what holds the clocks down, at one moment."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from profkit.records.parts import GpuState

# NVML's bits; idle and the application's own setting are no reason for concern.
THROTTLE = {
    0x0000000000000001: "idle",
    0x0000000000000002: "applications clocks setting",
    0x0000000000000004: "software power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000010: "sync boost",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
    0x0000000000000100: "display clocks setting",
}
_HARMLESS = 0x1 | 0x2


@dataclass(frozen=True)
class Identity:
    """Which GPU and driver; None where NVML does not say."""

    uuid: str | None = None
    driver: str | None = None


def _handle(pci: str | None) -> tuple[Any, Any] | None:
    """(pynvml, handle) of a GPU, or None without NVML."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        if pci:
            return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError:
        return None


def arch() -> str | None:
    """The architecture that every GPU here has, such as `90`; None if they differ or NVML is absent.

    NVML answers in 20 ms where cuInit takes 200, but counts GPUs in another order than CUDA may.
    """
    opened = _handle(None)
    if opened is None:
        return None
    nvml, _ = opened
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        archs = {"{}{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(h)) for h in handles}
    except nvml.NVMLError:
        return None
    return archs.pop() if len(archs) == 1 else None


def read_state(pci: str | None = None) -> GpuState:
    """The GPU now.

    `pci` is the bus id as CUDA gives it; None takes NVML's first.
    """
    opened = _handle(pci)
    if opened is None:
        return GpuState()
    nvml, handle = opened

    def ask(unit: float, question: str, *which: str) -> float | None:
        more = (getattr(nvml, name) for name in which)
        value = _asked(nvml, question, handle, *more)
        return None if value is None else value * unit

    bits = _asked(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return GpuState(
        sm_clock=ask(1e6, "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
        memory_clock=ask(1e6, "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
        power=ask(1e-3, "nvmlDeviceGetPowerUsage"),
        temperature=ask(1.0, "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
        throttle=None if bits is None else reasons(bits),
        power_limit=ask(1e-3, "nvmlDeviceGetEnforcedPowerLimit"),
    )


def reasons(bits: int) -> tuple[str, ...]:
    """NVML's throttle bits in words, without idle and the application's own setting."""
    known = tuple(w for b, w in THROTTLE.items() if bits & b and not b & _HARMLESS)
    unknown = bits & ~sum(THROTTLE)
    return (*known, f"unknown reason {unknown:#x}") if unknown else known


def gpu_identity(pci: str | None = None) -> Identity:
    """Which GPU, and which driver."""
    opened = _handle(pci)
    if opened is None:
        return Identity()
    nvml, handle = opened
    answers = _asked(nvml, "nvmlDeviceGetUUID", handle), _asked(nvml, "nvmlSystemGetDriverVersion")
    return Identity(*(a.decode() if isinstance(a, bytes) else a for a in answers))


def _asked(nvml: Any, question: str, *of: Any) -> Any:
    """None where this GPU or driver does not answer."""
    with contextlib.suppress(nvml.NVMLError):
        return getattr(nvml, question)(*of)
    return None
