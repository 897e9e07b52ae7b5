"""Kernels that are wrong on purpose, as far as that shows without a GPU; see tests/gpu."""

import shutil
from pathlib import Path

import pytest

from profkit.lab.measure.variants import build, variants

BAD = {v.id: v for v in variants.read_all_variants(Path(__file__).parents[1], "bad_kernels")}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, build.Build]:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    wanted = [BAD[i] for i in ("right", "sameflag", "localarray", "slots")]
    made = build.compile_variants_not_built_yet(wanted, ["90"], tmp_path_factory.mktemp("build"))
    return {b.variant.id: b for b in made}


def test_every_one_says_by_what_it_is_caught() -> None:
    assert len(BAD) >= 14
    assert all(v.header.caught_by for v in BAD.values())


@pytest.mark.nvcc
def test_a_flag_that_changes_nothing_has_the_same_machine_code(
    built: dict[str, build.Build],
) -> None:
    assert built["sameflag"].flags != built["right"].flags
    assert built["sameflag"].sass == built["right"].sass is not None
    assert built["slots"].sass != built["right"].sass


@pytest.mark.nvcc
def test_a_local_array_shows_as_a_stack_frame_without_spills(
    built: dict[str, build.Build],
) -> None:
    (kernel,) = built["localarray"].kernels
    assert (kernel.spills, kernel.stack) == (0, 128)
    assert build.describe_budget_excesses(built["localarray"]) == [
        "localarray_indexed_at_run_time.cu sm_90 gather: stack=128, budget 0"
    ]
    assert build.describe_budget_excesses(built["right"]) == []
