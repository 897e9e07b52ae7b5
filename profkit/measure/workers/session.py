"""What to check and time  ->  what came of it, in a process that may hang or crash.

The worker holds the GPU. When it loses its context or says nothing for too long, the variant it
was at is to blame: it has failed, and the rest goes on in a new worker.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from profkit.errors import ProfkitError
from profkit.measure import process
from profkit.measure.build.build import Build
from profkit.measure.variants.problem import Problem

TIMEOUT = 120.0  # seconds without a word: no check of one variant takes that long


@dataclass(frozen=True)
class Job:
    """What a worker is asked to do.

    Attributes:
        problem: The problem.
        folder: The build folder.
        support: The build of support.cu.
        builds: Variants, built.
        references: Library calls to time with them.
        checks: (case, seed) that every variant is judged on.
        bench: Cases to launch and time at.
        time: Whether to time; else the launches of each case are listed only.
        cold: Whether to time with a cold L2 too.
    """

    problem: Problem
    folder: Path
    support: Path
    builds: Sequence[Build]
    references: Sequence[str] = ()
    checks: Sequence[tuple[str, int]] = ()
    bench: Sequence[str] = ()
    time: bool = True
    cold: bool = True


@dataclass
class Outcome:
    """What workers said.

    Attributes:
        gpu: The GPU, as device.Gpu and NVML have it.
        checks: Name -> check.Check as JSON.
        times: (name, case) -> bench.Times as JSON.
        launches: (name, case) -> kernel launches of one call.
        failed: Name -> why it has no times.
    """

    gpu: dict[str, Any] = field(default_factory=dict)
    checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    times: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    launches: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


Progress = Callable[[str], None]


def run(
    job: Job,
    progress: Progress = lambda _: None,
    timeout: float | None = None,
    command: Sequence[str | Path] = (sys.executable, "-m", "profkit.measure.workers.worker"),
) -> Outcome:
    """Do a job, in as many workers as it takes.

    Args:
        job: What to do.
        progress: Told what is being done, in a few words.
        timeout: Seconds without a word after which a worker is stopped; None takes TIMEOUT.
        command: How a worker is started.
    """
    outcome = Outcome()
    while True:
        blamed = _one_worker(job, outcome, progress, timeout or TIMEOUT, command)
        if blamed is None:
            return outcome
        name, why = blamed
        if name in outcome.failed or not name:
            raise ProfkitError(f"measuring stopped: {why}", "run it again on fewer variants")
        outcome.failed[name] = why
        if name not in outcome.checks or outcome.checks[name]["status"] == "right":
            outcome.checks[name] = _failed_check(job, name, why)


def _failed_check(job: Job, name: str, why: str) -> dict[str, Any]:
    module = job.problem.module
    fault = {"case": "?", "seed": 0, "status": "failed", "faults": [why]}
    return {
        "variant": name,
        "status": "failed",
        "atol": module.ATOL,
        "rtol": module.RTOL,
        "cases": [fault],
        "sanitizer": {},
    }


def _request(job: Job, outcome: Outcome) -> str:
    """The job without what is done and what has failed."""
    variants = []
    for build in job.builds:
        name = build.variant.id
        if name in outcome.failed:
            continue
        said = outcome.checks.get(name)
        right = [c["case"] for c in said["cases"] if c["status"] == "right"] if said else []
        variants.append({
            "name": name,
            "library": str(build.library),
            "grid": build.variant.keys.get("inputs"),
            "check": said is None,
            "right": right,
            "time": said is not None and said["status"] == "right",
        })  # fmt: skip
    finished = {case for _, case in outcome.times}
    return json.dumps({
        "problem": str(job.problem.path.parent),
        "build": str(job.folder),
        "support": str(job.support),
        "variants": variants,
        "references": [r for r in job.references if r not in outcome.failed],
        "checks": list(job.checks),
        "bench": [c for c in job.bench if c not in finished],
        "time": job.time,
        "cold": job.cold,
        "session": uuid4().hex,  # of this worker: what is timed in turns has one
    })  # fmt: skip


def _one_worker(
    job: Job,
    outcome: Outcome,
    progress: Progress,
    timeout: float,
    command: Sequence[str | Path],
) -> tuple[str, str] | None:
    """Let one worker do what is left; (name, why) of what stopped it, None if nothing did."""
    at: dict[str, str] = {"name": "", "case": "", "what": "start"}
    with tempfile.TemporaryFile() as log:
        # The reference runs many blocks side by side: a BLAS with threads of its own per block
        # makes it twenty times slower.
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        for line in process.lines(command, _request(job, outcome), timeout, log, env):
            if line is None:
                return at["name"], f"it hung: nothing came back for {timeout:.0f} s ({_where(at)})"
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "done":
                return None
            if kind == "error":
                raise ProfkitError(event["message"], event["hint"])
            if kind == "lost":
                return at["name"], f"{event['message']} ({_where(at)}); {event['hint']}"
            if kind == "start":
                at = event
                progress(_where(at))
            else:
                _take(kind, event, outcome)
        log.seek(0)
        said = log.read()[-process.KEEP :].decode("utf-8", "replace").strip()
    if "Traceback (most recent call last)" in said:
        raise RuntimeError(f"the measuring process failed ({_where(at)}):\n{said}")
    return at["name"], f"the process crashed ({_where(at)}): {said.splitlines()[-1:] or 'silent'}"


def _where(at: dict[str, str]) -> str:
    return " ".join(w for w in (at["what"], at["name"], at["case"]) if w)


def _take(kind: str, event: dict[str, Any], outcome: Outcome) -> None:
    match kind:
        case "gpu":
            outcome.gpu = event
        case "check":
            _merge(outcome.checks, event)
        case "times":
            outcome.times[event["name"], event["case"]] = event
        case "launches":
            outcome.launches[event["name"], event["case"]] = event["launches"]
        case "failed":
            outcome.failed[event["name"]] = event["message"]


def _merge(checks: dict[str, dict[str, Any]], new: dict[str, Any]) -> None:
    """A reference is checked case by case: keep all its cases, and the worst status."""
    old = checks.get(new["variant"])
    if old is None:
        checks[new["variant"]] = new
        return
    old["cases"] += new["cases"]
    order = ("failed", "wrong", "right", "not supported")
    old["status"] = min(old["status"], new["status"], key=order.index)
