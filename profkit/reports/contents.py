"""One frame of a report (block header, source, result)  ->  what it holds, or Malformed.

Field numbers are those of ProfilerReport.proto and its kin in Nsight Compute's extras/FileFormat.
A report has 10 to 100 bytes per field, so the metrics, which are most of it, are checked by regular
expressions (200 MB/s); what those do not match is walked field by field, and only that decides.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from sys import byteorder
from typing import NamedTuple

from profkit.reports.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    Message,
    fields,
    inspect,
    one,
    varint,
    verify,
)


def _of(wire: int, *numbers: int) -> dict[int, int]:
    return dict.fromkeys(numbers, wire)


_VALUE = Message({2: FIXED32, 3: FIXED64, **_of(VARINT, 4, 5)}, {1})
_ELEMENT = Message(parts={1: _VALUE, 2: _VALUE, 3: _VALUE}, required={2})
_METRIC = Message(_of(VARINT, 1, 4), parts={2: _VALUE, 3: _ELEMENT}, required={1})
_ATTRIBUTES = Message({1: VARINT, 3: BYTES}, {2}, required={1})
_SYSTEM = Message({6: VARINT, 7: BYTES}, {1, 2, 3, 4, 5})
_VERSION = Message(texts={1, 2}, required={1, 2})
_SESSION = Message(
    {**_of(VARINT, 1, 2, 12), **_of(BYTES, 5, 9, 10)},
    {7, 11},
    {3: _SYSTEM, 4: _SYSTEM, 6: _ATTRIBUTES, 8: _VERSION},
)
_PROCESS = Message({1: VARINT}, {2, 3}, required={1})
_HEADER = Message(
    {**_of(VARINT, 1, 2, 5, 7, 8, 9, 10), 4: BYTES}, parts={3: _SESSION, 6: _PROCESS}
)
_SOURCE = Message({**_of(VARINT, 1, 5, 6, 7), **_of(BYTES, 2, 3, 4, 8, 9)})

_DIMS = Message(_of(VARINT, 1, 2, 3))
_PUSHED = Message({2: BYTES, **_of(VARINT, 3, 4)}, {1}, required={1})
_STARTED = Message({**_of(VARINT, 1, 4, 5), 3: BYTES}, {2}, required={1, 2})
_NVTX = Message(
    _of(VARINT, 4, 5),
    parts={
        1: Message({1: VARINT, 3: BYTES, 4: BYTES}, {2}, required={1, 2}),
        2: Message({1: VARINT}, parts={2: Message({1: VARINT}, parts={3: _PUSHED}, required={1})}),
        3: Message({1: VARINT}, parts={3: _STARTED}, required={1}),
    },
)
_PER_SM = Message({1: VARINT, **_of(BYTES, 2, 3, 4)}, required={1, 2, 3})
_SAMPLES = Message(texts={1}, parts={2: Message(parts={1: _PER_SM})}, required={1, 2})


@dataclass(frozen=True)
class Kind:
    """A kind of result and the numbers of the fields that all kinds have.

    Attributes:
        counter: Field of the block header that says how many follow.
        message: What it may hold.
        metrics: Number of the metrics, below 16 (a tag of one byte).
        sections: Number of the sections.
        rules: Number of the rule results.
        nvtx: Number of the NVTX state.
        samples: Number of the timed warp samples.
    """

    counter: int
    message: Message
    metrics: int
    sections: int
    rules: int
    nvtx: int
    samples: int


KINDS = (
    Kind(
        2,
        Message(
            {
                **_of(VARINT, 1, 2, 3, 4, 8, 14, 16, 20, 22, 23, 29, 30),
                **_of(BYTES, 12, 13, 17, 18, 19, 24, 25, 28, 32, 33, 34, 37, 38),
                35: FIXED32,
            },
            {5, 6, 7, 26, 27, 31, 39},
            {9: _DIMS, 10: _DIMS, 11: _DIMS, 15: _SOURCE, 21: _NVTX, 36: _SAMPLES},
            frozenset({*range(1, 12), 15}),
        ),
        metrics=13, sections=17, rules=19, nvtx=21, samples=36,
    ),
    Kind(  # a range of launches
        7,
        Message(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 15, 16),
                **_of(BYTES, 3, 4, 7, 8, 12, 14, 17, 18, 19, 20),
                21: FIXED32,
            },
            {13, 23},
            {10: _NVTX, 22: _SAMPLES},
            {1, 2},
        ),
        metrics=4, sections=7, rules=20, nvtx=10, samples=22,
    ),
    Kind(  # a command list
        8,
        Message(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 12, 17, 19),
                **_of(BYTES, 3, 4, 7, 8, 13, 16, 20, 21, 22, 23, 24),
                25: FIXED32,
            },
            {14, 15, 18, 27},
            {10: _NVTX, 26: _SAMPLES},
            {1, 2},
        ),
        metrics=4, sections=7, rules=21, nvtx=10, samples=26,
    ),
    Kind(  # a graph
        9,
        Message(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 12, 17, 18),
                **_of(BYTES, 3, 4, 7, 8, 13, 16, 19, 20, 21, 22, 25),
                23: FIXED32,
            },
            {14, 15, 26},
            {10: _NVTX, 24: _SAMPLES},
            {1, 2},
        ),
        metrics=4, sections=7, rules=22, nvtx=10, samples=24,
    ),
)  # fmt: skip


class Content(NamedTuple):
    """How much a result holds, to compare with what the library gives of it."""

    metrics: int  # different names
    sections: int
    messages: int  # of rules
    nvtx: int  # states, 0 or 1


@dataclass(frozen=True)
class Header:
    """A block header.

    Attributes:
        counts: Field number -> how many frames of that kind follow.
        size: Bytes of these frames.
        names: The metric names it adds to the string table.
        version: Of the ncu that wrote the report, when this block says it.
    """

    counts: dict[int, int]
    size: int
    names: list[bytes]
    version: str | None


def header(data: bytes, newer: list[int]) -> Header:
    """Check a block header."""
    verify(data, 0, len(data), _HEADER, newer)
    found = list(fields(data, 0, len(data)))
    numbers = {number: value for number, wire, value, _ in found if wire == VARINT}
    tables = [_names(data, start, stop) for number, _, start, stop in found if number == 4]
    versions = [_version(data, start, stop) for number, _, start, stop in found if number == 3]
    return Header(
        {number: numbers.get(number, 0) for number in (1, 2, 7, 8, 9, 10)},
        numbers.get(5, 0),
        [name for table in tables for name in table],
        next(filter(None, versions), None),
    )


def source(data: bytes, newer: list[int]) -> None:
    """Check a source (the SASS and the files of a kernel); the bytes of both may be anything."""
    verify(data, 0, len(data), _SOURCE, newer)


def result(
    data: bytes, kind: Kind, newer: list[int], sequences: set[tuple[bytes, ...]]
) -> Content:
    """Check a result.

    Args:
        data: The frame.
        kind: Which kind of result.
        newer: See verify.
        sequences: Gets the ids (varints) of its metrics, in their order: see nameless.

    Returns:
        What it holds.
    """
    at, end, tag = 0, len(data), kind.metrics << 3 | BYTES
    counts = dict.fromkeys((kind.metrics, kind.sections, kind.nvtx), 0)
    seen, rules = set(), 0
    while at < end:
        if data[at] == tag:
            metrics, at = _metrics(data, at, tag, newer, sequences)
            counts[kind.metrics] += metrics
            continue
        number, wire, start, stop, at = one(data, at, end)
        inspect(data, (number, wire, start, stop), kind.message, newer)
        seen.add(number)
        if number in counts:
            counts[number] += 1
        elif number == kind.rules:
            rules += _said(data, start, stop)
        elif number == kind.samples:
            _samples(data, start, stop)
    if not kind.message.required <= seen:
        raise Malformed("a result that lacks a part")
    return Content(counts[kind.metrics], counts[kind.sections], rules, counts[kind.nvtx])


@cache
def _patterns(tag: int) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """For metrics under a tag: a run without instances, the name ids in it, one with instances."""
    more, last = rb"[\x80-\xff]", rb"[\x00-\x7f]"

    def sized(size: int, body: bytes) -> bytes:
        return re.escape(bytes([size])) + body

    values = (
        sized(9, rb"\x19.{8}"),
        *(sized(n + 1, rb"[\x20\x28]%b{%d}%b" % (more, n - 1, last)) for n in range(1, 11)),
        sized(5, rb"\x15.{4}"),
        *(sized(n + 2, rb"\n" + sized(n, rb"[\x20-\x7e]{%d}" % n)) for n in range(64)),
    )
    value = b"(?:" + b"|".join(values) + b")"
    number = rb"(?:%b|%b{1,4}%b)" % (last, more, last)
    head = rb"%b%b\x08(%b)(?:\x12%b)?+" % (re.escape(bytes([tag])), number, number, value)
    tail = rb"(?:\x20%b)?" % last
    plain = head + rb"(?![\x12\x1a])" + tail
    element = rb"\x1a%b(?:\x0a%b)?\x12%b" % (last, value, value)
    return (
        re.compile(rb"(?:%b)*+" % plain.replace(b"(%b)" % number, number), re.DOTALL),
        re.compile(plain, re.DOTALL),
        re.compile(rb"%b(?:%b)++%b" % (head, element, tail), re.DOTALL),
    )


def _metrics(
    data: bytes, at: int, tag: int, newer: list[int], sequences: set[tuple[bytes, ...]]
) -> tuple[int, int]:
    """Check the run of metrics at an offset: how many different ones, and where it ends."""
    run, plain, listed = _patterns(tag)
    ids: list[bytes] = []
    end = len(data)
    while at < end and data[at] == tag:
        start, at = at, run.match(data, at).end()  # type: ignore[union-attr]
        ids += plain.findall(data, start, at)
        if at == end or data[at] != tag:
            break
        found = listed.match(data, at)
        if found and found.end() == _end(data, at):
            ids.append(found[1])
            at = found.end()
            continue
        _, _, start, stop, at = one(data, at, end)
        verify(data, start, stop, _METRIC, newer)
        ids.append(data[start + 1 : varint(data, start + 1)[1]])  # the id comes first
    sequences.add(tuple(ids))  # most launches of a report have the same
    return len(set(ids)), at


def nameless(sequences: Iterable[tuple[bytes, ...]], names: int) -> bool:
    """Whether one of the metrics' ids is beyond the string table."""
    ids = set[bytes]().union(*sequences)
    longest = max(map(len, ids), default=0)
    # A varint has its highest bits last, so that the largest id is the last one in this order.
    largest = max((id_[::-1] for id_ in ids if len(id_) == longest), default=b"")
    return bool(ids) and varint(largest[::-1], 0)[0] >= names


