"""The variants on disk  ->  rows for list and build: what is compiled, recorded, stale, too big."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure import build, device, ptxas, record, variants
from profkit.measure.build import Build
from profkit.measure.targets import Places


@dataclass(frozen=True)
class Compiled:
    """One build, for a table.

    Attributes:
        rows: One per kernel function.
        summary: The same as one JSON value.
        over_budget: What it takes over its header's budget.
        error: What nvcc said, if it does not compile.
    """

    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    over_budget: list[str]
    error: str | None


def listing(places: Places) -> list[dict[str, Any]]:
    """Every variant in ladder order.

    Returns:
        Of each: variant, problem, after, title, file, built (for any architecture), and recorded
        (case -> ok or stale).
    """
    artifacts, builds = places.artifacts_dir(), places.build_dir()
    rows = []
    for v in variants.find(places.kernels_dir()):
        recorded: dict[str, str] = {}
        for path in sorted(artifacts.glob(f"{v.id}.*.json")):
            try:
                said = record.load(path)
            except ProfkitError:
                recorded[path.name.split(".")[1]] = "unreadable"
                continue
            if said.get("problem") == v.problem:
                recorded[str(said["case"])] = "stale" if record.stale(said, v.source_hash) else "ok"
        rows.append({
            "variant": v.id,
            "problem": v.problem,
            "after": v.after,
            "title": v.title,
            "file": str(v.path),
            "built": build.is_built(v, builds),
            "recorded": recorded,
        })  # fmt: skip
    return rows


def compiled(places: Places, names: Sequence[str], archs: Sequence[str] | None) -> list[Compiled]:
    """Compile variants and hold them to their budgets.

    Args:
        places: Where they are.
        names: Which; empty takes all.
        archs: `80`, `89`, ...; None takes the GPU present.
    """
    known = variants.find(places.kernels_dir())
    chosen = [variants.select(known, n) for n in names] if names else known
    made = build.build(chosen, archs or [device.gpu().arch], places.build_dir())
    return [_compiled(b) for b in made]


def _compiled(built: Build) -> Compiled:
    kernels = [asdict(k) for k in built.kernels]
    shared = {"variant": built.variant.id, "arch": built.arch, "seconds": built.seconds}
    error = f"{built.variant.path} does not compile\n{built.error}" if built.error else None
    over = build.check_budget(built)
    rows = [{**k, **shared, "kernel": ptxas.base_name(k["name"])} for k in kernels]
    extra = {"sass": built.sass, "error": built.error, "over_budget": over}
    flags = {"flags": built.flags, "warnings": built.warnings, "source": built.source}
    return Compiled(rows, {**shared, "kernels": kernels, **flags, **extra}, over, error)
