"""One frame of a report (block header, source, result)  ->  what it holds, or Malformed.

Metrics are many and small, so they are checked by regular expressions (200 MB/s). What those do not
match is walked field by field, and only that decides.
"""

from __future__ import annotations

import contextlib
import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from sys import byteorder

from profkit.reports.container import wire
from profkit.reports.container.wire import BYTES, Kind, Malformed, fields, one


@dataclass(frozen=True)
class BlockHeader:
    counts: dict[int, int]  # field number -> how many frames of that kind follow
    size: int  # bytes of these frames
    names: list[bytes] | None  # of metrics, which it adds to the string table; None: damaged
    version: str | None  # of the ncu that wrote the report; "" when it says other versions only
    about: bytes  # the header without the counts: string table, session, process
    process: bytes  # the field of `about` that says which process


def header(data: bytes, newer: list[int]) -> BlockHeader:
    """Check a block header."""
    counts, size = dict.fromkeys(wire.COUNTERS, 0), 0
    names: list[bytes] | None = []
    version, about, process, at = None, b"", b"", 0
    while at < len(data):
        begin = at
        number, wire_type, start, stop, at = one(data, at, len(data))
        wire.inspect(data, (number, wire_type, start, stop), wire.HEADER, newer)
        if number in counts:
            counts[number] = start
            continue
        if number == wire.SIZE:
            size = start
            continue
        about += data[begin:at]
        if number == wire.SESSION:
            version = _version(data, start, stop)
        elif number == wire.NAMES:
            table = _names(data, start, stop)
            names = None if names is None or table is None else names + table
        elif number == wire.PROCESS:
            process = data[begin:at]
    return BlockHeader(counts, size, names, version, about, process)


def block_of_one(counter: int, frame: bytes) -> bytes:
    """Return the counts of a block header that announces one frame."""
    size, left = b"", 4 + len(frame)
    while left > 0x7F:
        size, left = size + bytes([left & 0x7F | 0x80]), left >> 7
    return bytes([counter << 3, 1, wire.SIZE << 3]) + size + bytes([left])


def result(data: bytes, kind: Kind, newer: list[int], sequences: set[tuple[bytes, ...]]) -> bool:
    """Check a result; return whether it is of the kind that the library might crash on.

    Not what is inside the instances of a metric, a section or a rule result: the library checks
    that too, and gives nothing of the whole launch when it is wrong. `sequences` gets the ids
    (varints) of its metrics, in their order: see nameless.

    Raises:
        NotText: All is well but for its names, which the library gives all the same.
        Malformed: It is damaged.
    """
    at, end, tag = 0, len(data), kind.metrics << 3 | BYTES
    seen, risky = set(), False
    strange: wire.NotText | None = None
    while at < end:
        if data[at] == tag:
            at = _metrics(data, at, tag, newer, sequences)
            continue
        number, wire_type, start, stop, at = one(data, at, end)
        try:
            wire.inspect(data, (number, wire_type, start, stop), kind.message, newer)
        except wire.NotText as error:
            if number not in kind.message.texts:
                raise Malformed(str(error)) from None
            strange = error
        seen.add(number)
        if number == kind.samples:
            risky = risky or not _in_order(data, start, stop)
    if not kind.message.required <= seen:
        raise Malformed("a result that lacks a part")
    if strange:
        raise strange
    return risky


def repair_frame(data: bytes, kind: Kind) -> bytes | None:
    """Return what can be read of a damaged result; None when not even the identity is left.

    The library drops a whole launch for a wrong byte in a section that is not read here. So only
    the identity, the metrics and the NVTX state are kept, as far as each of them is whole.
    """
    repaired, seen, at = bytearray(), set(), 0
    readable = kind.message.required | {kind.metrics, kind.nvtx}
    try:
        while at < len(data):
            begin = at
            number, wire_type, start, stop, at = one(data, at, len(data))
            if number not in readable:
                continue
            with contextlib.suppress(Malformed):
                if (
                    number not in kind.message.texts or wire_type != BYTES
                ):  # a name is one in any bytes
                    wire.inspect(data, (number, wire_type, start, stop), kind.message, [])
                if number == kind.metrics and not _is_usual(data, start, stop):
                    wire.verify_message(data, start, stop, wire.METRIC, [])
                repaired += data[begin:at]
                seen.add(number)
    except Malformed:  # what follows cannot be told apart
        pass
    missing = kind.message.required - seen
    if missing == {wire.RESULT_SOURCE}:
        repaired, missing = repaired + bytes([wire.RESULT_SOURCE << 3 | BYTES, 0]), set()
    return None if missing else bytes(repaired)


_MORE, _LAST = rb"[\x80-\xff]", rb"[\x00-\x7f]"  # bytes of a varint
_NUMBER = rb"(?:%b|%b{1,4}%b)" % (_LAST, _MORE, _LAST)


def _value() -> bytes:
    def sized(size: int, body: bytes) -> bytes:
        return re.escape(bytes([size])) + body

    values = (
        sized(9, rb"\x19.{8}"),
        *(sized(n + 1, rb"\x28%b{%d}%b" % (_MORE, n - 1, _LAST)) for n in range(1, 11)),
        sized(5, rb"\x15.{4}"),
        *(sized(n + 2, rb"\n" + sized(n, rb"[\x20-\x7e]{%d}" % n)) for n in range(64)),
    )
    return b"(?:" + b"|".join(values) + b")"


