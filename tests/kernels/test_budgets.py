"""Every rung compiles for every architecture that its header allows, within its header's budget."""

from __future__ import annotations

import shutil

import pytest

from profkit.measure import ladder
from profkit.measure.targets import Places
from profkit.measure.variants import variants
from tests.conftest import ROOT

KERNELS = ROOT / "kernels"
EVERY = [v for v in variants.find_variants(KERNELS) if not v.language.missing()]
LADDER = [v for v in EVERY if v.problem == "attention"]


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["80", "89", "90"])
def test_the_ladder_keeps_its_budgets(arch):
    made = ladder.compiled(Places(KERNELS), [f"attention/{v.id}" for v in LADDER], [arch])
    assert {c.variant: c.build.error for c in made if c.build.error} == {}
    assert [c.build.variant.id for c in made if c.launches is None] == []
    assert [line for c in made for line in c.over_budget] == []
    assert len(made) >= {"80": 20, "89": 20, "90": 24}[arch]


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_ladders_of_other_problems_keep_their_budgets():
    others = [v for v in EVERY if v.problem not in ("attention", "probes")]
    made = ladder.compiled(Places(KERNELS), [f"{v.problem}/{v.id}" for v in others], ["90"])
    assert {c.variant: c.build.error for c in made if c.build.error} == {}
    assert [c.build.variant.id for c in made if c.launches is None] == []
    assert [line for c in made for line in c.over_budget] == []
    assert len(made) >= 15


@pytest.mark.parametrize("variant", [v for v in LADDER if v.after], ids=lambda v: v.id)
def test_every_rung_has_a_budget(variant):
    assert None not in (variant.budget.regs, variant.budget.smem, variant.budget.spills)
