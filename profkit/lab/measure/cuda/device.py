"""The CUDA driver and NVML  ->  memory, streams and events; clocks, power and temperature.

No toolkit and no torch: libcuda comes with the driver, starts in milliseconds, and shares its
primary context with the CUDA runtime inside each variant and with torch in one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_ulonglong, c_void_p
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.records.parts import GpuState

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        CudaEvent,
        CudaStream,
        DeviceAddress,
        HostAddress,
        Nvml,
        NvmlHandle,
        Seconds,
        SmArch,
    )


NOT_SUPPORTED = 801  # cudaErrorNotSupported: the variant does not handle this case
# After one of these the context is lost: nothing more can run in this process.
STICKY = frozenset({700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 999})
# Codes that the runtime has and the driver's cuGetErrorName does not know.
_RUNTIME = {
    9: "cudaErrorInvalidConfiguration",
    13: "cudaErrorInvalidSymbol",
    98: "cudaErrorInvalidDeviceFunction",
}
_HINTS = {
    2: "something else holds the GPU's memory: nvidia-smi lists it",
    209: "the library was built for another architecture",
    700: "run it again with --sanitize: memcheck names the line",
    719: "run it again with --sanitize: memcheck names the line",
}


class CudaError(ProfkitError):
    """A CUDA call failed; code is its cudaError_t, which the driver shares where both have one."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {get_error_name(code)} ({code})", _HINTS.get(code, ""))
        self.code = code


@dataclass(frozen=True)
class Gpu:
    """The GPU in use. Sizes in bytes, clock rates in Hz, bandwidth in bytes/s."""

    name: str
    arch: str  # `90` for compute capability 9.0
    sms: int
    l2: int
    sm_clock: float  # the highest SM clock
    dram_bandwidth: float  # what memory clock and bus width come to (double data rate)
    cuda: str  # CUDA version that the driver supports, e.g. `13.0`
    pci: str  # PCI bus id, by which NVML knows it
    uuid: str | None = None  # what NVML calls it; None where that was not asked or is not known
    driver: str | None = None  # the driver's version, likewise


@functools.cache
def _load_driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise ProfkitError(
            "no NVIDIA driver: libcuda.so.1 was not found",
            "run this on a machine with an NVIDIA GPU; profkit doctor says what is there",
        ) from error


def get_error_name(code: int) -> str:
    """Return the name of an error code of CUDA."""
    if code in _RUNTIME:
        return _RUNTIME[code]
    name = c_char_p()
    _load_driver().cuGetErrorName(code, byref(name))
    if name.value:
        return name.value.decode()
    return "unknown CUDA error"


def call_driver(function_name: str, *args: Any) -> None:
    """Call one function of the driver; raises CudaError if it fails."""
    code = getattr(_load_driver(), function_name)(*args)
    if code:
        raise CudaError(code, function_name)


@functools.cache
def _init_driver_once() -> None:
    code = _load_driver().cuInit(0)
    if code in (3, 100, 999):
        raise ProfkitError(
            f"no usable GPU: cuInit says {get_error_name(code)}",
            "profkit doctor says what is there",
        )
    if code:
        raise CudaError(code, "cuInit")


def count_gpus() -> int:
    """Return how many GPUs CUDA shows; CudaError without a driver."""
    _init_driver_once()
    number = c_int()
    call_driver("cuDeviceGetCount", byref(number))
    return number.value


