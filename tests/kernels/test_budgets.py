"""Every rung compiles for every architecture that its header allows, within its header's budget.

What nvcc gave stands in resources.json with a hash of what it was made of; what that hash does not
know is compiled here and now.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tests.kernels import resources
from tests.kernels.resources import LADDER, OTHERS, name_of
from tests.sweeps import take_part

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
# One of another problem; with PROFKIT_SWEEP_ALL one for an older architecture and one for sm_90a only.
AGAIN = take_part([("onepass", "90"), ("stage2", "80"), ("champion", "90")], one_of=3)


@pytest.mark.nvcc
@needs_nvcc
def test_the_ladder_keeps_its_budgets_on_three_architectures():
    _keep_their_budgets(
        [(v, a) for v in LADDER for a in ("80", "89", "90") if v.choose_compile_target_for(a)], 70
    )


@pytest.mark.nvcc
@needs_nvcc
def test_the_ladders_of_other_problems_keep_their_budgets():
    _keep_their_budgets([(v, "90") for v in OTHERS], 15)


def _keep_their_budgets(wanted, at_least):
    kept = resources.kept()
    made = resources.compiled((v, arch) for v, arch in wanted if name_of(v, arch) not in kept)
    assert {c.variant: c.build.error for c in made if c.build.error} == {}
    assert [c.build.variant.id for c in made if c.launches is None] == []
    assert [line for c in made for line in c.over_budget] == []
    known = [(v, kept[name_of(v, arch)]) for v, arch in wanted if name_of(v, arch) in kept]
    assert [line for v, row in known for line in resources.over_budget(v, row)] == []
    assert len(made) + len(known) == len(wanted) >= at_least


@pytest.mark.nvcc
@needs_nvcc
def test_what_is_kept_is_what_nvcc_gives():
    kept = resources.kept()
    some = [
        (v, arch)
        for v, arch in resources.HELD
        if (v.id, arch) in AGAIN and name_of(v, arch) in kept
    ]
    if not some:
        pytest.skip("resources.json knows none of these as it is now: the tests above compile it")
    made = resources.compiled(some)
    assert {
        name_of(c.build.variant, c.build.arch.rstrip("af")): resources.row_of(c) for c in made
    } == {name_of(v, arch): kept[name_of(v, arch)] for v, arch in some}
    assert all(c.launches for c in made)


@pytest.mark.nvcc
@needs_nvcc
def test_resources_json_is_of_today():
    """Compiling what it does not know takes three minutes of every run of the tests."""
    rows = json.loads(resources.KEPT.read_text("utf-8"))
    if not {row["nvcc"] for row in rows.values()} & {resources.nvcc_version()}:
        pytest.skip("resources.json was written with another version of nvcc")
    unknown = sorted(set(rows) - set(resources.kept()))
    assert len(unknown) <= len(rows) / 10, "run: python -m tests.kernels.resources"


def test_a_row_over_its_budget_is_seen():
    (stage2,) = [v for v in LADDER if v.id == "stage2"]
    most = {"regs": stage2.budget.regs, "smem": stage2.budget.smem, "spills": 0, "stack": 0}
    assert resources.over_budget(stage2, most) == []
    assert resources.over_budget(stage2, {**most, "spills": 4}) == ["stage2: spills=4, budget 0"]


@pytest.mark.nvcc
@needs_nvcc
def test_what_changes_the_machine_code_or_the_launches_makes_another_hash(monkeypatch, tmp_path):
    (stage2,) = [v for v in LADDER if v.id == "stage2"]
    seen = [resources.made_of(stage2, arch) for arch in ("80", "90")]
    seen.append(resources.made_of(replace(stage2, defines={"X": "1"}), "90"))
    with monkeypatch.context() as flags:
        flags.setenv("NVCC_APPEND_FLAGS", "-G")
        seen.append(resources.made_of(stage2, "90"))
    monkeypatch.setattr(resources.dry, "STUB", tmp_path / "dry.cpp")
    resources.dry.STUB.write_text("")
    seen.append(resources.made_of(stage2, "90"))
    monkeypatch.setattr(type(stage2), "source_hash", "of another text")
    seen.append(resources.made_of(replace(stage2), "90"))
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("variant", [v for v in LADDER if v.header.after], ids=lambda v: v.id)
def test_every_rung_has_a_budget(variant):
    assert None not in (variant.budget.regs, variant.budget.smem, variant.budget.spills)
