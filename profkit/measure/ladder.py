"""The variants on disk  ->  rows for list and build: what is compiled, recorded, stale, too big."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.build import build, dry, toolchain
from profkit.measure.build.build import Build
from profkit.measure.cuda import device, state
from profkit.measure.cuda.graph import Launch
from profkit.measure.cuda.names import base_name
from profkit.measure.targets import Places
from profkit.measure.variants import variants
from profkit.records import store as record
from profkit.records.artifacts import run_files


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


def listing(places: Places, problem: str | None = None) -> list[dict[str, Any]]:
    """Every variant in ladder order, problem by problem.

    Args:
        places: Where they are.
        problem: Only this one.

    Returns:
        Of each: variant, problem, after, title, file, built (for any architecture), and recorded
        (case -> ok or stale).
    """
    records, builds = _records(places.artifacts_dir()), places.build_dir()
    rows = []
    for v in variants.find(places.kernels_dir(), problem):
        recorded: dict[str, str] = {}
        for path, case in records.get(v.id, ()):
            try:
                said = record.load(path)
            except ProfkitError:
                recorded[case] = "unreadable"
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


def _records(artifacts: Path) -> dict[str, list[tuple[Path, str]]]:
    """Variant -> its run records, each with its case, of whichever problem."""
    found: dict[str, list[tuple[Path, str]]] = {}
    for (variant, case), several in run_files(artifacts).items():
        found.setdefault(variant, []).extend((f.record, case) for f in several if f.record)
    return found


def refresh(places: Places, made: Sequence[Compiled]) -> list[Path]:
    """Let records of the very machine code that was just built follow today's source.

    A change that leaves the machine code as it is (a header that moved, a refactoring) makes a
    record stale by its source although what was measured is what the source still gives.

    Returns:
        The records that were written anew; each keeps the hash that it was made with.
    """
    today = {(s["variant"], s["arch"], s["sass"]): s for s in (b.summary for b in made)}
    kept = []
    records = _records(places.artifacts_dir()).values()
    for path, _ in itertools.chain.from_iterable(records):
        try:
            said = record.load(path)
        except ProfkitError:
            continue  # list names it
        source = said.get("source") or {}
        found = today.get((said.get("variant"), source.get("arch"), source.get("sass")))
        if not found or not found["sass"] or not record.stale(said, found["source"]):
            continue
        said["source"] = {**source, "made_from": source["sha256"], "sha256": found["source"]}
        record.save(path, said)
        kept.append(path)
    return kept


def compiled(places: Places, names: Sequence[str], archs: Sequence[str] | None) -> list[Compiled]:
    """Compile variants and hold them to their budgets.

    Args:
        places: Where they are.
        names: Which; empty takes all.
        archs: `80`, `89`, ...; None takes the GPU present.
    """
    kernels = places.kernels_dir()
    chosen = variants.named(kernels, names) if names else variants.find(kernels)
    archs = archs or [state.arch() or device.gpu().arch]
    folder, nvcc = places.build_dir(), toolchain.need("nvcc")
    with ThreadPoolExecutor() as pool:  # each waits for a program of its own
        stub = pool.submit(dry.stub_object, folder, nvcc)
        made = build.build(chosen, archs, folder)
        stub.result()
        shapes = pool.map(lambda b: dry.shapes(b, kernels / b.variant.problem, nvcc), made)
        return [_compiled(b, shape) for b, shape in zip(made, shapes, strict=True)]


def _compiled(built: Build, shape: dict[str, list[Launch]] | None) -> Compiled:
    kernels = [asdict(k) for k in built.kernels]
    shared = {"variant": built.variant.id, "arch": built.arch, "seconds": built.seconds}
    error = f"{built.variant.path} does not compile\n{built.error}" if built.error else None
    seen = [x for found in (shape or {}).values() for x in found]
    most = {x.kernel: x for x in sorted(seen, key=lambda x: x.dynamic_smem)}
    over = build.check_budget(built, {k: x.dynamic_smem for k, x in most.items()})
    rows = []
    for kernel in kernels:
        largest = most.get(kernel["name"])
        fits = {
            "dynamic": largest.dynamic_smem if largest else None,
            "blocks_per_sm": largest.blocks_per_sm if largest else None,
        }
        rows.append({**kernel, **shared, **fits, "kernel": base_name(kernel["name"])})
    starts: dict[str, list[dict[str, Any]]] | None = None
    if shape is not None:
        starts = {case: [asdict(one) for one in found] for case, found in shape.items()}
    summary = {
        **shared,
        "kernels": kernels,
        "launches": starts,
        "flags": built.flags,
        "warnings": built.warnings,
        "source": built.source,
        "sass": built.sass,
        "error": built.error,
        "over_budget": over,
    }
    return Compiled(rows, summary, over, error)