@cache
def _instances() -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what a metric begins with, and then one of its instances, its size apart, or its end."""
    value = _value()
    begin = rb"\x08%b(?:\x12%b)?" % (_NUMBER, value)
    element = rb"(\x1a.)((?:\n%b)?\x12%b)|(\x20%b\Z)" % (value, value, _NUMBER)
    return re.compile(begin, re.DOTALL), re.compile(element, re.DOTALL)


def _is_usual(data: bytes, start: int, stop: int) -> bool:
    """Return whether a metric is whole, instances too, and laid out as ncu does: most are."""
    begin, element = _instances()
    if not (match := begin.match(data, start, stop)):
        return False
    parts = element.findall(data, match.end(), stop)
    if any(head and head[1] != len(body) for head, body, _ in parts):
        return False
    # A part that is passed over is missing in the sum.
    return sum(len(head) + len(body) + len(end) for head, body, end in parts) == stop - match.end()


@cache
def _patterns(tag: int) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """For metrics under a tag: a run without instances, the name ids in it, the head of another."""
    last, number, value = _LAST, _NUMBER, _value()
    head = rb"%b%b\x08(%b)(?:\x12%b)?+" % (re.escape(bytes([tag])), number, number, value)
    plain = rb"%b(?![\x12\x1a])(?:\x20%b)?" % (head, last)
    return (
        re.compile(rb"(?:%b)*+" % plain.replace(b"(%b)" % number, number), re.DOTALL),
        re.compile(plain, re.DOTALL),
        re.compile(rb"%b\x1a" % head, re.DOTALL),
    )


def _metrics(
    data: bytes, at: int, tag: int, newer: list[int], sequences: set[tuple[bytes, ...]]
) -> int:
    """Check the run of metrics at an offset; returns where it ends."""
    run, plain, listed = _patterns(tag)
    ids: list[bytes] = []
    end = len(data)
    while at < end and data[at] == tag:
        start, at = at, run.match(data, at).end()  # type: ignore[union-attr]
        ids += plain.findall(data, start, at)
        if at == end or data[at] != tag:
            break
        match = listed.match(data, at)
        _, _, start, stop, at = one(data, at, end)
        if match:
            ids.append(match[1])
        else:
            wire.verify_message(data, start, stop, wire.METRIC, newer)
            ids.append(data[start + 1 : wire.varint(data, start + 1)[1]])  # the id comes first
    sequences.add(tuple(ids))  # most launches of a report have the same
    return at


def nameless(sequences: Iterable[tuple[bytes, ...]], names: int) -> bool:
    """Return whether one of the metrics' ids is beyond the string table."""
    ids = set[bytes]().union(*sequences)
    longest = max(map(len, ids), default=0)
    # A varint has its highest bits last, so that the largest id is the last one in this order.
    largest = max((id_[::-1] for id_ in ids if len(id_) == longest), default=b"")
    return bool(ids) and wire.varint(largest[::-1], 0)[0] >= names


def _in_order(data: bytes, start: int, end: int) -> bool:
    """Return whether timed warp samples are as they should be: the library trusts them, and crashes.

    Per SM there are records of 16 bytes, (time, samples so far), and the samples, 16 bytes each.
    """
    for number, _, group, stop in fields(data, start, end):
        for _, _, per_sm, behind in fields(data, group, stop) if number == 2 else ():
            spans = {n: (a, b) for n, _, a, b in fields(data, per_sm, behind)}
            (times, times_end), (samples, samples_end) = spans[2], spans[3]
            if (times_end - times) % 16 or (samples_end - samples) % 16:
                return False
            stamps = array("Q", data[times:times_end])
            if byteorder == "big":
                stamps.byteswap()
            ends = [0, *stamps[1::2], (samples_end - samples) // 16]
            if any(a > b for a, b in pairwise(ends)):
                return False
    return True


def _names(data: bytes, at: int, end: int) -> list[bytes] | None:
    """Return the string table at [at, end), None when it cannot be right."""
    names = _split(data[at:end])
    try:
        if names is None:
            parts = list(fields(data, at, end))
            names = [
                data[start:stop] for number, wire_type, start, stop in parts if wire_type == BYTES
            ]
        text = b" ".join(names).decode()  # a space ends any character that is cut short
    except (Malformed, UnicodeDecodeError):
        return None
    return None if _CONTROL.search(text) or len(set(names)) < len(names) else names


def _split(table: bytes) -> list[bytes] | None:
    """Return the strings of a table whose names are short and have no newline (the tag of a string)."""
    first, *parts = table.split(b"\n")
    if first or any(len(part) - 1 != part[0] if part else True for part in parts):
        return None
    return [part[1:] for part in parts]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _version(data: bytes, at: int, end: int) -> str | None:
    """Return the writer's version out of session details, like 2025.3.1.0; as in Header."""
    version = None
    for number, _, start, stop in fields(data, at, end):
        if number == 8:
            parts = {n: data[a:b] for n, _, a, b in fields(data, start, stop)}
            if b"Nsight Compute" in parts.get(1, b""):
                return parts[2].split(b" ")[0].decode()
            version = ""
    return version
