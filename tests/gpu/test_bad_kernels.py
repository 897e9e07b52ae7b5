"""Every kernel that is wrong on purpose is caught by the check that its header names."""

import shutil
from pathlib import Path

import pytest

from profkit.measure import pipeline, targets
from profkit.measure.build import build
from profkit.measure.check import sanitize
from profkit.measure.cuda import device
from profkit.measure.runs import Made, plan_of
from profkit.measure.targets import Places
from profkit.measure.variants import variants

pytestmark = pytest.mark.gpu
TESTS = Path(__file__).parents[1]
BAD = {v.id: v for v in variants.find_variants(TESTS, "bad_kernels")}
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
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    places = Places(TESTS, tmp_path_factory.mktemp("build"))
    target = targets.choose_target(places, (), True, ("B", "tiny"), False)
    return pipeline.measure_target(target, lambda _: None)


def faults(made: Made, name: str) -> list[str]:
    return [f"{c.case}: {f}" for c in made.measured.checks[name].cases for f in c.faults]


def test_every_header_names_a_check_that_is_tried_here() -> None:
    known = {*SAYS, *sanitize.TOOLS, "nothing", "sass", "stack", "host-bound"}
    assert {v.header.caught_by for v in BAD.values()} <= known


@caught_by(*SAYS)
def test_the_check_named_catches_it(made: Made, name: str) -> None:
    check = BAD[name].header.caught_by
    assert made.measured.checks[name].status == "wrong"
    assert any(SAYS[check] in f for f in faults(made, name)), faults(made, name)[:5]
    assert (name, "B") not in made.measured.times, "what is wrong is not timed"


def test_a_bias_is_seen_as_one(made: Made) -> None:
    cases = made.measured.checks["halfcode"].cases
    assert all((c.bias or 0) > 0.005 for c in cases if c.case == "B")


@caught_by("nothing", "sass", "host-bound", "racecheck", "memcheck", "synccheck")
def test_values_do_not_show_the_others(made: Made, name: str) -> None:
    if name != "barrier":  # a race may show in the values too
        assert made.measured.checks[name].status == "right", faults(made, name)[:3]


@caught_by("host-bound")
def test_a_launcher_that_asks_each_time_is_host_bound(made: Made, name: str) -> None:
    asks, right = (made.measured.times[n, "tiny"] for n in (name, "right"))
    seen = [(t.eager, t.host, t.bare, t.warm) for t in (asks, right)]
    assert asks.host_bound, seen
    assert not right.host_bound, seen


@caught_by(*sanitize.TOOLS)
def test_the_sanitizer_named_catches_it(made: Made, name: str) -> None:
    tool = BAD[name].header.caught_by
    (found,) = sanitize.sanitize(sanitizer(), plan_of(made, name, "S17"), [tool], timeout=60)
    assert not found.clean, found


@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_the_right_kernel_is_clean(made: Made, tool: str) -> None:
    (found,) = sanitize.sanitize(sanitizer(), plan_of(made, "right", "S17"), [tool], timeout=60)
    assert found.clean, found


def sanitizer() -> Path:
    found = shutil.which("compute-sanitizer")
    if not found:
        pytest.skip("compute-sanitizer is not installed")
    return Path(found)


@caught_by("sass")
def test_a_flag_that_changes_nothing_has_the_same_machine_code(made: Made, name: str) -> None:
    assert made.builds[name].sass == made.builds["right"].sass is not None


@caught_by("stack")
def test_a_local_array_shows_as_a_stack_frame(made: Made, name: str) -> None:
    (kernel,) = made.builds[name].kernels
    assert kernel.spills == 0
    assert kernel.stack >= 128
    assert build.check_budget(made.builds[name])


def test_launches_read_from_a_graph_are_those_of_the_build(made: Made) -> None:
    (launch,) = made.measured.launches["right", "B"]
    kernels = {k.name: k for k in made.builds["right"].kernels}
    assert launch.regs == kernels[launch.kernel].regs
    assert launch.grid == (128, 8, 1)
    assert launch.static_smem == kernels[launch.kernel].smem
    assert made.measured.gpu is not None
    assert made.measured.gpu.arch == device.gpu().arch
