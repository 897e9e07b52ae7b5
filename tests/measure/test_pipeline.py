"""The whole line on a stand-in machine: build, check, time, collect, record."""

import json
from pathlib import Path
from typing import Any

import pytest

from profkit.lab.measure import pipeline, session, targets
from profkit.lab.measure.targets import TargetRun
from profkit.records.store import compute_sha256_of_file
from tests.measure.conftest import Machine

pytestmark = pytest.mark.slow


def measure(machine: Machine, *names: str, time: bool = False) -> TargetRun:
    target = targets.find_target_by_options(
        targets.LabFolders(machine.kernels), names, False, (), False
    )
    return pipeline.measure_target(target, lambda _: None, is_timed=time)


def faults(target_run: TargetRun, name: str) -> list[str]:
    return [f"{c.case}: {f}" for c in target_run.measured.checks[name].cases for f in c.faults]


def test_a_right_variant_is_right_on_every_case(machine: Machine) -> None:
    machine.write("v1_plain.cu")
    target_run = measure(machine, "v1")
    check = target_run.measured.checks["v1"]
    assert check.status == "right", check
    assert [(c.case, c.seed) for c in check.cases] == [
        *(("n1", 0), ("n1", 1), ("n17", 0), ("n17", 1), ("B", 0)),
    ]
    (launch,) = target_run.measured.launches["v1", "B"]
    assert launch.kernel in ("attention_scalar()", "_Z16attention_scalarv")
    assert (launch.grid, launch.block, launch.dynamic_smem) == ((4, 1, 1), (128, 1, 1), 2048)
    assert target_run.measured.gpu is not None
    assert (target_run.measured.gpu.name, target_run.measured.gpu.arch) == ("Stand-in GPU", "90")


BAD = {
    "nan": ({"inside": "out[n - 1] = 0x7fff;"}, "1 elements are NaN or infinite"),
    "value": ({"inside": "out[n / 2] ^= 0x8000;"}, "1 of 17 elements are wrong, worst at [8]"),
    "unwritten": ({"inside": "out[n - 1] = 0xffff;"}, "1 of 17 elements were never written"),
    "behind": ({"inside": "out[n] = 0;"}, "2 bytes written behind output 0"),
    "before": ({"inside": "out[-1] = 0;"}, "before output 0"),
    "input": (
        {"inside": "const_cast<uint16_t*>(in)[0] ^= 1;"},
        "input 0 was overwritten: 1 bytes changed",
    ),
    "stream": (
        {"before": "static void* other; if (!other) cuStreamCreate(&other, 1);", "stream": "other"},
        "work ran on another stream",
    ),
    "waits": ({"before": "cuCtxSynchronize();"}, "the launcher waits for the device"),
    # Reads its input when it is launched, not when its turn has come.
    "early": (
        {
            "before": "static uint16_t seen[4096]; std::memcpy(seen, a->in[0], 2 * a->size[0]); "
            "static ProfkitArgs early; early = *a; early.in[0] = seen; a = &early;",
        },
        "does it miss a griddepcontrol.wait?",
    ),
    "code": ({"before": "return cudaErrorInvalidValue;"}, "profkit_launch: "),
}


@pytest.mark.parametrize("name", BAD)
def test_each_way_to_be_wrong_is_named(machine: Machine, name: str) -> None:
    how, expected = BAD[name]
    machine.write(f"{name}_x.cu", **how)
    target_run = measure(machine, name)
    assert target_run.measured.checks[name].status == ("failed" if name == "code" else "wrong")
    assert any(expected in f for f in faults(target_run, name)), faults(target_run, name)
    assert (name, "B") not in target_run.measured.times


def test_not_supported_is_not_wrong(machine: Machine) -> None:
    machine.write("no_x.cu", before="return cudaErrorNotSupported;")
    machine.write("some_x.cu", before="if (a->size[0] == 17) return cudaErrorNotSupported;")
    target_run = measure(machine, "no", "some")
    assert target_run.measured.checks["no"].status == "not supported"
    assert target_run.measured.checks["some"].status == "right"


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("if (a->size[0] == 17) return cudaErrorIllegalAddress;", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("if (a->size[0] == 17) *(volatile int*)0 = 1;", "the process crashed"),
        ("if (a->size[0] == 17) sleep(600);", "it hung"),
    ],
)
def test_a_lost_variant_fails_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, before: str, why: str
) -> None:
    monkeypatch.setattr(session, "TIMEOUT", 3.0)
    machine.write("bad_x.cu", before=before)
    machine.write("good_x.cu")
    target_run = measure(machine, "bad", "good")
    assert target_run.measured.checks["bad"].status == "failed"
    assert why in faults(target_run, "bad")[0]
    assert target_run.measured.checks["good"].status == "right"


def test_times_have_samples_and_conditions(machine: Machine) -> None:
    machine.write("v1_x.cu")
    machine.write("v2_x.cu")
    target_run = measure(machine, "v1", "v2", time=True)
    for name in ("v1", "v2"):
        times = target_run.measured.times[name, "B"]
        assert len(times.warm) >= 30
        assert len(times.warm) == len(times.cold)
        assert min(times.warm) > 0
        assert times.per_sample > 1
        assert times.is_host_bound is False
    assert (
        len({t.session for t in target_run.measured.times.values()}) == 1
    )  # one process timed both


