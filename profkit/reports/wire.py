"""Protobuf bytes  ->  fields, or Malformed; as much of the wire format as checking a report needs.

The messages are those of the ProfilerReport*.proto files that Nsight Compute publishes in its
extras/FileFormat: what may be in which field. They only ever grew: a number above the last one
known here is a field of a newer ncu, which the caller may accept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_SIZES = {FIXED64: 8, FIXED32: 4}


class Malformed(Exception):
    """The bytes do not have the shape that Nsight Compute writes."""


class NotText(Malformed):
    """A text that is not UTF-8: whole but for that."""


class Cut(Malformed):
    """The file ends too early; `left` is what there is of its last frame."""

    def __init__(self, why: str, left: bytes) -> None:
        super().__init__(why)
        self.left = left


@dataclass(frozen=True)
class MessageShape:
    """What a message may hold, by the numbers of its fields."""

    # Wire types of those that are not looked into (raw data, text in an unknown encoding).
    wires: Mapping[int, int] = field(default_factory=dict)
    texts: Set[int] = frozenset()  # UTF-8 strings
    parts: Mapping[int, MessageShape] = field(default_factory=dict)  # messages, checked too
    required: Set[int] = frozenset()  # those that must be there

    def wire(self, number: int) -> int | None:
        """Return the wire type of a field, None for a number that is not known."""
        return BYTES if number in self.texts or number in self.parts else self.wires.get(number)

    @property
    def last(self) -> int:
        """The highest number known."""
        return max((*self.wires, *self.texts, *self.parts), default=0)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the offset behind it. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")


def one(data: bytes, at: int, end: int) -> tuple[int, int, int, int, int]:
    """Return the field at an offset: number, wire type, start, end (value, 0 if varint), next offset.

    Malformed where there is none, or it leaves the message that ends at `end`.
    """
    try:
        key, at = data[at], at + 1
        if key > 0x7F:  # most keys and sizes are one byte
            key, at = varint(data, at - 1)
        number, wire = key >> 3, key & 7
        if wire == BYTES:
            size, start = data[at], at + 1
            if size > 0x7F:
                size, start = varint(data, at)
            at = stop = start + size
        elif wire == VARINT:
            start, at = varint(data, at)
            stop = 0
        else:
            start = at
            at = stop = start + _SIZES[wire]
    except (IndexError, KeyError):
        raise Malformed("bytes that are no field") from None
    if at > end or not number:
        raise Malformed("a field that leaves its message")
    return number, wire, start, stop, at


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of the message at [at, end), without the next offset.

    Malformed where they do not fill it exactly.
    """
    while at < end:
        number, wire, start, stop, at = one(data, at, end)
        yield number, wire, start, stop


def verify_message(data: bytes, at: int, end: int, message: MessageShape, newer: list[int]) -> None:
    """Raise Malformed unless the message at [at, end) has its shape, all the way down.

    `newer` gets the numbers that only a newer ncu can have written.
    """
    seen = set()
    for number, wire, start, stop in fields(data, at, end):
        seen.add(number)
        inspect(data, (number, wire, start, stop), message, newer)
    if not message.required <= seen:
        raise Malformed("a message that lacks a part")


def inspect(
    data: bytes, part: tuple[int, int, int, int], message: MessageShape, newer: list[int]
) -> None:
    """Check one field of a message, as `fields` gives it; as verify_message."""
    number, wire, start, stop = part
    expected = message.wire(number)
    if expected is None:
        if number > message.last:
            newer.append(number)
    elif wire != expected:
        raise Malformed(f"field {number} of the wrong type")
    elif number in message.parts:
        verify_message(data, start, stop, message.parts[number], newer)
    elif number in message.texts:
        try:
            data[start:stop].decode()
        except UnicodeDecodeError:
            raise NotText("a text that is not UTF-8") from None


# A text is UTF-8 where ncu makes it. Paths, command lines and NVTX names are the user's own, in
# whatever encoding that system has: BYTES.


def _of(wire: int, *numbers: int) -> dict[int, int]:
    return dict.fromkeys(numbers, wire)


