"""A job on stdin  ->  checks and times as JSON lines on stdout; the process that holds the GPU.

`python -m profkit.measure.workers.worker` is started by session.py, which outlives it: a kernel that
hangs or loses the context takes this process with it and nothing else. torch is imported only if a
reference is asked for.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.bench import bench, subjects
from profkit.measure.bench.bench import Subject
from profkit.measure.check import check, data
from profkit.measure.check.data import Data
from profkit.measure.cuda import device, library, state
from profkit.measure.variants import problem
from profkit.measure.variants.problem import Problem

Say = Callable[..., None]
LOST = 3  # exit status: the CUDA context is gone


def main() -> int:
    """Read one job, do it, say what came of it."""
    say = protocol()
    job = json.load(sys.stdin)
    try:
        _work(job, say)
    except device.CudaError as error:
        say("lost" if error.code in device.STICKY else "error", **_message(error))
        return LOST if error.code in device.STICKY else 2
    except ProfkitError as error:
        say("error", **_message(error))
        return 2
    say("done")
    return 0


def protocol() -> Say:
    """Keep stdout for the protocol: what kernels and libraries print goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(event: str, **values: Any) -> None:
        out.write(json.dumps({"event": event, **values}, allow_nan=False) + "\n")
        out.flush()

    return say


def _message(error: ProfkitError) -> dict[str, str]:
    return {"message": error.message, "hint": error.hint}


def _work(job: dict[str, Any], say: Say) -> None:
    the = problem.load(Path(job["problem"]))
    folder = Path(job["build"])
    gpu = device.use()
    who = state.identity(gpu.pci)
    say("gpu", **asdict(gpu), uuid=who.uuid, driver=who.driver)
    tools = library.support(Path(job["support"]), gpu)
    libraries: dict[str, ctypes.CDLL] = {}
    for case, seed in job["checks"]:
        say("start", what="inputs and reference", name="", case=case)
        data.prepare(the, case, seed, folder)
    for one in job["variants"]:
        name = one["name"]
        say("start", what="check", name=name, case="")
        libraries[name] = library.load(Path(one["library"]))
        if one["check"]:
            work = [data.prepare(the, c, s, folder, one["grid"]) for c, s in job["checks"]]
            found = check.check_variant(name, libraries[name], the, work, tools)
            say("check", **found.to_json())
            one["right"] = [c.case for c in found.cases if c.status == "right"]
            one["time"] = found.status == "right"
    for case in job["bench"]:
        _bench(job, case, (the, folder, tools, libraries), say)


def _bench(
    job: dict[str, Any],
    case: str,
    held: tuple[Problem, Path, library.Support, dict[str, ctypes.CDLL]],
    say: Say,
) -> None:
    """Time everything that is right at one case, in turns."""
    the, folder, tools, libraries = held
    wanted: list[Subject] = []
    for one in job["variants"]:
        if not one["time"] or case not in one["right"]:
            continue
        say("start", what="bench", name=one["name"], case=case)
        at = data.prepare(the, case, 0, folder, one["grid"])
        try:
            wanted.append(subjects.native(one["name"], libraries[one["name"]], the, at, tools))
        except device.CudaError as error:
            _not_lost(error)
            say("failed", name=one["name"], case=case, **_message(error))
    for name in job["references"]:
        say("start", what="bench", name=name, case=case)
        at = data.prepare(the, case, 0, folder)
        if (subject := _reference(name, the, at, say)) is not None:
            wanted.append(subject)
    for subject in wanted:
        say(
            "launches", name=subject.name, case=case, launches=[asdict(x) for x in subject.launches]
        )
    if wanted and job["time"]:
        say("start", what="bench", name="", case=case)
        for times in bench.measure(wanted, case, device.use(), tools, job["cold"]):
            say("times", **times.to_json(), session=job["session"])


def _not_lost(error: device.CudaError) -> None:
    if error.code in device.STICKY:
        raise error


def _reference(name: str, the: Problem, at: Data, say: Say) -> Subject | None:
    try:
        subject, found = subjects.reference(name, the, at)
    except (subjects.ReferenceUnavailable, ImportError) as error:
        say("failed", name=name, case=at.case, message=f"{name} cannot run here: {error}", hint="")
        return None
    say("check", **check.summary(name, the, [found]).to_json())
    return subject


if __name__ == "__main__":
    sys.exit(main())