@functools.cache
def query_first_gpu() -> Gpu:
    """Return what the first GPU that CUDA shows is; nothing is opened, so this takes milliseconds."""
    _init_driver_once()
    device = c_int()
    version = c_int()
    call_driver("cuDeviceGet", byref(device), 0)
    call_driver("cuDriverGetVersion", byref(version))
    name = ctypes.create_string_buffer(256)
    pci = ctypes.create_string_buffer(64)
    call_driver("cuDeviceGetName", name, 256, device)
    call_driver("cuDeviceGetPCIBusId", pci, 64, device)

    def read_attribute(attribute_number: int) -> int:
        value = c_int()
        call_driver("cuDeviceGetAttribute", byref(value), attribute_number, device)
        return value.value

    return Gpu(
        name=name.value.decode(errors="replace"),
        pci=pci.value.decode(errors="replace"),
        arch=f"{read_attribute(75)}{read_attribute(76)}",
        sms=read_attribute(16),
        l2=read_attribute(38),
        sm_clock=read_attribute(13) * 1e3,
        dram_bandwidth=read_attribute(36) * 1e3 * 2 * read_attribute(37) / 8,
        cuda=f"{version.value // 1000}.{version.value % 1000 // 10}",
    )


@functools.cache
def make_first_gpu_current() -> Gpu:
    """Open that GPU: its primary context becomes this thread's."""
    _init_driver_once()
    device = c_int()
    context = c_void_p()
    call_driver("cuDeviceGet", byref(device), 0)
    call_driver("cuDevicePrimaryCtxRetain", byref(context), device)
    call_driver("cuCtxSetCurrent", context)
    return query_first_gpu()


def allocate_device_memory(size_bytes: ByteCount) -> DeviceAddress:
    """Return the address of so many bytes on the GPU; CudaError where there is no room."""
    pointer = c_ulonglong()
    call_driver("cuMemAlloc_v2", byref(pointer), c_size_t(max(size_bytes, 1)))
    return pointer.value


def free_device_memory(device_pointer: DeviceAddress) -> None:
    """Free memory of the GPU."""
    call_driver("cuMemFree_v2", c_ulonglong(device_pointer))


def copy_to_device(
    device_pointer: DeviceAddress, host_address: HostAddress, size_bytes: ByteCount
) -> None:
    """Copy to the device, finished on return.

    From pageable memory the call returns once the bytes are staged: a kernel on a stream that does
    not wait for the default one would begin before they have arrived.
    """
    call_driver(
        "cuMemcpyHtoD_v2", c_ulonglong(device_pointer), c_void_p(host_address), c_size_t(size_bytes)
    )
    call_driver("cuCtxSynchronize")


def copy_to_host(
    host_address: HostAddress, device_pointer: DeviceAddress, size_bytes: ByteCount
) -> None:
    """Copy bytes from the GPU to an address of the host."""
    call_driver(
        "cuMemcpyDtoH_v2", c_void_p(host_address), c_ulonglong(device_pointer), c_size_t(size_bytes)
    )


def copy_on_device(
    target_pointer: DeviceAddress, source_pointer: DeviceAddress, size_bytes: ByteCount
) -> None:
    """Copy bytes on the GPU."""
    call_driver(
        "cuMemcpyDtoD_v2",
        c_ulonglong(target_pointer),
        c_ulonglong(source_pointer),
        c_size_t(size_bytes),
    )


def fill_device_memory(device_pointer: DeviceAddress, byte: int, size_bytes: ByteCount) -> None:
    """Set device memory to one byte, finished on return."""
    call_driver(
        "cuMemsetD8_v2", c_ulonglong(device_pointer), ctypes.c_ubyte(byte), c_size_t(size_bytes)
    )
    call_driver("cuCtxSynchronize")


def wait_for_gpu_or_stream(stream: CudaStream | None = None) -> None:
    """Wait for a stream, or for all that the GPU was given."""
    if stream is None:
        call_driver("cuCtxSynchronize")
    else:
        call_driver("cuStreamSynchronize", c_void_p(stream))


def create_non_blocking_stream() -> CudaStream:
    """Return a stream that does not wait for the default stream, nor that for it."""
    stream = c_void_p()
    call_driver("cuStreamCreate", byref(stream), 1)
    return stream.value or 0


def create_event() -> CudaEvent:
    """Create an event and return its handle."""
    event = c_void_p()
    call_driver("cuEventCreate", byref(event), 0)
    return event.value or 0


