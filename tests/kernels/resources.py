"""What nvcc gave every variant, kept beside what it was made of: only what changed is compiled again.

    python -m tests.kernels.resources

writes resources.json anew (make ladder-build does, too). A row counts as long as the variant's code,
its flags, what its launcher is asked and the version of nvcc are those of the row.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from profkit.collect import tools
from profkit.lab.measure import ladder
from profkit.lab.measure.cuda.resources import CARDS
from profkit.lab.measure.targets import LabFolders
from profkit.lab.measure.variants import dry, variants
from profkit.lab.measure.variants.variants import Variant
from tests.conftest import ROOT

KERNELS = ROOT / "kernels"
KEPT = Path(__file__).with_name("resources.json")
EVERY = [v for v in variants.read_all_variants(KERNELS) if not v.language.missing()]
LADDER = [v for v in EVERY if v.problem == "attention"]
OTHERS = [v for v in EVERY if v.problem not in ("attention", "probes")]
HELD = [*product(LADDER, ("80", "89", "90")), *product(OTHERS, ("90",))]


def made_of(variant: Variant, arch: str) -> str:
    """A hash of all that decides what nvcc and the launcher give."""
    folder = LabFolders(KERNELS).build_dir()
    versions = [
        tools.require_tool_with_version(name, folder).version for name in variant.language.programs
    ]
    problem = ast.parse((KERNELS / variant.problem / "problem.py").read_text("utf-8"))
    asked = ast.dump(problem), dry.STUB.read_text()  # the tree: how it is laid out does not count
    flags = (*variant.language.own_flags(arch), *variant.flags)
    around = [
        os.environ[k] for k in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS") if os.environ.get(k)
    ]
    parts = [variant.source_hash, *flags, *around, *versions, *asked, CARDS[arch]]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@functools.cache
def kept() -> dict[str, dict[str, Any]]:
    """`problem/variant arch` -> the most that any of its kernels takes, for those still of today."""
    rows = json.loads(KEPT.read_text("utf-8"))
    today = {
        name_of(v, arch): made_of(v, arch) for v, arch in HELD if v.choose_compile_target_for(arch)
    }
    return {
        name: {key: n for key, n in row.items() if key not in ("made_of", "nvcc")}
        for name, row in rows.items()
        if row["made_of"] == today.get(name)
    }


def nvcc_version() -> str:
    return tools.require_tool_with_version("nvcc", LabFolders(KERNELS).build_dir()).version


def name_of(variant: Variant, arch: str) -> str:
    return f"{variant.problem}/{variant.id} {arch}"


def compiled(wanted: Iterable[tuple[Variant, str]]) -> list[ladder.CompiledVariant]:
    """Compile now."""
    by_arch: dict[str, list[str]] = {}
    for variant, arch in wanted:
        by_arch.setdefault(arch, []).append(f"{variant.problem}/{variant.id}")
    each = (
        ladder.compile_and_check_budgets(LabFolders(KERNELS), names, [arch])
        for arch, names in by_arch.items()
    )
    return [one for several in each for one in several]


def row_of(one: ladder.CompiledVariant) -> dict[str, int]:
    """The most registers, shared memory, spilled bytes and stack of a build's kernels."""
    rows = [asdict(kernel) for kernel in one.build.kernels]
    for row, seen in zip(rows, one.list_kernel_rows(), strict=True):
        row["smem"] += seen["dynamic"] or 0
    return {what: max(row[what] for row in rows) for what in ("regs", "smem", "spills", "stack")}


def over_budget(variant: Variant, row: dict[str, int]) -> list[str]:
    most = asdict(variant.budget)
    return [
        f"{variant.id}: {k}={row[k]}, budget {n}"
        for k, n in most.items()
        if n is not None and row[k] > n
    ]


def write(made: Sequence[ladder.CompiledVariant]) -> None:
    rows = {}
    for one in made:
        assert (one.build.error, one.launches is None) == (None, False), one.variant
        variant, arch = one.build.variant, one.build.arch.rstrip("af")
        origin = {"made_of": made_of(variant, arch), "nvcc": nvcc_version()}
        rows[name_of(variant, arch)] = {**origin, **row_of(one)}
    lines = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    write(compiled((v, arch) for v, arch in HELD if v.choose_compile_target_for(arch)))