def _end(data: bytes, at: int) -> int:
    """Where the field at an offset says that it ends."""
    size, start = varint(data, at + 1)
    return start + size


def _said(data: bytes, start: int, end: int) -> int:
    """How many messages a rule result has."""
    return sum(
        number == 1
        for part, _, body, stop in fields(data, start, end)
        if part == 3
        for _, _, item, behind in fields(data, body, stop)
        for number, *_ in fields(data, item, behind)
    )


def _samples(data: bytes, start: int, end: int) -> None:
    """Check timed warp samples: the library trusts what they say of themselves and crashes.

    Per SM there are records of 16 bytes, (time, samples so far) and the samples.
    """
    for number, _, group, stop in fields(data, start, end):
        for _, _, per_sm, behind in fields(data, group, stop) if number == 2 else ():
            spans = {n: (a, b) for n, _, a, b in fields(data, per_sm, behind)}
            (times, times_end), (samples, samples_end) = spans[2], spans[3]
            if (times_end - times) % 16 or (samples_end - samples) % 16:
                raise Malformed("half a warp sample")
            stamps = array("Q", data[times:times_end])
            if byteorder == "big":
                stamps.byteswap()
            ends = [0, *stamps[1::2], (samples_end - samples) // 16]
            if any(a > b for a, b in pairwise(ends)):
                raise Malformed("warp samples out of order")


def _names(data: bytes, at: int, end: int) -> list[bytes]:
    """The string table at [at, end)."""
    names: list[bytes] = []
    while at < end:  # as one() would, three times faster
        size, start = data[at + 1] if at + 1 < end else 0, at + 2
        if data[at] != _NAME or size > 0x7F:
            number, _, start, stop, at = one(data, at, end)
            if number == 1:
                names.append(data[start:stop])
            continue
        at = start + size
        names.append(data[start:at])
    if at != end:
        raise Malformed("a name that leaves the string table")
    try:
        text = b" ".join(names).decode()  # a space ends any character that is cut short
    except UnicodeDecodeError:
        raise Malformed("a metric name that is not UTF-8") from None
    if _CONTROL.search(text) or len(set(names)) < len(names):
        raise Malformed("a metric name that no metric has")
    return names


_NAME = 1 << 3 | BYTES  # the tag of a string in the string table
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _version(data: bytes, at: int, end: int) -> str | None:
    """The writer's version out of session details, like 2025.3.1.0."""
    for number, _, start, stop in fields(data, at, end):
        if number == 8:
            said = {n: data[a:b] for n, _, a, b in fields(data, start, stop)}
            if b"Nsight Compute" in said.get(1, b""):
                return said[2].split(b" ")[0].decode()
    return None
