"""What the ladder's launchers would start on an L4: computed from a build for sm_89, nothing measured.

`python tools/ladder_page.py --build` writes it to artifacts/l4.json with the hash of each source.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.records.record import SourceFile
from profkit.reports import figures
from profkit.show.text.blocks import Grid, render_markdown

if TYPE_CHECKING:
    from profkit.lab.measure.variants.build import Build

sys.path[:0] = [str(Path(__file__).parents[1] / "analyses")]
from arithmetic import L4, Attention  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
KERNELS, BUILT = ROOT / "kernels", ROOT / "artifacts" / "l4.json"


def built(case: str, made: Sequence[Build] | None = None) -> dict[str, Any]:
    """What each launcher would start on an L4 at a case, by a build for sm_89: that which is given."""
    from profkit.collect import tools
    from profkit.lab.measure.cuda import resources
    from profkit.lab.measure.cuda.resources import compute_occupancy, compute_waves
    from profkit.lab.measure.variants import build, dry, variants

    known = variants.read_all_variants(KERNELS, "attention")
    if made is None:
        made = build.compile_variants_not_built_yet(
            known, ["89"], build.choose_build_folder_of_kernels(KERNELS)
        )
    sms = resources.CARDS["89"].sms
    nvcc = tools.require_tool_with_version("nvcc", build.choose_build_folder_of_kernels(KERNELS))
    found: dict[str, Any] = {v.id: {"source": v.source_hash, "launches": None} for v in known}
    for one in made:
        build.require_library(one)
        shapes = dry.load_dry_launches_by_case(one, KERNELS / "attention") or {}
        rows = []
        for x in shapes.get(case, []):
            threads = x.block[0] * x.block[1] * x.block[2]
            shared = x.static_smem + x.dynamic_smem
            fits = compute_occupancy("89", x.regs, threads, shared)
            rows.append(
                {
                    "registers": x.regs,
                    "shared": shared,
                    "threads": threads,
                    "blocks": x.grid[0] * x.grid[1] * x.grid[2],
                    "blocks_per_sm": fits.blocks,
                    "limiter": fits.limiter,
                    "occupancy": fits.fraction,
                    "waves": compute_waves(x.grid, fits.blocks, sms),
                }
            )
        found[one.variant.id]["launches"] = rows
    return {"nvcc": nvcc.version, "rungs": found}


def section(of: Attention, case: str, rungs: Mapping[str, SourceFile]) -> list[str]:
    """Occupancy, waves and the roof on an L4, as lines of Markdown."""
    floors = L4.floor(of)
    named = ", ".join(f"{name} {figures.format_seconds(t)}" for name, t in floors.items())
    slowest = max(floors, key=lambda name: floors[name])
    kept = json.loads(BUILT.read_text("utf-8"))["rungs"] if BUILT.is_file() else {}
    rows = [row for v, h in rungs.items() if v in kept for row in _rows(v, kept[v], h)]
    head = (
        "rung",
        ">registers",
        ">shared KB",
        ">blocks/SM",
        "limited by",
        ">occupancy",
        ">blocks",
        ">waves",
    )
    return [
        f"## On an L4 (sm_89, {L4.sms} SMs): computed, not measured",
        "",
        "The same sources compiled for sm_89 (`make ladder-build`): grid and shared memory are what the",
        "launchers ask for, occupancy follows from the registers that ptxas gives. The roof at case",
        f"{case}, without any launch cost: {named}; {slowest} is the highest: {of.intensity:.0f}",
        f"operations per compulsory byte, the ridge is at {L4.tensor / L4.dram:.0f}. Two rounds of",
        "blocks take twice the time of one, however few the last has: mind waves just above 1.",
        "",
        *render_markdown([Grid(head, tuple(rows))]).splitlines(),
    ]


def _rows(variant: str, said: Mapping[str, Any], file: SourceFile) -> list[tuple[str, ...]]:
    name = variant + (" (stale)" if said["source"] != file.sha256 else "")
    if not said["launches"]:
        why = "not for sm_89" if said["launches"] is None else "does not start"
        return [(name, why, *[""] * 6)]
    return [
        (
            name,
            f"{x['registers']}",
            f"{x['shared'] / 1024:.1f}",
            f"{x['blocks_per_sm']}",
            x["limiter"],
            figures.format_value_with_unit(x["occupancy"], "share"),
            f"{x['blocks']}",
            f"{x['waves']:.2f}",
        )
        for x in said["launches"]
    ]
