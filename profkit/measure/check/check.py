"""A built variant on a GPU  ->  is it right: values, and everything it must not touch.

Every case and seed is judged against the fp64 reference, on an output that was filled with NaN.
Then: only the given stream is used, nothing is waited for.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypedDict

from profkit.measure.check import arena
from profkit.measure.check.arena import Arena
from profkit.measure.check.data import Data
from profkit.measure.check.judge import judge_output
from profkit.measure.cuda import device, library
from profkit.measure.variants.problem import Problem
from profkit.records.store import JsonObject

Status = Literal["right", "wrong", "not supported", "failed"]
_SPIN = 0.05  # seconds that the stream is held while the launcher is watched


@dataclass(frozen=True)
class CaseCheck:
    """One case and seed."""

    case: str
    seed: int
    # right, wrong, not supported (cudaErrorNotSupported), or failed (another CUDA error)
    status: Status
    max_abs: float | None = None  # largest absolute error
    max_rel: float | None = None  # largest relative error
    bias: float | None = None  # mean signed error
    faults: tuple[str, ...] = ()  # what is wrong, one line each


@dataclass(frozen=True)
class Check:
    """All cases of one variant."""

    variant: str
    status: Status  # wrong or failed if any case is; not supported if all are; else right
    atol: float
    rtol: float
    cases: tuple[CaseCheck, ...] = ()
    # tool -> verdict, for the tools that were run
    sanitizer: dict[str, str] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """Every fault with its case, one line each."""
        return [f"{c.case} seed {c.seed}: {f}" for c in self.cases for f in c.faults]

    @property
    def correct_cases(self) -> tuple[str, ...]:
        """Names of the cases that are right, once per seed."""
        return tuple(c.case for c in self.cases if c.status == "right")

    @property
    def max_abs(self) -> float | None:
        """The largest absolute error of all cases; None if none was judged."""
        return max((c.max_abs for c in self.cases if c.max_abs is not None), default=None)

    def to_json(self) -> JsonObject:
        """Plain values; null where not known."""
        return asdict(self)


class CheckDocument(TypedDict):
    """What `profkit check --json` prints."""

    schema: Literal["profkit.check/1"]
    checks: list[Check]


def summed_check(variant: str, problem: Problem, cases: Sequence[CaseCheck]) -> Check:
    """Put the cases of one variant together."""
    atol, rtol = problem.module.ATOL, problem.module.RTOL
    return Check(variant, _worst(c.status for c in cases), atol, rtol, tuple(cases))


def merged_checks(before: Check, after: Check) -> Check:
    """All cases of two checks of one variant, and the worse status."""
    cases = (*before.cases, *after.cases)
    return replace(before, status=_worst((before.status, after.status)), cases=cases)


def _worst(statuses: Iterable[Status]) -> Status:
    seen = set(statuses)
    order: tuple[Status, ...] = ("failed", "wrong", "right", "not supported")
    return next((s for s in order if s in seen), "not supported")


def check_case(call: Callable[[Arena], None], problem: Problem, data: Data) -> CaseCheck:
    """Run one case once and judge everything about it.

    Raises:
        CudaError: The context is lost; nothing more can run in this process.
    """
    here = arena.place_arena(data)
    try:
        call(here)
        device.synchronize()
    except device.CudaError as error:
        return failure(data, error)
    host = arena.fetch(here)
    device.free(here.base)
    return judge_case(problem, here, host)


def failure(data: Data, error: device.CudaError) -> CaseCheck:
    """A case that ended in a CUDA error; raises it again if the context is lost."""
    if error.code == device.NOT_SUPPORTED:
        return CaseCheck(data.case, data.seed, "not supported")
    if error.code in device.STICKY:
        raise error
    return CaseCheck(data.case, data.seed, "failed", faults=(error.message,))


def judge_case(problem: Problem, here: Arena, host: arena.Bytes) -> CaseCheck:
    """Judge the outputs and guards of one finished launch."""
    count = range(len(here.outputs))
    unwritten = [arena.unwritten(here, host, i) for i in count]
    outs = [arena.output(here, host, i) for i in count]
    judged = judge_values(problem, here.data, outs, unwritten)
    out_of_bounds = arena.out_of_bounds_writes(here, host)
    if not out_of_bounds:
        return judged
    return replace(judged, status="wrong", faults=(*out_of_bounds, *judged.faults))


def judge_values(
    problem: Problem, data: Data, outs: Sequence[Any], unwritten: Sequence[int] = ()
) -> CaseCheck:
    """Judge outputs against the reference.

    `unwritten`: how many elements of each output were never written, where that is known.
    """
    atol, rtol = problem.tolerance(data.case)
    faults: list[str] = []
    verdicts = []
    for i, (out, reference) in enumerate(zip(outs, data.reference(), strict=True)):
        verdict = judge_output(out, reference, atol, rtol)
        verdicts.append(verdict)
        left = unwritten[i] if i < len(unwritten) else 0
        if not verdict.ok and left:
            faults.append(f"output {i}: {left} of {out.size} elements were never written")
        if verdict.nans > left:
            faults.append(f"output {i}: {verdict.nans - left} elements are NaN or infinite")
        if verdict.wrong > verdict.nans:
            at = verdict.worst_finite
            faults.append(
                f"output {i}: {verdict.wrong - verdict.nans} of {out.size} elements are wrong, "
                f"worst at {list(at)}: {float(out[at]):.6g}, wanted {float(reference[at]):.6g} "
                f"(tolerance {atol:g} + {rtol:g} relative; bias {verdict.bias:+.2g})"
            )
    return CaseCheck(
        data.case,
        data.seed,
        "wrong" if faults else "right",
        max((v.max_abs for v in verdicts), default=None),
        max((v.max_rel for v in verdicts), default=None),
        max((v.bias for v in verdicts), key=abs, default=None),
        tuple(faults),
    )


def check_stream(
    lib: ctypes.CDLL, problem: Problem, data: Data, tools: library.Support, stream: int
) -> CaseCheck:
    """Hold the stream and launch: nothing may be written, and the launcher must not wait."""
    here = arena.place_arena(data)
    args = arena.args_on(here, problem.module.arguments(problem.case(data.case)), stream)
    device.synchronize()
    try:
        tools.spin(int(_SPIN * 1e9), stream)
        began = time.perf_counter()
        library.start_launcher(lib, args)
        waited = time.perf_counter() - began
        time.sleep(_SPIN / 10)  # work on another stream would be done by now
        early = arena.fetch(here)
        spinning = time.perf_counter() - began < _SPIN
        device.synchronize()
    except device.CudaError as error:
        return failure(data, error)
    judged = judge_case(problem, here, arena.fetch(here))
    faults = list(judged.faults)
    if waited > _SPIN / 2:
        faults.append(
            f"the launcher waits for the device: it came back after {waited * 1e3:.0f} ms"
        )
    elif spinning and _written(here, early):
        faults.append("work ran on another stream than the given one: the output was written early")
    device.free(here.base)
    return replace(judged, status="wrong" if faults else "right", faults=tuple(faults))


def _written(here: Arena, host: arena.Bytes) -> bool:
    begun = {out for out, _ in here.data.begins}
    places = [place for i, place in enumerate(here.outputs) if i not in begun]
    return any((host[o : o + s] != arena.POISON).any() for o, s in places)
