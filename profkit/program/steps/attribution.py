"""Calls of the host and named spans  ->  who made each call: operator, range, line of Python."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from profkit.program.steps.places import (
    describe_place,
    is_uninformative_function,
    shorten_line_path,
)
from profkit.program.timeline import Call, HostSpan, Process, SourcePlace

if TYPE_CHECKING:
    from profkit.units import ClauseOrEmpty, FrameText, TextOrEmpty


# XLA's ranges: Thunk:#name=fusion,hlo_op=loop_add_fusion#, and any name before the first #.
_XLA_RANGE = re.compile(r"^(?P<name>[^#]*?):?#(?:.*\bhlo_op=(?P<op>[^,#]+))?.*#$")
# What torch.compile names round the code that it has compiled: AOTAutograd's function and its node in
# the backward pass, Dynamo's region, Inductor's graph.
_OF_COMPILER = re.compile(
    r"^(autograd::engine::evaluate_function: )?CompiledFunction(Backward)?\d*$|Torch-Compiled Region|"
    r"CompiledFxGraph"
)
# Spans that are open at a time: Python itself ends at 1,000 calls in each other. Each call and span
# looks at all of them.
NESTED_MOST = 1000
_FRAME = re.compile(r"^(?P<file>.*\.py)\((?P<line>\d+)\): (?P<function>.*)$")


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Who made a call."""

    op: str = ""  # the innermost operator: aten::addmm
    top: str = ""  # the outermost operator: aten::linear, or autograd's node in the backward pass
    range: str = ""  # the innermost range that the program names, NVTX or record_function
    source: str = ""  # "train.py:42" of the innermost frame of the user's own code
    # sizes of the inputs of the innermost operator that has any
    shapes: tuple[tuple[int, ...], ...] = ()
    types: tuple[str, ...] = ()
    ordinal: int = -1  # which outermost operator of its thread it is: kernels of one share it
    function: str = ""  # of a trace's frame, whose line is that of the function's def
    needless: str = ""  # of the innermost operator, as of a HostSpan
    place: SourcePlace | None = None  # where in the program's Python, where the recorder saw that


NOBODY = CallOrigin()


def list_origins_of_calls(process: Process) -> list[CallOrigin]:
    """Return the maker of each of a process's calls, in their order."""
    spans: dict[int, list[HostSpan]] = defaultdict(list)
    for span in process.spans:
        spans[span.thread].append(span)
    calls: dict[int, list[int]] = defaultdict(list)
    for index, call in enumerate(process.calls):
        calls[call.thread].append(index)
    out = [NOBODY] * len(process.calls)
    forward = find_forward_frames(spans.values())
    for thread, indices in calls.items():
        _attribute_calls_of_thread(spans.get(thread, ()), indices, process.calls, out, forward)
    for index, call in enumerate(process.calls):
        if call.origin >= 0:
            out[index] = replace_place_of_origin(out[index], process.places[call.origin])
    return out


@lru_cache(1 << 14)
def replace_place_of_origin(origin: CallOrigin, place: SourcePlace) -> CallOrigin:
    """Return a maker with the place that the recorder saw."""
    return replace(origin, place=place, source=shorten_line_path(place.line) or origin.source)


def merge_call_origins(several: Sequence[Sequence[CallOrigin]]) -> list[CallOrigin]:
    """Join lists of makers that say the same; sizes that differ are left out.

    Returns:
        One list; an empty one where two do not say the same.
    """
    joined: list[CallOrigin] = []
    for own in zip(*several, strict=True):
        first = own[0]
        if len({(maker.op, maker.top, maker.source, maker.function) for maker in own}) > 1:
            return []
        sized = len({(maker.shapes, maker.types) for maker in own}) == 1
        joined.append(first if sized else replace(first, shapes=(), types=()))
    return joined


def find_forward_frames(threads: Iterable[Sequence[HostSpan]]) -> dict[int, FrameText]:
    """Find the Python frame in which each number of autograd was taken in the forward pass.

    An operator and those within it may say one number: the last of them to begin made the node.
    """
    frames: dict[int, str] = {}
    for spans in threads:
        stack: list[HostSpan] = []
        for span in spans:
            if span.kind == "python":
                stack = [outer for outer in stack if outer.end > span.start]
                if len(stack) < NESTED_MOST:
                    stack.append(span)
            elif span.sequence >= 0 and not span.backward:
                stack = [outer for outer in stack if outer.end > span.start]
                if stack:
                    frames[span.sequence] = find_informative_frame([outer.name for outer in stack])
    return frames


