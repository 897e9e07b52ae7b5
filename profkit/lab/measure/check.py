"""A built variant on a GPU  ->  is it right: values, and everything it must not touch.

Every case and seed is judged against the fp64 reference, on an output that was filled with NaN.
Then: only the given stream is used, nothing is waited for.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from profkit.collect.process import make_thread_pool
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.data import POISON, Arena, CaseData, upload_arena
from profkit.lab.measure.variants.problem import Problem
from profkit.records.record import find_largest_known
from profkit.records.store import Document

if TYPE_CHECKING:
    from profkit.lab.measure.data import Array, Bytes
    from profkit.units import CaseName, Clause, CudaStream, Sentence

_PIECE = 1 << 18  # elements: 2 MB a temporary


@dataclass(frozen=True)
class Accuracy:
    """How an output compares with its reference."""

    wrong: int = 0  # elements outside: not abs(out - ref) <= atol + rtol * abs(ref)
    nans: int = 0  # how many are NaN or infinite: they are outside
    max_abs: float = 0.0  # largest absolute error of the finite elements
    max_rel: float = 0.0  # largest error relative to the reference, where that is not below atol
    bias: float = 0.0  # mean signed error of the finite elements
    # index of the finite element that is furthest outside, or nearest to it
    worst: tuple[int, ...] = ()


def judge_output(out: Array, ref: Array, atol: float, rtol: float) -> Accuracy:
    """Compare an output with its reference, element by element, in fp64."""
    if out.shape != ref.shape:
        raise ValueError(f"shapes differ: {out.shape} and {ref.shape}")
    if out.size == 0:
        return Accuracy()
    # In pieces that stay in a cache, several at once: numpy lets threads run beside each other.
    flat = out.reshape(-1)
    flat_ref = ref.reshape(-1)

    def compare_from(start: int) -> _Piece:
        part = slice(start, start + _PIECE)
        return _compare_piece(flat[part], flat_ref[part], start, atol, rtol)

    with make_thread_pool() as pool:
        pieces = list(pool.map(compare_from, range(0, out.size, _PIECE)))
    return _combine_accuracies_of_pieces(pieces, out.shape)


def _combine_accuracies_of_pieces(pieces: Sequence[_Piece], shape: tuple[int, ...]) -> Accuracy:
    """Return the accuracy of a whole output from that of its pieces."""
    import numpy as np

    finite_count = sum(piece.finite for piece in pieces)
    bias = 0.0
    if finite_count:
        bias = sum(piece.error for piece in pieces) / finite_count
    _, minus_index = max(piece.worst for piece in pieces)
    return Accuracy(
        wrong=sum(piece.wrong for piece in pieces),
        nans=prod(shape) - finite_count,
        max_abs=max(piece.max_abs for piece in pieces),
        max_rel=max(piece.max_rel for piece in pieces),
        bias=bias,
        worst=tuple(map(int, np.unravel_index(-minus_index, shape))),
    )


class _Piece(NamedTuple):
    """A part of an output against the same part of its reference; see Accuracy."""

    finite: int  # how many elements are
    wrong: int
    error: float  # signed, the sum over the finite elements
    max_abs: float
    max_rel: float
    # the largest finite error over what is tolerated there, and minus its index: the first of equals
    worst: tuple[float, int]


def _compare_piece(out: Array, ref: Array, first_index: int, atol: float, rtol: float) -> _Piece:
    import numpy as np

    expected = ref.astype(np.float64)
    magnitude = np.abs(expected)
    error = out.astype(np.float64) - expected
    finite = np.isfinite(error)
    absolute = np.where(finite, np.abs(error), np.inf)
    with np.errstate(invalid="ignore"):  # 0 / 0: exactly right at no tolerance
        of_tolerance = np.nan_to_num(absolute / (atol + rtol * magnitude), nan=0.0, posinf=np.inf)
    is_relative_known = finite & (magnitude >= max(atol, np.finfo(np.float64).tiny))
    relative = absolute[is_relative_known] / magnitude[is_relative_known]
    finite_of_tolerance = np.where(finite, of_tolerance, -1)
    worst = int(finite_of_tolerance.argmax())
    return _Piece(
        finite=int(finite.sum()),
        wrong=int((of_tolerance > 1).sum()),
        error=float(error[finite].sum()),
        max_abs=float(absolute[finite].max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        worst=(float(finite_of_tolerance[worst]), -first_index - worst),
    )


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
    def faults(self) -> list[Sentence]:
        """Return every fault with its case, one line each."""
        lines = []
        for checked in self.cases:
            for fault in checked.faults:
                lines.append(f"{checked.case} seed {checked.seed}: {fault}")
        return lines

    @property
    def correct_cases(self) -> tuple[CaseName, ...]:
        """Return names of the cases that are right, once per seed."""
        return tuple(c.case for c in self.cases if c.status == "right")

    @property
    def max_abs(self) -> float | None:
        """Return the largest absolute error of all cases; None if none was judged."""
        return find_largest_known(checked.max_abs for checked in self.cases)


class CheckDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.check/1"):
    """What `profkit check --json` prints."""

    checks: tuple[Check, ...] = ()


def combine_case_checks(variant: str, problem: Problem, cases: Sequence[CaseCheck]) -> Check:
    """Return the verdict on a variant: the worst of its cases."""
    return Check(
        variant=variant,
        status=_choose_worst_status(case.status for case in cases),
        atol=problem.module.ATOL,
        rtol=problem.module.RTOL,
        cases=tuple(cases),
    )


def merge_checks(before: Check, after: Check) -> Check:
    """Join two checks of one variant; the worse status holds."""
    cases = (*before.cases, *after.cases)
    return replace(before, status=_choose_worst_status((before.status, after.status)), cases=cases)


def _choose_worst_status(statuses: Iterable[Status]) -> Status:
    seen = set(statuses)
    order: tuple[Status, ...] = ("failed", "wrong", "right", "not supported")
    for s in order:
        if s in seen:
            return s
    return "not supported"


def run_and_check_case(
    call: Callable[[Arena], None], problem: Problem, data: CaseData
) -> CaseCheck:
    """Run one case once and judge everything about it; CudaError if the context is lost."""
    here = upload_arena(data)
    try:
        call(here)
        device.wait_for_gpu_or_stream()
    except device.CudaError as error:
        return make_case_failed_by_cuda(data, error)
    host = here.copy_arena_to_host()
    device.free_device_memory(here.base)
    return judge_finished_launch(problem, here, host)


def make_case_failed_by_cuda(data: CaseData, error: device.CudaError) -> CaseCheck:
    """Return a case that ended in a CUDA error; raises it again if the context is lost."""
    if error.code == device.NOT_SUPPORTED:
        return CaseCheck(data.case, data.seed, "not supported")
    if error.code in device.STICKY:
        raise error
    return CaseCheck(data.case, data.seed, "failed", faults=(error.message,))


def judge_finished_launch(problem: Problem, arena: Arena, arena_bytes: Bytes) -> CaseCheck:
    """Judge the outputs and guards of one finished launch."""
    count = range(len(arena.outputs))
    unwritten = [arena.count_unwritten_elements(arena_bytes, i) for i in count]
    outs = [arena.cut_output_out_of(arena_bytes, i) for i in count]
    judged = judge_output_values(problem, arena.data, outs, unwritten)
    out_of_bounds = arena.describe_forbidden_writes(arena_bytes)
    if not out_of_bounds:
        return judged
    return replace(judged, status="wrong", faults=(*out_of_bounds, *judged.faults))


def _list_faults(
    verdict: Accuracy, out: Array, reference: Array, unwritten_count: int, atol: float, rtol: float
) -> Iterator[Clause]:
    """Yield what is wrong with an output, of which some elements may never have been written."""
    if verdict.wrong and unwritten_count:
        yield f"{unwritten_count} of {out.size} elements were never written"
    if verdict.nans > unwritten_count:
        yield f"{verdict.nans - unwritten_count} elements are NaN or infinite"
    if verdict.wrong > verdict.nans:
        at = verdict.worst
        yield (
            f"{verdict.wrong - verdict.nans} of {out.size} elements are wrong, "
            f"worst at {list(at)}: {float(out[at]):.6g}, wanted {float(reference[at]):.6g} "
            f"(tolerance {atol:g} + {rtol:g} relative; bias {verdict.bias:+.2g})"
        )


def judge_output_values(
    problem: Problem, data: CaseData, outputs: Sequence[Any], unwritten_counts: Sequence[int] = ()
) -> CaseCheck:
    """Judge outputs; `unwritten_counts`: how many elements of each were never written, where known."""
    atol, rtol = problem.get_tolerance(data.case)
    faults: list[str] = []
    verdicts = []
    for i, (out, reference) in enumerate(zip(outputs, data.load_reference(), strict=True)):
        verdict = judge_output(out, reference, atol, rtol)
        verdicts.append(verdict)
        left = 0
        if i < len(unwritten_counts):
            left = unwritten_counts[i]
        for fault in _list_faults(verdict, out, reference, left, atol, rtol):
            faults.append(f"output {i}: {fault}")
    return CaseCheck(
        data.case,
        data.seed,
        "wrong" if faults else "right",
        max((v.max_abs for v in verdicts), default=None),
        max((v.max_rel for v in verdicts), default=None),
        max((v.bias for v in verdicts), key=abs, default=None),
        tuple(faults),
    )


def check_launcher_is_asynchronous(
    library_handle: ctypes.CDLL,
    problem: Problem,
    data: CaseData,
    tools: library.Support,
    stream: CudaStream,
) -> CaseCheck:
    """Hold the stream and launch: nothing may be written, and the launcher must not wait."""
    here = upload_arena(data)
    args = here.make_args(problem, stream)
    device.wait_for_gpu_or_stream()
    try:
        tools.keep_stream_busy(int(_SPIN * 1e9), stream)
        began = time.perf_counter()
        library.call_launcher(library_handle, args)
        waited = time.perf_counter() - began
        # Work on another stream would be done by then, also where other programs use the GPU.
        time.sleep(max(0.0, _SPIN / 2 - waited))
        early = here.copy_arena_to_host()
        spinning = time.perf_counter() - began < _SPIN
        device.wait_for_gpu_or_stream()
    except device.CudaError as error:
        return make_case_failed_by_cuda(data, error)
    judged = judge_finished_launch(problem, here, here.copy_arena_to_host())
    faults = list(judged.faults)
    if waited > _SPIN / 2:
        faults.append(
            f"the launcher waits for the device: it came back after {waited * 1e3:.0f} ms"
        )
    elif spinning and _is_any_output_written(here, early):
        faults.append("work ran on another stream than the given one: the output was written early")
    device.free_device_memory(here.base)
    return replace(judged, status="wrong" if faults else "right", faults=tuple(faults))


def _is_any_output_written(arena: Arena, arena_bytes: Bytes) -> bool:
    begun = {out for out, _ in arena.data.begins}
    for i, span in enumerate(arena.outputs):
        if i not in begun and (span.cut_span_out_of_allocation(arena_bytes) != POISON).any():
            return True
    return False
