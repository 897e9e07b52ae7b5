"""Requests on stdin  ->  checks and times as JSON lines on stdout; the process that holds one GPU.

`python -m profkit.measure.workers.tune_worker` is started by lane.py and lives through many trials:
libraries, inputs and references stay loaded. A kernel that hangs or loses the context takes this
process with it, and lane.py starts another.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

from profkit.errors import ProfkitError
from profkit.measure.bench import bench, subjects
from profkit.measure.bench.bench import Subject
from profkit.measure.check import check, data
from profkit.measure.check.data import Data
from profkit.measure.cuda import device, library, state
from profkit.measure.variants import problem
from profkit.measure.workers import worker


class _Held:
    """What the process keeps from one request to the next."""

    def __init__(self, given: Mapping[str, Any], say: worker.Say) -> None:
        self.say = say
        self.problem = problem.load(Path(given["problem"]))
        self.folder = Path(given["build"])
        self.gpu = device.use()
        self.tools = library.support(Path(given["support"]), self.gpu)
        self.session = uuid4().hex
        self.libraries: dict[str, ctypes.CDLL] = {}
        self.subjects: dict[tuple[str, str], Subject] = {}
        self.data: dict[tuple[str, int], Data] = {}
        self.grid = given["grid"]
        who = state.identity(self.gpu.pci)
        say("gpu", **asdict(self.gpu), uuid=who.uuid, driver=who.driver)

    def at(self, case: str, seed: int) -> Data:
        """Inputs and reference of a case."""
        key = case, seed
        if key not in self.data:
            self.data[key] = data.prepare(self.problem, case, seed, self.folder, self.grid)
        return self.data[key]

    def library(self, one: Mapping[str, Any]) -> ctypes.CDLL:
        """A variant's library."""
        if one["name"] not in self.libraries:
            self.libraries[one["name"]] = library.load(Path(one["library"]))
        return self.libraries[one["name"]]

    def subject(self, one: Mapping[str, Any], case: str) -> Subject:
        """A variant or a reference, ready to be timed."""
        key = one["name"], case
        if key not in self.subjects:
            self.say("start", what="load", name=one["name"], case=case)
            at = self.at(case, 0)
            if one["library"] is None:
                self.subjects[key], _ = subjects.reference(one["name"], self.problem, at)
            else:
                given = self.library(one), self.problem, at, self.tools
                self.subjects[key] = subjects.native(one["name"], *given)
        return self.subjects[key]


def main() -> int:
    """Answer requests until there are none."""
    say = worker.protocol()
    held: _Held | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if held is None:
                held = _Held(asked, say)
            else:
                {"check": _check, "time": _time, "prepare": _prepare}[asked["do"]](held, asked)
        except device.CudaError as error:
            lost = error.code in device.STICKY
            say("lost" if lost else "error", message=error.message, hint=error.hint)
            if lost:
                return worker.LOST
        except (ProfkitError, subjects.ReferenceUnavailable, ImportError) as error:
            hint = error.hint if isinstance(error, ProfkitError) else ""
            say("error", message=(str(error).splitlines() or ["?"])[0], hint=hint)
        say("ready")
    return 0


def _prepare(held: _Held, asked: Mapping[str, Any]) -> None:
    """Compute inputs and references, and load the anchor, before anything is timed."""
    for case, seed in asked["checks"]:
        held.say("start", what="inputs and reference", name="", case=case)
        held.at(case, seed)
    if asked["anchor"] is not None:
        # Where it cannot run, the first request to time it says so.
        with contextlib.suppress(subjects.ReferenceUnavailable, ImportError):
            held.subject({"name": asked["anchor"], "library": None}, asked["case"])


def _check(held: _Held, asked: Mapping[str, Any]) -> None:
    """Judge a variant on every case and seed; then its launches at the case, if it is right."""
    name, case = asked["name"], asked["case"]
    held.say("start", what="check", name=name, case="")
    work = [held.at(c, s) for c, s in asked["checks"]]
    found = check.check_variant(name, held.library(asked), held.problem, work, held.tools)
    held.say("check", **found.to_json())
    if found.status == "right" and any(c.case == case and c.status == "right" for c in found.cases):
        launches = [asdict(x) for x in held.subject(asked, case).launches]
        held.say("launches", name=name, case=case, launches=launches)


def _time(held: _Held, asked: Mapping[str, Any]) -> None:
    """Time subjects in turns."""
    case, wanted = asked["case"], [held.subject(one, asked["case"]) for one in asked["subjects"]]
    held.say("start", what="bench", name="", case=case)
    rounds = asked["rounds"], asked["most"]
    for times in bench.measure(wanted, case, held.gpu, held.tools, asked["cold"], rounds):
        held.say("times", **times.to_json(), session=held.session)


if __name__ == "__main__":
    sys.exit(main())
