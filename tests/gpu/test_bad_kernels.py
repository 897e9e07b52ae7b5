"""Every kernel that is wrong on purpose is caught by the check that its header names."""

import shutil
from pathlib import Path

import pytest

from profkit.lab.measure import pipeline, sanitize, targets
from profkit.lab.measure.cuda import device
from profkit.lab.measure.targets import LabFolders, TargetRun, make_profile_plan
from profkit.lab.measure.variants import build, variants
from tests.gpu.conftest import SharedMachine

pytestmark = [pytest.mark.gpu, pytest.mark.long]
TESTS = Path(__file__).parents[1]
BAD = {v.id: v for v in variants.read_all_variants(TESTS, "bad_kernels")}
# What the faults of a check say when the check of this name has caught a kernel.
SAYS = {
    "values": "elements are wrong",
    "unwritten": "were never written",
    "nan": "are NaN or infinite",
    "inputs": "was overwritten",
    "guard": "bytes written",
    "stream": "another stream than the given one",
    "waits": "the launcher waits for the device",
    "bias": "bias +",
    "row": "does it miss a griddepcontrol.wait?",
}


def caught_by(*checks: str) -> pytest.MarkDecorator:
    ids = [i for i, v in BAD.items() if v.header.caught_by in checks]
    return pytest.mark.parametrize("name", ids)


@pytest.fixture(scope="module")
def target_run(tmp_path_factory: pytest.TempPathFactory) -> TargetRun:
    return measure(tmp_path_factory.mktemp("build"), (), ("B", "tiny"))


def measure(build_folder: Path, names: tuple[str, ...], cases: tuple[str, ...]) -> TargetRun:
    """Measure kernels by name, or all of them where none is named."""
    places = LabFolders(TESTS, build_folder)
    target = targets.find_target_by_options(places, names, not names, cases, False)
    return pipeline.measure_target(target, lambda _: None)


def faults(target_run: TargetRun, name: str) -> list[str]:
    return [f"{c.case}: {f}" for c in target_run.measured.checks[name].cases for f in c.faults]


def test_every_header_names_a_check_that_is_tried_here() -> None:
    known = {*SAYS, *sanitize.TOOLS, "nothing", "sass", "stack", "host-bound"}
    assert {v.header.caught_by for v in BAD.values()} <= known


@caught_by(*SAYS)
def test_the_check_named_catches_it(target_run: TargetRun, name: str) -> None:
    check = BAD[name].header.caught_by
    assert target_run.measured.checks[name].status == "wrong"
    assert any(SAYS[check] in f for f in faults(target_run, name)), faults(target_run, name)[:5]
    assert (name, "B") not in target_run.measured.times, "what is wrong is not timed"


def test_a_bias_is_seen_as_one(target_run: TargetRun) -> None:
    cases = target_run.measured.checks["halfcode"].cases
    assert all((c.bias or 0) > 0.005 for c in cases if c.case == "B")


@caught_by("nothing", "sass", "host-bound", "racecheck", "memcheck", "synccheck")
def test_values_do_not_show_the_others(target_run: TargetRun, name: str) -> None:
    if name != "barrier":  # a race may show in the values too
        assert target_run.measured.checks[name].status == "right", faults(target_run, name)[:3]


@caught_by("host-bound")
def test_a_launcher_that_asks_each_time_is_host_bound(
    target_run: TargetRun, name: str, machine: SharedMachine, tmp_path: Path
) -> None:
    """A host that others use is slow enough to hold up the right kernel, too: then again, alone."""
    try:
        check_who_is_host_bound(target_run, name)
    except AssertionError:
        machine.take_alone()
        check_who_is_host_bound(measure(tmp_path, ("right", name), ("tiny",)), name)


def check_who_is_host_bound(target_run: TargetRun, name: str) -> None:
    asks, right = (target_run.measured.times[n, "tiny"] for n in (name, "right"))
    seen = [(t.eager, t.host, t.bare, t.warm) for t in (asks, right)]
    assert asks.is_host_bound, seen
    assert not right.is_host_bound, seen


@caught_by(*sanitize.TOOLS)
def test_the_sanitizer_named_catches_it(target_run: TargetRun, name: str) -> None:
    tool = BAD[name].header.caught_by
    found = sanitize.run_sanitizer_tool(
        sanitizer(), make_profile_plan(target_run, name, "S17"), tool, timeout_s=60
    )
    assert found != sanitize.CLEAN, found


@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_the_right_kernel_is_clean(target_run: TargetRun, tool: str) -> None:
    found = sanitize.run_sanitizer_tool(
        sanitizer(), make_profile_plan(target_run, "right", "S17"), tool, timeout_s=60
    )
    assert found == sanitize.CLEAN, found


def sanitizer() -> Path:
    found = shutil.which("compute-sanitizer")
    if not found:
        pytest.skip("compute-sanitizer is not installed")
    return Path(found)


@caught_by("sass")
def test_a_flag_that_changes_nothing_has_the_same_machine_code(
    target_run: TargetRun, name: str
) -> None:
    assert target_run.builds[name].sass == target_run.builds["right"].sass is not None


@caught_by("stack")
def test_a_local_array_shows_as_a_stack_frame(target_run: TargetRun, name: str) -> None:
    (kernel,) = target_run.builds[name].kernels
    assert kernel.spills == 0
    assert kernel.stack >= 128
    assert build.describe_budget_excesses(target_run.builds[name])


def test_launches_read_from_a_graph_are_those_of_the_build(target_run: TargetRun) -> None:
    (launch,) = target_run.measured.launches["right", "B"]
    kernels = {k.name: k for k in target_run.builds["right"].kernels}
    assert launch.regs == kernels[launch.kernel].regs
    assert launch.grid == (128, 8, 1)
    assert launch.static_smem == kernels[launch.kernel].smem
    assert target_run.measured.gpu is not None
    assert target_run.measured.gpu.arch == device.query_first_gpu().arch