_VALUE = MessageShape({2: FIXED32, 3: FIXED64, **_of(VARINT, 4, 5)}, {1})
_ELEMENT = MessageShape(parts={1: _VALUE, 2: _VALUE, 3: _VALUE}, required={2})
METRIC = MessageShape(_of(VARINT, 1, 4), parts={2: _VALUE, 3: _ELEMENT}, required={1})
_ATTRIBUTES = MessageShape({1: VARINT, 3: BYTES}, {2}, required={1})
_SYSTEM = MessageShape({6: VARINT, **_of(BYTES, 1, 2, 3, 4, 5, 7)})
_VERSION = MessageShape(texts={1, 2}, required={1, 2})
_SESSION = MessageShape(
    {**_of(VARINT, 1, 2, 12), **_of(BYTES, 5, 7, 9, 10, 11)},
    parts={3: _SYSTEM, 4: _SYSTEM, 6: _ATTRIBUTES, 8: _VERSION},
)
FILE = MessageShape({1: VARINT}, required={1})
_PROCESS = MessageShape({1: VARINT, **_of(BYTES, 2, 3)}, required={1})
SESSION, NAMES, SIZE, PROCESS = 3, 4, 5, 6  # fields of a block header
# Its counters of the frames that follow, in their order.
SOURCES, RESULTS, RANGES, LISTS, GRAPHS, GRAPH_DATA = COUNTERS = (1, 2, 7, 8, 9, 10)
HEADER = MessageShape(
    {**_of(VARINT, *COUNTERS, SIZE), NAMES: BYTES}, parts={SESSION: _SESSION, PROCESS: _PROCESS}
)
SOURCE = MessageShape({**_of(VARINT, 1, 5, 6, 7), **_of(BYTES, 2, 3, 4, 8, 9)})

_DIMS = MessageShape(_of(VARINT, 1, 2, 3))
_PUSHED = MessageShape({**_of(BYTES, 1, 2), **_of(VARINT, 3, 4)}, required={1})
_STARTED = MessageShape({**_of(VARINT, 1, 4, 5), **_of(BYTES, 2, 3)}, required={1, 2})
_NVTX = MessageShape(
    _of(VARINT, 4, 5),
    parts={
        1: MessageShape({1: VARINT, **_of(BYTES, 2, 3, 4)}, required={1, 2}),
        2: MessageShape(
            {1: VARINT}, parts={2: MessageShape({1: VARINT}, parts={3: _PUSHED}, required={1})}
        ),
        3: MessageShape({1: VARINT}, parts={3: _STARTED}, required={1}),
    },
)
_PER_SM = MessageShape({1: VARINT, **_of(BYTES, 2, 3, 4)}, required={1, 2, 3})
_SAMPLES = MessageShape(texts={1}, parts={2: MessageShape(parts={1: _PER_SM})}, required={1, 2})

RESULT_SOURCE = 15  # field of a kernel's result: required, but it may be empty


@dataclass(frozen=True)
class Kind:
    """A kind of result and the numbers of the fields that all kinds have."""

    counter: int  # field of the block header that says how many follow
    message: MessageShape  # what it may hold
    metrics: int  # below 16 (a tag of one byte)
    nvtx: int  # the NVTX state
    samples: int  # the timed warp samples


def _without_kernel(counter: int, varints: str, others: str, samples: int) -> Kind:
    """Return a result of several launches: a fixed32 comes before the samples in each."""
    wires = _of(VARINT, *map(int, varints.split())) | _of(BYTES, *map(int, others.split()))
    parts = {10: _NVTX, samples: _SAMPLES}
    shape = MessageShape(wires | {samples - 1: FIXED32}, parts=parts, required={1, 2})
    return Kind(counter, shape, metrics=4, nvtx=10, samples=samples)


_KERNEL = MessageShape(
    {
        **_of(VARINT, 1, 2, 3, 4, 8, 14, 16, 20, 22, 23, 29, 30),
        **_of(BYTES, 12, 13, 17, 18, 19, *range(24, 29), 31, 32, 33, 34, 37, 38, 39),
        35: FIXED32,
    },
    {5, 6, 7},
    {9: _DIMS, 10: _DIMS, 11: _DIMS, RESULT_SOURCE: SOURCE, 21: _NVTX, 36: _SAMPLES},
    {*range(1, 12), RESULT_SOURCE},
)
KINDS = (
    Kind(RESULTS, _KERNEL, metrics=13, nvtx=21, samples=36),
    _without_kernel(RANGES, "1 2 5 6 9 11 15 16", "3 4 7 8 12 13 14 17 18 19 20 23", 22),
    _without_kernel(LISTS, "1 2 5 6 9 11 12 17 19", "3 4 7 8 13 14 15 16 18 20 21 22 23 24 27", 26),
    _without_kernel(GRAPHS, "1 2 5 6 9 11 12 17 18", "3 4 7 8 13 14 15 16 19 20 21 22 25 26", 24),
)
