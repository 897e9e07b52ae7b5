"""What NVML says of the GPUs, with a stand-in for NVML."""

import sys
from types import SimpleNamespace

import pytest

from profkit.lab.measure.cuda import device


class NVMLError(Exception):
    pass


def nvml(*capabilities: tuple[int, int]) -> SimpleNamespace:
    def init() -> None:
        if not capabilities:
            raise NVMLError

    return SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlDeviceGetCount=lambda: len(capabilities),
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetCudaComputeCapability=lambda i: capabilities[i],
    )


@pytest.mark.parametrize(
    ("capabilities", "arch"),
    [([(9, 0)], "90"), ([(12, 0), (12, 0)], "120"), ([(8, 9), (9, 0)], None), ([], None)],
)
def test_an_architecture_is_named_only_if_all_gpus_share_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: list[tuple[int, int]], arch: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(*capabilities))
    assert device.find_common_arch() == arch


def test_without_nvml_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert device.find_common_arch() is None