def _attribute_calls_of_thread(
    spans: Sequence[HostSpan],
    indices: Iterable[int],
    calls: Sequence[Call],
    origins_to_fill: list[CallOrigin],
    frame_by_autograd_number: Mapping[int, str],
) -> None:
    """Walk one thread in time, with the spans that are open on a stack."""
    stack: list[HostSpan] = []
    position = 0
    ordinal = -1
    for index in indices:
        now = calls[index].start
        while position < len(spans) and spans[position].start <= now:
            span = spans[position]
            stack = [s for s in stack if s.end > span.start]
            if span.kind == "op" and not any(s.kind == "op" for s in stack):
                ordinal += 1
            if len(stack) < NESTED_MOST:
                stack.append(span)
            position += 1
        stack = [s for s in stack if s.end > now]
        if stack:
            origins_to_fill[index] = _make_call_origin(stack, ordinal, frame_by_autograd_number)


def _make_call_origin(
    open_spans: Sequence[HostSpan], ordinal: int, frame_by_autograd_number: Mapping[int, str]
) -> CallOrigin:
    ops = [s for s in open_spans if s.kind == "op"]
    # The tensors of a list have sizes, but no types: who called it with tensors tells more.
    sized = (s for s in reversed(ops) if any(s.shapes) and s.types[:1] != ("TensorList",))
    shaped = next(sized, None)
    within = {s.kind: s.name for s in open_spans}  # the innermost of each kind
    frame = find_informative_frame([s.name for s in open_spans if s.kind == "python"])
    for node in reversed(ops):
        if node.backward and node.sequence in frame_by_autograd_number:
            frame = frame_by_autograd_number[node.sequence]
            break
    names = (
        within.get("op", ""),
        ops[0].name if ops else "",
        _clean_range_name(within.get("range", "")),
    )
    if shaped:
        inputs = (shaped.shapes, shaped.types)
    else:
        inputs = ((), ())
    needless = ""
    if ops:
        needless = ops[-1].needless
    return CallOrigin(
        *names,
        get_frame_line(frame),
        *inputs,
        ordinal=ordinal if ops else -1,
        function=get_frame_function(frame),
        needless=needless,
    )


def find_informative_frame(frames: Sequence[FrameText]) -> TextOrEmpty:
    """Find the innermost of some frames, outermost first, that says something of a program."""
    for frame in reversed(frames):
        if is_informative_frame(frame):
            return frame
    return frames[-1] if frames else ""


@lru_cache(1 << 14)
def is_informative_frame(frame: FrameText) -> bool:
    """Return whether a frame in torch.profiler's words is none through which everything goes."""
    parts = _FRAME.match(frame)
    return parts is None or not is_uninformative_function(parts["file"], parts["function"])


def _clean_range_name(name: str) -> str:
    """Return a range as its program calls it, without what XLA writes beside it."""
    parts = _XLA_RANGE.match(name)
    if parts:
        return parts["op"] or parts["name"] or name
    return name


def get_frame_line(frame: FrameText) -> TextOrEmpty:
    """Return the file and line of a frame in torch.profiler's words."""
    parts = _FRAME.match(frame)
    if parts:
        return f"{parts['file']}:{parts['line']}"
    return frame


def get_frame_function(frame: FrameText) -> TextOrEmpty:
    """Return the function of a frame in torch.profiler's words, whose line is where it begins."""
    parts = _FRAME.match(frame)
    if parts:
        return parts["function"]
    return ""


def describe_frame(frame: FrameText) -> str:
    """Say where a frame in torch.profiler's words is: its line is the def's, not the one that ran."""
    function = get_frame_function(frame)
    if function and function != "<module>":
        return f"in {function} ({get_frame_line(frame)})"
    return get_frame_line(frame)


def describe_source(origin: CallOrigin) -> ClauseOrEmpty:
    """Say where in Python a call was made, as exactly as is known; empty where nothing is."""
    if origin.place is not None and origin.place.line:
        return describe_place(origin.place)
    if origin.function and origin.function != "<module>":
        return f"in {origin.function} ({origin.source})"
    return origin.source


def is_compilers_operator(name: str) -> bool:
    """Return whether torch.compile names it round compiled code, which is many operators."""
    return _OF_COMPILER.search(name) is not None
