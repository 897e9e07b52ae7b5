from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
from profkit.lab.measure.variants import toolchain as doctor
from profkit.records.parts import GpuState

from .conftest import Machine


def by_name() -> dict[str, doctor.Inspection]:
    return {f.name: f for f in doctor.inspect_machine()}


def test_on_a_machine_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> None:
        raise ProfkitError("no NVIDIA driver: libcuda.so.1 was not found")

    for cached in (device.query_first_gpu, device.make_first_gpu_current, device._init_driver_once):
        cached.cache_clear()
    monkeypatch.setattr(device, "_load_driver", nothing)
    monkeypatch.setattr("profkit.collect.tools.find_tool", lambda _: None)
    monkeypatch.setattr(doctor, "PARAMETERS", tmp_path / "params")
    found = by_name()
    for name in ("GPU", "nvcc", "ninja", "ncu", "compute-sanitizer"):
        assert found[name].status == "missing"
        assert found[name].advice
    assert found["counters"].status == "warning"


@pytest.mark.slow
def test_on_a_machine_with_a_gpu(machine: Machine) -> None:
    found = by_name()
    assert found["GPU"].detail == "Stand-in GPU, sm_90, 132 SMs"
    assert found["nvcc"].status == "ok"
    assert "2025.3.1" in found["ncu"].detail


@pytest.mark.parametrize(
    ("said", "root", "allowed"),
    [
        ("RmProfilingAdminOnly: 1\n", False, False),
        ("RmProfilingAdminOnly: 1\n", True, True),
        ("A: 3\nRmProfilingAdminOnly: 0\n", False, True),
        ("A: 3\n", False, None),
    ],
)
def test_who_may_read_counters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, root: bool, allowed: bool | None
) -> None:
    (tmp_path / "params").write_text(said)
    monkeypatch.setattr("os.geteuid", lambda: 0 if root else 1000)
    assert doctor.can_read_counters(tmp_path / "params") is allowed
    assert doctor.can_read_counters(tmp_path / "none") is None


def test_a_lock_of_another_user_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    (tmp_path / "nsight-compute-lock").write_text("")
    monkeypatch.setattr("os.access", lambda *_: False)
    (found,) = doctor._examine_ncu_lock()
    assert found.status == "missing"
    assert "TMPDIR" in found.advice


def test_throttle_bits_in_words() -> None:
    assert device.list_causes_of_throttling(0) == ()
    assert device.list_causes_of_throttling(0x1 | 0x2) == ()
    assert device.list_causes_of_throttling(0x4 | 0x40) == (
        "software power cap",
        "hardware thermal slowdown",
    )
    assert device.list_causes_of_throttling(1 << 20) == ("unknown reason 0x100000",)


def test_without_nvml_nothing_is_known_and_nothing_is_zero() -> None:
    now = device.read_gpu_state("0000:00:00.0")
    if now == GpuState():
        assert now.sm_clock is None
        assert now.throttle is None
