"""Every rung compiles for every architecture that its header allows, within its header's budget."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from profkit.measure import ladder
from profkit.measure.cuda.resources import CARDS
from profkit.measure.targets import Places
from profkit.measure.variants import build, dry, problem, toolchain, variants
from tests.conftest import ROOT

KERNELS = ROOT / "kernels"
EVERY = [v for v in variants.find_variants(KERNELS) if not v.language.missing()]
LADDER = [v for v in EVERY if v.problem == "attention"]
ARCHS = ("80", "89", "90")
# One call of nvcc makes them for all three: half of what it does for one is reading and the host's.
WIDE = [v for v in LADDER if v.language.name == "CUDA" and [*map(v.target, ARCHS)] == [*ARCHS]]
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


def built_for_three(monkeypatch):
    """Architecture -> the builds of WIDE for it, of one call of nvcc a variant."""
    with monkeypatch.context() as patched:
        more = " ".join(f"-gencode=arch=compute_{a},code=sm_{a}" for a in ARCHS[:-1])
        patched.setenv("NVCC_APPEND_FLAGS", more)
        made = build.compile_variants(WIDE, ARCHS[-1:], Places(KERNELS).build_dir())
    assert {b.variant.id: b.error for b in made if b.error} == {}
    return {arch: [_of(fat, arch) for fat in made] for arch in ARCHS}


def _of(fat, arch):
    own = replace(fat, arch=arch, kernels=tuple(k for k in fat.kernels if k.arch == arch))
    assert own.kernels, (fat.variant.id, arch)
    return own


@pytest.mark.nvcc
@needs_nvcc
def test_the_ladder_keeps_its_budgets_on_three_architectures(monkeypatch):
    assert len(WIDE) >= 20
    nvcc = toolchain.need_tool("nvcc")
    cases = problem.load_problem(KERNELS / "attention")
    values = [cases.module.arguments(case) for case in cases.cases.values()]
    for arch, made in built_for_three(monkeypatch).items():
        for one in made:
            starts = [dry.dry_launches(one, v, CARDS[arch], nvcc) for v in values]
            assert None not in starts, (one.variant.id, arch)
            taken = [(x.kernel, x.dynamic_smem) for launches in starts for x in launches or ()]
            assert build.check_budget(one, dict(sorted(taken, key=lambda row: row[1]))) == []


@pytest.mark.nvcc
@needs_nvcc
def test_the_ladder_s_other_rungs_keep_their_budgets():
    _keep_their_budgets([v for v in LADDER if v not in WIDE], ["89", "90"], 15)


@pytest.mark.slow
@pytest.mark.nvcc
@needs_nvcc
def test_the_ladders_of_other_problems_keep_their_budgets():
    _keep_their_budgets([v for v in EVERY if v.problem not in ("attention", "probes")], ["90"], 15)


def _keep_their_budgets(chosen, archs, at_least):
    made = ladder.compiled(Places(KERNELS), [f"{v.problem}/{v.id}" for v in chosen], archs)
    assert {c.variant: c.build.error for c in made if c.build.error} == {}
    assert [c.build.variant.id for c in made if c.launches is None] == []
    assert [line for c in made for line in c.over_budget] == []
    assert len(made) >= at_least


@pytest.mark.parametrize("variant", [v for v in LADDER if v.after], ids=lambda v: v.id)
def test_every_rung_has_a_budget(variant):
    assert None not in (variant.budget.regs, variant.budget.smem, variant.budget.spills)
