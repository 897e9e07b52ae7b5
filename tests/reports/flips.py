"""Single bits of a report's structure, and what is read of one, by a walk of the tests' own.

Structure is what says what the other bytes are: sizes of frames and fields, tags, and the ids that one
message names another by. A flipped bit of a value is another value, and nobody can see that.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any

from profkit.reports import container
from profkit.reports.contents import parse_block_header
from profkit.reports.wire import (
    BYTES,
    COUNTERS,
    FIXED64,
    GRAPH_DATA,
    KINDS,
    SOURCES,
    VARINT,
    Malformed,
    MessageShape,
    Oddities,
    iterate_fields,
    load_message_shape,
)

# Of these messages field 1 is an id that something else is found by.
NAMED_BY = {"Metric", "NvtxDomain", "NvtxPushPop", "NvtxStartEnd"}
_RESULTS = {kind.counter: kind for kind in KINDS}


def frames(data: bytes) -> Iterator[tuple[int, bytes, str]]:
    """Yield where the bytes of each frame begin, the frame, and which message it is."""
    at = 4
    left: list[str] = ["FileHeader"]
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        frame = data[at + 4 : at + 4 + size]
        message = left.pop(0) if left else "BlockHeader"
        yield at + 4, frame, message
        if message == "BlockHeader":
            counts = parse_block_header(frame, Oddities()).counts
            for number in COUNTERS:
                if number in _RESULTS:
                    left += [_RESULTS[number].name] * counts[number]
                elif number == SOURCES:
                    left += ["Source"] * counts[number]
                else:
                    assert number == GRAPH_DATA
        at += 4 + size


def places(data: bytes) -> list[int]:
    """Return the offset of every byte of structure."""
    found = []
    for begin, frame, message in frames(data):
        found += range(begin - 4, begin)
        shape = load_message_shape(message)
        found += [begin + place for place in _inside(frame, 0, len(frame), shape)]
    return found


def _inside(data: bytes, at: int, end: int, shape: MessageShape) -> Iterator[int]:
    for number, wire, start, stop in iterate_fields(data, at, end):
        tag = at
        while data[at] > 0x7F:
            at += 1
        at += 1
        if wire == VARINT:
            is_id = number == 1 and shape.name in NAMED_BY
            begin = at
            while data[at] > 0x7F:
                at += 1
            at += 1
            yield from range(tag, at if is_id else begin)
            continue
        yield from range(tag, start if wire == BYTES else at)
        if number in shape.parts:
            yield from _inside(data, start, stop, shape.parts[number])
        at = stop


def flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def checked(data: bytes) -> container.ContainerVerdict:
    """Return what our walk says of bytes, without a file."""
    walk = container._ContainerWalk("made.ncu-rep")
    walk.start = data[:4]
    if walk.start == container.MAGIC:
        try:
            for frame in container.iterate_length_prefixed_frames(io.BytesIO(data[4:]), len(data)):
                walk.process_frame(frame)
            walk.require_complete_blocks()
        except Malformed as error:
            walk.note_unreadable_rest(error)
    return walk.make_verdict()


def read(data: bytes) -> list[Any]:
    """Return what profkit reads of a report that is whole.

    The version; and of each launch its names, its metrics of the catalogue, its ranges and rules.
    """
    names: list[bytes] = []
    launches: list[Any] = []
    session: list[Any] = []
    by_name = {kind.name: kind for kind in KINDS}
    for _, frame, message in frames(data):
        if message == "BlockHeader":
            about = parse_block_header(frame, Oddities())
            names += about.names or []
            session.append(about.version)
        elif message in by_name:
            launches.append(_launch(frame, by_name[message]))
    said: list[Any] = [[version for version in session if version][:1]]
    for metrics, others in launches:
        named = {names[id_]: value for id_, value in metrics.items()}
        said.append([{name: named[name] for name in named if name in container._READ}, others])
    return said


def _launch(frame: bytes, kind: Any) -> tuple[dict[int, Any], list[Any]]:
    metrics: dict[int, Any] = {}
    others = []
    parts = kind.message.parts
    (rules,) = [number for number, part in parts.items() if part.name == "RuleResult"]
    is_kernel = kind.name == "KernelResult"
    for number, wire, start, stop in iterate_fields(frame, 0, len(frame)):
        if number == kind.metrics:
            body = {"value": None, "instances": []}
            for inner, _, a, b in iterate_fields(frame, start, stop):
                if inner == 1:
                    id_ = a
                elif inner == 2:
                    body["value"] = _value(frame, a, b)
                elif inner == 3:
                    parts = {n: _value(frame, c, d) for n, _, c, d in iterate_fields(frame, a, b)}
                    body["instances"].append((parts.get(1), parts.get(2)))
            metrics[id_] = body
        elif number == rules:
            held = list(iterate_fields(frame, start, stop))
            if any(inner == 3 for inner, *_ in held):  # it has a message
                others.append((number, frame[start:stop]))
        elif number == kind.nvtx or (is_kernel and number in {5, 6, 7}):
            others.append((number, start if wire == VARINT else frame[start:stop]))
    return metrics, others


def _value(data: bytes, at: int, end: int) -> Any:
    """Return a metric's value; a number is the same in 32 or 64 bits."""
    value: Any = None
    for _, wire, start, stop in iterate_fields(data, at, end):
        if wire == VARINT:
            value = start
        elif wire == FIXED64:
            value = struct.unpack("<d", data[start:stop])[0].hex()
        else:
            value = data[start:stop]
    return value