def test_what_is_wrong_after_many_launches_has_no_times(machine: Machine) -> None:
    machine.write("worn_x.cu", inside="static int n_; if (++n_ > 200) out[0] ^= 0x8000;")
    machine.write("good_x.cu")
    target_run = measure(machine, "worn", "good", time=True)
    assert target_run.measured.checks["worn"].status == "wrong"
    assert any(
        f.startswith("B: after timing: output 0: 1 of 500") for f in faults(target_run, "worn")
    )
    assert [name for name, _ in target_run.measured.times] == ["good"]
    why = pipeline.explain_missing_verdict(target_run, "worn", "B")
    assert why is not None
    assert "after timing" in why.message


def test_a_slow_launcher_is_host_bound(machine: Machine) -> None:
    machine.write("slow_x.cu", before="usleep(500);")
    target_run = measure(machine, "slow", time=True)
    assert target_run.measured.times["slow", "B"].is_host_bound is True


def test_a_variant_that_does_not_compile_is_left_out(machine: Machine) -> None:
    machine.write("bad_x.cu", inside="no_such_thing();")
    machine.write("good_x.cu")
    target_run = measure(machine, "bad", "good")
    assert "no_such_thing" in (target_run.builds["bad"].error or "")
    assert target_run.measured.checks.keys() == {"good"}


def profile(machine: Machine, *names: str, **options: object) -> list[pipeline.Profiled]:
    from profkit.collect import profiler

    target = targets.find_target_by_options(
        targets.LabFolders(machine.kernels), names, False, ("B",), False
    )
    return pipeline.profile_target(
        target,
        machine.artifacts,
        profiler.CollectOptions(**options),
        lambda _: None,
        lambda _: None,
    ).results


@pytest.fixture
def reader() -> None:
    pytest.importorskip("profkit.reports.reader")
    pytest.importorskip("ncu_report")


@pytest.mark.usefixtures("reader")
def test_profile_leaves_one_report_and_one_record(machine: Machine, tmp_path: Path) -> None:
    machine.write("v1_x.cu")
    (result,) = profile(machine, "v1")
    assert result.problem is None
    assert result.report == machine.recorded("B") / "v1.ncu-rep"
    said = json.loads((machine.recorded("B") / "v1.json").read_text())
    assert said["report"]["sha256"] == compute_sha256_of_file(result.report)
    assert (said["variant"], said["case"], said["check"]["status"]) == ("v1", "B", "right")
    assert said["timing"]["l2"]["warm"]["median"] > 0
    assert said["resources"][0]["regs"] == 32
    assert said["source"]["sha256"]
    assert not list(machine.artifacts.rglob(".*"))
    (line,) = (tmp_path / "ncu.log").read_text().splitlines()
    words = line.split("\0")
    for option, value in [
        ("--set", "full"),
        ("--clock-control", "none"),
        ("--cache-control", "all"),
        ("--import-source", "yes"),
        ("--profile-from-start", "off"),
    ]:
        assert words[words.index(option) + 1] == value
    assert "--nvtx" in words
    assert said["ncu"]["command"][1:] == [w for w in words if w not in _export(words)]


def _export(words: list[str]) -> list[str]:
    at = words.index("--export")
    return ["--force-overwrite", "--export", words[at + 1]]


def test_a_call_without_a_kernel_has_a_time_and_no_report(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that only copies, as the reference copy does: no graph node of it is a kernel."""
    check_and_time_run = session.check_and_time_run

    def without_kernels(run: TargetRun, *args: Any) -> None:
        check_and_time_run(run, *args)
        run.measured.launches = dict.fromkeys(run.measured.launches, ())

    monkeypatch.setattr(pipeline, "check_and_time_run", without_kernels)
    machine.write("copies_x.cu")
    (result,) = profile(machine, "copies")
    assert (result.problem, result.report) == (None, None)
    said = json.loads((machine.recorded("B") / "copies.json").read_text())
    assert (said["launches"], said["report"]) == ([], None)
    assert said["timing"]["l2"]["warm"]["median"] > 0
    assert not (tmp_path / "ncu.log").exists()


def test_a_wrong_variant_gets_no_time_and_no_report(machine: Machine, tmp_path: Path) -> None:
    machine.write("bad_x.cu", inside="out[0] = 0x7fff;")
    (result,) = profile(machine, "bad")
    assert result.wrong
    assert result.problem
    assert result.record.timing is None
    assert not (tmp_path / "ncu.log").exists()
    assert not machine.artifacts.exists() or not list(machine.artifacts.iterdir())


def test_without_counters_it_still_answers(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("profkit.evidence.stats")
    monkeypatch.setenv("FAKE_NCU", "permission")
    machine.write("v1_x.cu")
    machine.write("v2_x.cu")
    results = profile(machine, "v1", "v2")
    for result in results:
        assert result.problem
        assert "may not read" in result.problem.message
        assert result.record.timing.l2.warm.median > 0
        (shape,) = result.record.shape
        assert (shape.blocks, shape.idle_sms) == (4, 128)
        assert set(result.record.work.floors) == {"tensor", "dram"}
        saved = json.loads((machine.recorded("B") / f"{result.name}.json").read_text())
        assert saved["report"] is None
    assert len(Path(str(machine.root.parent / "ncu.log")).read_text().splitlines()) == 1
