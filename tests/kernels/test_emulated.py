"""Every attention variant, run on the CPU: right, no race, no byte out of bounds, NaN everywhere else.

Shared memory and output start as NaN. Copies land as late and as early as they may, so a wait that is
one group short shows in the values; ThreadSanitizer sees each CUDA thread as a thread.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.found import find_files
from tests.kernels.emulated import KERNELS, SCHEDULES, Outcome, build, in_turn, run

ALL = "PROFKIT_EMULATE_ALL" in os.environ  # make emulate: each case at each schedule, longer sums
# A file that only includes another is that one again, with flags that say what a launcher does.
FILES = find_files(KERNELS / "attention", "**/*.cu")
VARIANTS = [f for f in FILES if '.cu"' not in f.read_text()]
CASES = (
    "1,2,70,64,0,0.125,1",  # two heads, a last tile of 6
    "1,1,150,64,1,0.125,2",
    "1,1,97,128,0,0.088,4",
    "1,1,17,64,1,-0.125,2",  # a negative scale
    "1,1,1,64,0,0.125,2",
)
# The launchers of these choose by the size of the machine: few blocks are split once more.
SPLIT = ("splitk", "straight", "multicast", "pair", "champion", "inseries", "wgmma", "coldstart")
LONG = ("1,1,600,64,1,0.125,3", "1,1,300,128,0,0.088,3")  # more than one round of split keys


def _env(file: Path, schedule: str) -> dict[str, str]:
    env = dict(SCHEDULES[schedule])
    if re.search(r"^\s*inputs: e4m3|\sinputs: e4m3", file.read_text(), re.M):
        env["EMU_INPUTS"] = "e4m3"
    if schedule != "late" and file.stem.startswith(SPLIT):
        env["EMU_SMS"] = "132"
    return env


@pytest.mark.nvcc
@pytest.mark.parametrize("file", VARIANTS, ids=lambda f: f.stem.split("_")[0])
def test_right_and_without_races(file: Path, tmp_path: Path) -> None:
    program = build(file.read_text(), tmp_path / "races", "races")
    split = file.stem.startswith(SPLIT)
    # Two of the cases for each kernel, and the next two for the next one.
    some = CASES[:2] if VARIANTS.index(file) % 2 else CASES[2:4]
    turns = []
    for schedule in SCHEDULES if ALL else ("late", "early") if split else ("late",):
        cases = CASES if ALL else some[:1] if split and schedule == "late" else some
        more = LONG if split and (ALL or schedule == "early") else ()
        turns.append((_env(file, schedule), cases + more))
    _is_right(run(program, in_turn(*turns)))


def _is_right(out: Outcome) -> None:
    assert out.findings == [], out.text[:4000]
    assert out.right, out.text[:4000]


@pytest.mark.nvcc
@pytest.mark.skipif(not ALL, reason="make emulate: memcheck says the same on a GPU")
@pytest.mark.parametrize("file", VARIANTS, ids=lambda f: f.stem.split("_")[0])
def test_within_bounds(file: Path, tmp_path: Path) -> None:
    program = build(file.read_text(), tmp_path / "bounds", "bounds")
    _is_right(run(program, CASES, **_env(file, "late")))


@pytest.mark.nvcc
@pytest.mark.parametrize("how", [1, 3], ids=["l2ahead", "codeahead"])
def test_rows_that_are_named_ahead_are_there(how: int, tmp_path: Path) -> None:
    """These are champion with rows prefetched by address: none beyond the end of a tensor."""
    (file,) = [f for f in VARIANTS if f.stem.startswith("champion_")]
    program = build(f"#define AHEAD {how}\n" + file.read_text(), tmp_path / "ahead", "bounds")
    cases = (*CASES[:3], *LONG[:1])
    _is_right(run(program, in_turn(({}, cases), ({"EMU_SMS": "132"}, cases))))


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["nomax", "latev", "qregisters"] if ALL else ["qregisters"])
def test_a_tile_whose_sum_is_too_large_is_computed_again(name: str, tmp_path: Path) -> None:
    """A limit of 4 for a lane's 16 or 32 probabilities takes that way in nearly every tile."""
    (file,) = [f for f in VARIANTS if f.stem.startswith(f"{name}_")]
    program = build("#define SUM_LIMIT 4.0f\n" + file.read_text(), tmp_path / "again", "races")
    cases = ("1,3,330,64,1,0.125,2", "1,1,300,64,0,-0.125,2", "1,1,300,128,1,0.088,3")
    early = {"EMU_EARLY": "1", "EMU_SMS": "3"}
    _is_right(run(program, in_turn(({}, cases), (early, cases))))


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", ["uniform", "nomax", "latev", "qregisters"] if ALL else ["uniform", "qregisters"]
)
def test_few_blocks_take_many_tiles(name: str, tmp_path: Path) -> None:
    """Three SMs: the ring and both slots of Q go round, and the last causal round has holes."""
    (file,) = [f for f in VARIANTS if f.stem.startswith(f"{name}_")]
    program = build(file.read_text(), tmp_path / "many", "races")
    cases = ("1,5,330,64,1,0.125,2", "1,3,600,64,0,0.125,3", "1,5,150,128,1,0.088,3")
    _is_right(run(program, cases, EMU_EARLY="1", EMU_SMS="3"))