def record_event(event: CudaEvent, stream: CudaStream) -> None:
    """Record an event on a stream."""
    call_driver("cuEventRecord", c_void_p(event), c_void_p(stream))


def measure_seconds_between_events(start_event: CudaEvent, stop_event: CudaEvent) -> Seconds:
    """Return seconds between two events that have happened; the step is about half a microsecond."""
    milliseconds = c_float()
    call_driver(
        "cuEventElapsedTime", byref(milliseconds), c_void_p(start_event), c_void_p(stop_event)
    )
    return milliseconds.value * 1e-3


def end_failed_capture(stream: CudaStream) -> None:
    """End a capture that failed; the stream is usable again."""
    graph = c_void_p()
    _load_driver().cuStreamEndCapture(c_void_p(stream), byref(graph))


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


def _find_nvml_handle(pci_bus_id: str | None) -> tuple[Nvml, NvmlHandle] | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        if pci_bus_id:
            return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
        return pynvml, pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError:
        return None


def find_common_arch() -> SmArch | None:
    """Return the architecture that every GPU here has, such as `90`; None if they differ.

    NVML answers in 20 ms where cuInit takes 200, but counts GPUs in another order than CUDA may.
    """
    opened = _find_nvml_handle(None)
    if opened is None:
        return None
    nvml, _ = opened
    try:
        archs = set()
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            archs.add("{}{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)))
    except nvml.NVMLError:
        return None
    if len(archs) == 1:
        return archs.pop()
    return None


def read_gpu_state(pci_bus_id: str | None = None) -> GpuState:
    """Return the GPU's state now; `pci_bus_id` is CUDA's, None takes NVML's first GPU."""
    opened = _find_nvml_handle(pci_bus_id)
    if opened is None:
        return GpuState()
    nvml, handle = opened

    def ask_scaled(unit: float, question: str, *which: str) -> float | None:
        """Return an answer of NVML times `unit`; None where it has none."""
        more = (getattr(nvml, name) for name in which)
        value = _ask_nvml(nvml, question, handle, *more)
        if value is None:
            return None
        scaled: float = value * unit
        return scaled

    bits = _ask_nvml(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return GpuState(
        sm_clock=ask_scaled(1e6, "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
        memory_clock=ask_scaled(1e6, "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
        power=ask_scaled(1e-3, "nvmlDeviceGetPowerUsage"),
        temperature=ask_scaled(1.0, "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
        throttle=None if bits is None else list_causes_of_throttling(bits),
        power_limit=ask_scaled(1e-3, "nvmlDeviceGetEnforcedPowerLimit"),
    )


def list_causes_of_throttling(throttle_bits: int) -> tuple[str, ...]:
    """Return NVML's throttle bits in words, without idle and the application's own setting."""
    causes = []
    for bit, words in THROTTLE.items():
        if throttle_bits & bit and not bit & _HARMLESS:
            causes.append(words)
    unknown = throttle_bits & ~sum(THROTTLE)
    if unknown:
        causes.append(f"unknown reason {unknown:#x}")
    return tuple(causes)


def add_gpu_uuid_and_driver(gpu: Gpu) -> Gpu:
    """Return the GPU with its UUID and the driver's version; None where NVML does not say."""
    opened = _find_nvml_handle(gpu.pci)
    if opened is None:
        return gpu
    nvml, handle = opened
    answers = (
        _ask_nvml(nvml, "nvmlDeviceGetUUID", handle),
        _ask_nvml(nvml, "nvmlSystemGetDriverVersion"),
    )
    uuid, driver = (a.decode() if isinstance(a, bytes) else a for a in answers)
    return replace(gpu, uuid=uuid, driver=driver)


def _ask_nvml(nvml: Nvml, question: str, *of: Any) -> Any:
    """Return None where this GPU or driver does not answer."""
    with contextlib.suppress(nvml.NVMLError):
        return getattr(nvml, question)(*of)
    return None
