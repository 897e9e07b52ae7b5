"""Every rung compiles for every architecture that its header allows, within its header's budget."""

from __future__ import annotations

import shutil

import pytest

from profkit.measure import build, dry, toolchain, variants
from tests.conftest import ROOT

KERNELS = ROOT / "kernels"
LADDER = variants.find(KERNELS, "attention")


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("arch", ["80", "89", "90"])
def test_the_ladder_keeps_its_budgets(arch):
    folder, nvcc = build.build_dir(KERNELS), toolchain.need("nvcc")
    made = build.build(LADDER, [arch], folder)
    assert {b.variant.id: b.error for b in made if b.error} == {}
    over = []
    for one in made:
        shapes = dry.shapes(one, KERNELS / "attention", nvcc)
        assert shapes is not None, one.variant.id
        dynamic: dict[str, int] = {}
        for launch in (x for found in shapes.values() for x in found):
            dynamic[launch.kernel] = max(dynamic.get(launch.kernel, 0), launch.dynamic_smem)
        over += build.check_budget(one, dynamic)
    assert over == []
    assert len(made) >= {"80": 20, "89": 20, "90": 24}[arch]


@pytest.mark.parametrize("variant", [v for v in LADDER if v.after], ids=lambda v: v.id)
def test_every_rung_has_a_budget(variant):
    assert None not in (variant.budget.regs, variant.budget.smem, variant.budget.spills)
