"""Protobuf bytes  ->  fields, or Malformed; as much of the wire format as checking a report needs.

The message shapes are those of the ProfilerReport*.proto files that Nsight Compute publishes in
its extras/FileFormat. They only ever grew: a number above the last one known here is a field of a
newer ncu, which the caller may accept.
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
    """What a message may hold.

    Attributes:
        wires: Field number -> wire type; BYTES that are not looked into (raw data, or text in an
            encoding that nobody promised).
        texts: Numbers of UTF-8 strings.
        parts: Number -> the message inside, checked too.
        required: Numbers that must be there.
    """

    wires: Mapping[int, int] = field(default_factory=dict)
    texts: Set[int] = frozenset()
    parts: Mapping[int, MessageShape] = field(default_factory=dict)
    required: Set[int] = frozenset()

    def wire(self, number: int) -> int | None:
        """The wire type of a field, None for a number that is not known."""
        return BYTES if number in self.texts or number in self.parts else self.wires.get(number)

    @property
    def last(self) -> int:
        """The highest number known."""
        return max((*self.wires, *self.texts, *self.parts), default=0)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """One varint: its value and the offset behind it. IndexError at the end of the data."""
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
    """The field at an offset: number, wire type, start, end (value, 0 if varint), next offset.

    Raises:
        Malformed: There is none, or it leaves the message that ends at `end`.
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
    """The fields of the message at [at, end): number, wire type, start, end (value, 0 if varint).

    Raises:
        Malformed: They do not fill it exactly.
    """
    while at < end:
        number, wire, start, stop, at = one(data, at, end)
        yield number, wire, start, stop


def verify_message(data: bytes, at: int, end: int, message: MessageShape, newer: list[int]) -> None:
    """Check that the message at [at, end) has its shape, all the way down.

    Args:
        data: The bytes.
        at: Where it starts.
        end: Where it ends.
        message: What it may hold.
        newer: Gets the numbers that only a newer ncu can have written.

    Raises:
        Malformed: It does not have that shape.
    """
    seen = set()
    for number, wire, start, stop in fields(data, at, end):
        seen.add(number)
        inspect(data, (number, wire, start, stop), message, newer)
    if not message.required <= seen:
        raise Malformed("a message that lacks a part")


def inspect(
    data: bytes, found: tuple[int, int, int, int], message: MessageShape, newer: list[int]
) -> None:
    """Check one field of a message; as verify."""
    number, wire, start, stop = found
    expected = message.wire(number)
    if expected is None:
        if number > message.last:
            newer.append(number)
    elif wire != expected:
        raise Malformed(f"field {number} of the wrong type")
    elif number in message.parts:
        verify_message(data, start, stop, message.parts[number], newer)
    elif number in message.texts:
        text_field(data, start, stop)


def text_field(data: bytes, start: int, end: int) -> str:
    """The UTF-8 string at [start, end)."""
    try:
        return data[start:end].decode()
    except UnicodeDecodeError:
        raise NotText("a text that is not UTF-8") from None
