"""What was built and measured  ->  run record and launch plan of one variant at one case."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from profkit.measure.bench.summary import timing
from profkit.measure.build.build import Build
from profkit.measure.check import data
from profkit.measure.targets import Target
from profkit.measure.variants import analytic
from profkit.measure.variants.problem import Problem
from profkit.measure.workers.session import Outcome


@dataclass(frozen=True)
class Made:
    """What a verb has built and measured so far.

    Attributes:
        target: What was asked for.
        builds: Variant -> its build, also those that failed (see Build.error).
        support: The library of support.cu.
        outcome: What the workers said.
    """

    target: Target
    builds: Mapping[str, Build]
    support: Path
    outcome: Outcome


def plan_of(made: Made, name: str, case: str) -> dict[str, Any]:
    """What profkit.measure.profile.launch is given for one call."""
    from profkit.measure.profile.launch import plan_for

    target, built = made.target, made.builds.get(name)
    the = target.problem
    grid = built.variant.keys.get("inputs") if built else None
    at = data.prepare(the, case, 0, target.folder, grid)
    return plan_for(
        built.library if built else None,
        [str(at.folder / f"in{i}") for i in range(len(at.shapes))],
        at.output_bytes(),
        the.module.arguments(the.case(case)),
        reference=None if built else name,
        problem=str(the.path.parent),
        build=str(target.folder),
        case=case,
        label=f"profkit:{name}:{case}",
        support=str(made.support),
        profile=True,
    )


def record_of(made: Made, name: str, case: str) -> dict[str, Any]:
    """The run record of a variant at a case, without its report."""
    the, outcome, built = made.target.problem, made.outcome, made.builds.get(name)
    launches = outcome.launches.get((name, case), [])
    said: dict[str, Any] = {
        "variant": name,
        "problem": the.name,
        "case": case,
        "header": _header(built),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "source": None,
        "resources": [],
        "launches": launches,
        "check": outcome.checks.get(name),
        "timing": None,
        "gpu": outcome.gpu,
        "versions": {"nvcc": None, "ncu": None, "torch": _torch()},
        "work": _work(the, case, outcome.gpu),
        "shape": analytic.shape(launches, outcome.gpu["sms"]) if outcome.gpu else [],
        "report": None,
    }
    if built is None:
        said["backend"] = _backend(the, launches)
        return said
    said["source"] = {
        "file": f"{the.name}/{built.variant.path.name}",
        "sha256": built.source,
        "sass": built.sass,
        "arch": built.arch,
        "flags": built.flags,
    }
    if said["check"] and built.library:
        said["check"] = {**said["check"], "sanitizer": _sanitizer(built.library)}
    said["resources"] = [asdict(k) for k in built.kernels]
    said["versions"]["nvcc"] = built.nvcc
    return said


def _header(built: Build | None) -> dict[str, Any] | None:
    """What the variant's header promises; None of a library call."""
    if built is None:
        return None
    v = built.variant
    return {
        "title": v.title,
        "after": v.after,
        "fixes": v.fixes,
        "fixes-not": v.fixes_not,
        "moves": [str(m) for m in v.moves],
        "moves-not": [str(m) for m in v.moves_not],
        "case": v.keys.get("case"),
    }


def timing_of(made: Made, name: str, case: str) -> dict[str, Any] | None:
    """Times with intervals; apart from record_of, because the statistics take a while to load."""
    times = made.outcome.times.get((name, case))
    return timing(times) if times else None


def timed(made: Made, case: str) -> list[dict[str, Any]]:
    """Everything that was timed at a case: name, backend of a reference, launches and timing."""
    rows = []
    for name in (*made.builds, *made.target.references):
        timing = timing_of(made, name, case)
        if timing is not None:
            launches = made.outcome.launches.get((name, case), [])
            backend = _backend(made.target.problem, launches) if name not in made.builds else None
            row = {"name": name, "backend": backend, "launches": launches, "timing": timing}
            rows.append(row)
    return rows


def _sanitizer(library: Path) -> dict[str, str]:
    """What `check --sanitize` found in this very binary; empty if it was not run."""
    try:
        kept: dict[str, str] = json.loads(library.with_name("sanitizer.json").read_text())
    except (OSError, ValueError):
        return {}
    return kept


def _torch() -> str | None:
    try:
        return version("torch")
    except PackageNotFoundError:
        return None


def _work(the: Problem, case: str, gpu: dict[str, Any]) -> dict[str, Any]:
    of = the.case(case)
    return {
        "operations": the.module.operations(of),
        "compulsory_bytes": the.module.compulsory_bytes(of),
        "exponentials": the.module.exponentials(of)
        if hasattr(the.module, "exponentials")
        else None,
        "floors": analytic.floors(the, case, gpu) if gpu else {},
    }


def _backend(the: Problem, launches: Sequence[dict[str, Any]]) -> str | None:
    """Which backend a reference really ran, read from its kernels' names."""
    if not hasattr(the.module, "backend_of") or not launches:
        return None
    return str(the.module.backend_of([x["kernel"] for x in launches]))


def git_commit(folder: Path) -> dict[str, Any] | None:
    """The commit that a folder is at, and whether files differ from it; None without git."""
    try:
        head, dirty = (
            subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", "."])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"commit": head, "dirty": bool(dirty)}
