"""Tiny reports made in memory, as Nsight Compute writes them and its library reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import chain

from profkit.reports.wire import iterate_fields

Value = int | float | str | bytes
VERSION = "2025.3.1.0 (build 36398880) (public-release)"
DEVICE = {
    "device__attribute_display_name": "NVIDIA H200",
    "device__attribute_compute_capability_major": 9,
    "device__attribute_compute_capability_minor": 0,
}
SHAPE = {
    **{f"launch__grid_dim_{axis}": size for axis, size in zip("xyz", (132, 2, 1), strict=True)},
    **{f"launch__block_dim_{axis}": size for axis, size in zip("xyz", (128, 1, 1), strict=True)},
}
TIME = {"gpu__time_duration.sum": 1500.0}
METRICS = {**DEVICE, **SHAPE, **TIME}


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def field(number: int, value: Value) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def frame(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def metric_value(value: int | float | str) -> bytes:
    return field({float: 3, int: 5, str: 1}[type(value)], value)


def metric(index: int, value: Value | None, instances: Mapping[str, float] | None = None) -> bytes:
    body = field(1, index)
    if value is not None:
        body += field(2, metric_value(value))
    for key, instance in (instances or {}).items():
        pair = field(1, metric_value(key)) + field(2, metric_value(instance))
        body += field(3, pair)
    return body + field(4, 0)


def rule(title: str, message: str, kind: int, speedup: float | None = None) -> bytes:
    item = field(1, field(1, message) + field(2, kind) + field(3, 1) + field(4, title))
    if speedup is not None:
        item += field(10, field(1, 1) + field(2, speedup))
    return field(1, "TheRule") + field(2, "The Rule") + field(3, field(1, item)) + field(4, "S")


def nvtx(ranges: Sequence[str]) -> bytes:
    domain = field(1, 0) + field(2, "<default domain>")
    stack = b"".join(field(3, field(1, name)) for name in ranges)
    return field(1, domain) + field(2, field(1, 1) + field(2, field(1, 0) + stack))


def result(
    names: Sequence[str],
    metrics: Mapping[str, Value] = METRICS,
    *,
    kernel: str = "void scale<float>(float*, int)",
    function: str = "scale",
    instances: Mapping[str, Mapping[str, float]] | None = None,
    ranges: Sequence[str] = (),
    rules: Sequence[bytes] = (),
    extra: bytes = b"",
) -> bytes:
    """A ProfileResult: one kernel launch."""
    body = b"".join(field(number, number) for number in (1, 2, 3, 4))
    body += field(5, "_Z5scale") + field(6, function) + field(7, kernel) + field(8, 3)
    body += b"".join(field(n, field(1, 1) + field(2, 1) + field(3, 1)) for n in (9, 10, 11))
    for name in {**metrics, **(instances or {})}:
        held = (instances or {}).get(name)
        body += field(13, metric(names.index(name), metrics.get(name), held))
    body += field(15, field(1, 1))
    body += field(17, field(1, "SpeedOfLight") + field(2, "GPU Speed Of Light Throughput"))
    body += b"".join(field(19, data) for data in rules)
    if ranges:
        body += field(21, nvtx(ranges))
    return body + extra


def range_result(names: Sequence[str], metrics: Mapping[str, Value]) -> bytes:
    """A RangeResult: several launches measured as one."""
    body = field(1, 1) + field(2, 2)
    return body + b"".join(field(4, metric(names.index(n), v)) for n, v in metrics.items())


def block(
    results: Sequence[bytes] = (),
    *,
    sources: Sequence[bytes] = (),
    counter: int = 2,
    session: bytes = b"",
    strings: bytes = b"",
) -> bytes:
    """A block header and the frames that it announces."""
    payload = b"".join(map(frame, chain(sources, results)))
    header = field(1, len(sources)) + field(2, len(results) if counter == 2 else 0)
    header += session and field(3, session)
    header += field(4, strings) + field(5, len(payload))
    header += field(6, field(1, 42) + field(2, "127.0.0.1") + field(3, "/app"))
    if counter != 2:
        header += field(counter, len(results))
    return frame(header) + payload


def details(version: str = VERSION) -> bytes:
    """The session details that say who wrote the report."""
    said = field(1, "Nsight Compute Target") + field(2, version)
    return field(8, field(1, "CUDA Version") + field(2, "13.0")) + field(8, said)


def report(
    results: Sequence[bytes] | None = None,
    names: Sequence[str] = tuple(METRICS),
    version: str = VERSION,
    counter: int = 2,
) -> bytes:
    """A whole report: the names come with the first launch, the session's details behind it."""
    first, *more = [result(names)] if results is None else results
    strings = b"".join(field(1, name) for name in names)
    return b"".join(
        (
            b"NVR\0" + frame(field(1, 7)),
            block(session=field(2, 1700000000)),
            block(sources=[field(1, 1) + field(4, b"\x7fELF") + field(5, 9)]),
            block([first], strings=strings, counter=counter),
            block(session=details(version)),
            *(block([data], counter=counter) for data in more),
        )
    )


def numbered(count: int) -> bytes:
    """A report of so many launches of 274 bytes: each has a name and a time of its own."""
    names, time = [*METRICS], next(iter(TIME))
    return report(
        [
            result(names, {**METRICS, time: 100.0 * (n + 1)}, kernel=f"kernel_{n}")
            for n in range(count)
        ],
        names,
    )


def repeated(data: bytes, least: int) -> bytes:
    """A plain report with all its launches again and again, up to so many bytes."""
    frames, at = [], 4
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        frames.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    again, left = b"", 0
    for body in frames[1:]:
        if left:
            left, again = left - 1, again + frame(body)
            continue
        held = list(iterate_fields(body, 0, len(body)))
        left = sum(value for number, wire, value, _ in held if wire == 0 and number in (1, 2))
        if left:  # without the names, which the first one said
            again += frame(
                b"".join(field(n, v if w == 0 else body[v:e]) for n, w, v, e in held if n != 4)
            )
    return data + again * (max(0, least - len(data)) // len(again))
