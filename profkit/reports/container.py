"""The bytes of a report  ->  whether it is whole, how many launches it holds, who wrote it."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "empty", "damaged", "unreadable"]
MAGIC = b"NVR\0"


class Malformed(Exception):
    """The bytes do not have the shape that Nsight Compute writes."""


@dataclass(frozen=True)
class Frames:
    """What the container says about itself.

    Attributes:
        status: ok, empty (nothing in it), damaged (a part is lost) or unreadable (not a report).
        message: Why it is not ok; empty when it is.
        launches: Results that the block headers announce, up to the damage.
        ncu_version: Version of the Nsight Compute that wrote it, None when not found.
    """

    status: Status
    message: str
    launches: int
    ncu_version: str | None


def varint(data: bytes, at: int) -> tuple[int, int]:
    """One protobuf varint: its value and the offset behind it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise Malformed(f"a number of more than 64 bits at byte {at}")


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields of the message at [at, end): number, wire type, then value or [start, end)."""
    try:
        while at < end:
            key, at = varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = varint(data, at)
                yield number, wire, value, at
                continue
            size, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            if number == 0 or at + size > end:
                raise Malformed(f"a field that leaves its message at byte {at}")
            yield number, wire, at, at + size
            at += size
    except (IndexError, KeyError) as error:
        raise Malformed(f"a field without a type at byte {at}") from error
    if at != end:
        raise Malformed(f"a message that ends outside itself at byte {at}")


def check(path: str | Path) -> Frames:
    """Walk the frames of a report."""
    try:
        data = Path(path).read_bytes()
        if Path(path).suffix == ".ncu-repz":
            import zstandard

            with zstandard.ZstdDecompressor().stream_reader(data) as stream:
                data = stream.read()
    except OSError as error:
        return Frames("unreadable", error.strerror or str(error), 0, None)
    if not data:
        return Frames("empty", "the file has 0 bytes", 0, None)
    if data[:4] != MAGIC:
        return Frames("unreadable", "not an Nsight Compute report", 0, None)
    launches = 0
    version: str | None = None
    at = 4
    try:
        _, at = frame(data, at)
        while at < len(data):
            start, at = frame(data, at)
            header = dict[int, int]()
            for number, wire, value, end in fields(data, start, at):
                if wire == 0:
                    header[number] = value
                elif number == 3:
                    version = version_of(data, value, end) or version
            behind = at + header.get(5, 0)
            for number in (1, 2, 7, 8, 9, 10):
                for _ in range(header.get(number, 0)):
                    _, at = frame(data, at)
                    launches += number in (2, 7, 8, 9)
            if at != behind:
                raise Malformed(f"a block that is not as long as it says at byte {at}")
    except Malformed as error:
        return Frames("damaged", str(error), launches, version)
    if not launches:
        return Frames("empty", "a whole report without a launch", 0, version)
    return Frames("ok", "", launches, version)


def frame(data: bytes, at: int) -> tuple[int, int]:
    """The length-prefixed frame at an offset: where its message starts and ends."""
    if at + 4 > len(data):
        raise Malformed(f"the file ends in a frame's length at byte {at}")
    (size,) = struct.unpack_from("<I", data, at)
    if at + 4 + size > len(data):
        raise Malformed(f"the file ends {at + 4 + size - len(data)} bytes early at byte {at}")
    return at + 4, at + 4 + size


def version_of(data: bytes, at: int, end: int) -> str | None:
    """The writer's version out of the session details at [at, end)."""
    for number, wire, start, stop in fields(data, at, end):
        if number == 8 and wire == 2:
            texts = {n: data[a:b] for n, w, a, b in fields(data, start, stop) if w == 2}
            if b"Nsight Compute" in texts.get(1, b""):
                return texts.get(2, b"").split(b" ")[0].decode("ascii", "replace")
    return None


def digest(path: str | Path) -> str | None:
    """The sha256 of a file, None when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def record_beside(path: str | Path) -> dict[str, Any]:
    """The run record `<stem>.json` beside a report, empty when there is none that can be read."""
    try:
        record = json.loads(Path(path).with_suffix(".json").read_bytes())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def recorded_sha256(record: Mapping[str, Any]) -> str | None:
    """The report's sha256 as a run record says it, None when it says none."""
    report = record.get("report")
    value = report.get("sha256") if isinstance(report, dict) else record.get("report_sha256")
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None
