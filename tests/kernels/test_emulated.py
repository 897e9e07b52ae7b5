"""Every attention variant, run on the CPU: right, no race, no byte out of bounds, NaN everywhere else.

Shared memory and output start as NaN. Copies land as late and as early as they may, so a wait that is
one group short shows in the values; ThreadSanitizer sees each CUDA thread as a thread.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.found import find_files
from tests.kernels import passed
from tests.kernels.emulated import KERNELS, SCHEDULES, Outcome, build, in_turn, run
from tests.kernels.passed import ALL  # make emulate: each case at each schedule, longer sums
from tests.sweeps import take_part

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


def _list_turns(file: Path, all_: bool) -> list[tuple[dict[str, str], tuple[str, ...]]]:
    """Two of the cases for each kernel, and the next two for the next one; else all, both ways."""
    split = file.stem.startswith(SPLIT)
    some = CASES[:2] if VARIANTS.index(file) % 2 else CASES[2:4]
    turns = []
    for schedule in SCHEDULES if all_ else ("late", "early") if split else ("late",):
        cases = CASES if all_ else some[:1] if split and schedule == "late" else some
        more = LONG if split and (all_ or schedule == "early") else ()
        turns.append((_env(file, schedule), cases + more))
    return turns


@pytest.mark.nvcc
@pytest.mark.parametrize("file", take_part(VARIANTS, one_of=2), ids=lambda f: f.stem.split("_")[0])
def test_right_and_without_races(file: Path, tmp_path: Path) -> None:
    name, source = f"attention/{file.stem.split('_')[0]}", file.read_text()
    made_of = passed.hash_run(source, "races", _list_turns(file, False))
    if passed.is_kept(name, made_of):
        return
    program = build(source, tmp_path / "races", "races")
    _is_right(run(program, in_turn(*_list_turns(file, ALL))))
    passed.keep_pass(name, made_of)


def _hold_again(
    name: str, source: str, folder: Path, sanitizer: str, words: tuple[str, ...]
) -> None:
    """Build and run a kernel, unless it passed as it is now."""
    made_of = passed.hash_run(source, sanitizer, words)
    if passed.is_kept(name, made_of):
        return
    _is_right(run(build(source, folder, sanitizer), words))
    passed.keep_pass(name, made_of)


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
    source = f"#define AHEAD {how}\n" + file.read_text()
    cases = (*CASES[:3], *LONG[:1])
    words = in_turn(({}, cases), ({"EMU_SMS": "132"}, cases))
    _hold_again(f"attention/champion ahead {how}", source, tmp_path / "ahead", "bounds", words)


@pytest.mark.nvcc
@pytest.mark.parametrize("name", ["nomax", "latev", "qregisters"] if ALL else ["qregisters"])
def test_a_tile_whose_sum_is_too_large_is_computed_again(name: str, tmp_path: Path) -> None:
    """A limit of 4 for a lane's 16 or 32 probabilities takes that way in nearly every tile."""
    (file,) = [f for f in VARIANTS if f.stem.startswith(f"{name}_")]
    source = "#define SUM_LIMIT 4.0f\n" + file.read_text()
    cases = ("1,3,330,64,1,0.125,2", "1,1,300,64,0,-0.125,2", "1,1,300,128,1,0.088,3")
    early = {"EMU_EARLY": "1", "EMU_SMS": "3"}
    words = in_turn(({}, cases), (early, cases))
    _hold_again(f"attention/{name} again", source, tmp_path / "again", "races", words)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    "name", ["uniform", "nomax", "latev", "qregisters"] if ALL else ["uniform", "qregisters"]
)
def test_few_blocks_take_many_tiles(name: str, tmp_path: Path) -> None:
    """Three SMs: the ring and both slots of Q go round, and the last causal round has holes."""
    (file,) = [f for f in VARIANTS if f.stem.startswith(f"{name}_")]
    cases = ("1,5,330,64,1,0.125,2", "1,3,600,64,0,0.125,3", "1,5,150,128,1,0.088,3")
    words = in_turn(({"EMU_EARLY": "1", "EMU_SMS": "3"}, cases))
    _hold_again(f"attention/{name} tiles", file.read_text(), tmp_path / "many", "races", words)


@pytest.mark.nvcc
def test_what_passed_is_of_today() -> None:
    """Running what is not known takes three minutes of every run of the tests."""
    rows = passed.read_kept()
    if not {row["by"] for row in rows.values()} & {passed.find_versions()}:
        pytest.skip("passed.json was written with other compilers")
    today = {
        f"attention/{file.stem.split('_')[0]}": passed.hash_run(
            file.read_text(), "races", _list_turns(file, False)
        )
        for file in VARIANTS
    }
    assert set(today) <= set(rows), "run: make emulate"
    unknown = sorted(name for name in today if rows[name]["made_of"] != today[name])
    assert len(unknown) <= len(today) / 4, "run: make emulate"


@pytest.mark.nvcc
def test_what_decides_a_pass_makes_another_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = [f for f in VARIANTS if f.stem.startswith("stage2_")]
    source = file.read_text()
    seen = [passed.hash_run(source, "races"), passed.hash_run(source, "bounds")]
    seen.append(passed.hash_run(source + " ", "races"))
    included = passed.list_included(source)
    assert any("tensor_pv" in text for text in included), "of tensor_block.cuh"
    assert included != passed.list_included('#include "wmma_block.cuh"\n')
    for name in ("describe_emulator", "find_versions"):
        with monkeypatch.context() as changed:
            changed.setattr(passed, name, lambda: "another")
            seen.append(passed.hash_run(source, "races"))
    with monkeypatch.context() as changed:
        changed.setattr(passed, "list_included", lambda _: ["another"])
        seen.append(passed.hash_run(source, "races"))
    assert len(set(seen)) == len(seen)
