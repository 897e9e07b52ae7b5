"""Variants made wrong in one place: the emulator has to notice, and by the right means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.found import find_files
from tests.kernels import passed
from tests.kernels.emulated import KERNELS, SCHEDULES, build, run

CASES = ("1,1,70,64,1,0.125,2", "1,1,97,64,0,0.125,4")
# What is broken: file, text, replacement, and whether values or a race show it.
MUTANTS = {
    "a deleted barrier": (
        "stage2_tensor_pv.cu",
        "    __syncthreads();\n    tensor_pv",
        "    tensor_pv",
        "race",
    ),
    "a deleted warp barrier": ("stage1_cp_async.cu", "      __syncwarp();\n", "", "race"),
    "the last tile not waited for": (
        "stage1_cp_async.cu",
        "cp_async_wait<STAGES - 2>();",
        "if (tile + 1 < tiles) cp_async_wait<STAGES - 2>();",
        "values",
    ),
    "waiting for all but the newest": (
        "stage2_tensor_pv.cu",
        "cp_async_wait<STAGES - 2>",
        "cp_async_wait<STAGES - 1>",
        "values",
    ),
    "no commit past the last tile": (
        "stage4_third_stage.cu",
        "      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);\n    }\n"
        "    cp_async_commit();",
        "      copy_rows<THREADS>(m.v[tile % STAGES], v, tile * N, a.length, threadIdx.x);\n"
        "      cp_async_commit();\n    }\n    ",
        "values",
    ),
    "keys past the end not masked": (
        "v1_scalar.cu",
        "a.sees(first + row, key + col)",
        "true",
        "values",
    ),
    "two warps update one row": (
        "stage0_sync_loads.cu",
        "int row = warp + WARPS * i;",
        "int row = (warp & ~1) + WARPS * i;",
        "race",
    ),
    "a part left over keys in use": (
        "multicast_cluster_of_four.cu",
        "P::PART_PITCH > P::SHARE)\n    __syncthreads();",
        "P::PART_PITCH > P::SHARE)\n    __syncwarp();",
        "race",
    ),
}


def _with_its_block(file: Path) -> str:
    """A variant's source, with the template that it shares with others put in its place."""
    source = file.read_text()
    for block in file.parent.glob("*_block.cuh"):
        source = source.replace(f'#include "{block.name}"', block.read_text())
    return source


@pytest.mark.nvcc
@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_variant_is_noticed(name: str, tmp_path: Path) -> None:
    file, old, new, how = MUTANTS[name]
    source = _with_its_block(find_files(KERNELS / "attention", f"**/{file}")[0])
    assert source.count(old) == 1, "the text to break is there once"
    mutant = source.replace(old, new)
    made_of = passed.hash_run(mutant, "races", CASES, how)
    if passed.is_kept(f"mutant: {name}", made_of):
        return
    program = build(mutant, tmp_path / "mutant", "races")
    outs = (run(program, CASES, **env) for env in SCHEDULES.values())
    if how == "race":
        assert any("ThreadSanitizer" in f for out in outs for f in out.findings)
    else:
        assert any(out.worst > 1 for out in outs)
    passed.keep_pass(f"mutant: {name}", made_of)


@pytest.mark.nvcc
def test_swapping_two_accumulator_slots_is_noticed(tmp_path: Path) -> None:
    """The record's twelve hours: the off-diagonal quadrants of a 16x16 accumulator swapped."""
    source = (KERNELS / "attention" / "stages" / "stage3b_register_softmax.cu").read_text()
    scores = "    flash::scale_scores(s, a.scale);\n"
    swap = "    for (int i = 2; i < 4; ++i) {"
    swap += " float x = s[0][i]; s[0][i] = s[1][i - 2]; s[1][i - 2] = x; }\n"
    assert scores in source
    mutant = source.replace(scores, scores + swap)
    made_of = passed.hash_run(mutant, "bounds", CASES)
    if passed.is_kept("mutant: two slots swapped", made_of):
        return
    assert run(build(mutant, tmp_path / "mutant", "bounds"), CASES).worst > 1
    passed.keep_pass("mutant: two slots swapped", made_of)
