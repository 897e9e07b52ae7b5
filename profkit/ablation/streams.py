"""Accesses of global memory  ->  the change that sends some of them along shorter or straighter streams.

Coalesced, L1 and L2 are one rewritten text with three tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profkit.ablation.accesses import Access
from profkit.ablation.change import Change, Code
from profkit.ablation.readdress import (
    ROW,
    Path,
    Stream,
    fill_table,
    find_streams,
    write_streams,
)

_GOLDEN = 0.6180339887  # of a length: steps that come back to no place soon
Walk = Callable[[Stream], Path]


def find_movable(code: Code) -> list[Access]:
    """Loads of global memory that decide nothing, and stores that nothing which decides reads."""
    movable = []
    for access in code.accesses:
        if access.unmovable or access.number not in code.anchored:
            continue
        if access.kind == "load" and not access.steers:
            movable.append(access)
        scattered = access.kind == "store" and code.is_scattered(access)
        if scattered and not code.feeds_steering(access):
            movable.append(access)
    return movable


def make_change(
    code: Code, on: Sequence[int], walk: Walk, changed: str, kept: str, cached: bool = False
) -> Change:
    """Send the accesses `on` along their streams as `walk` says; `cached`: through the L1."""
    streams = find_streams(find_movable(code), code.survey)
    paths = {stream.number: walk(stream) for stream in streams}
    chosen = set(on)
    lines = {}
    for place in code.places(on):
        here = {number for number in on if code.place(number) == place}
        if place:
            lines[place] = fill_table(streams, paths, here, code.accesses)
    return Change(
        text=write_streams(code.module, code.accesses, streams, cached),
        table=fill_table(streams, paths, chosen, code.accesses),
        control=fill_table(streams, {}, set(), code.accesses),
        changed=changed,
        kept=kept,
        lines=lines,
    )


def list_streamed(code: Code) -> list[Stream]:
    return find_streams(find_movable(code), code.survey)


def walk_all(code: Code) -> Walk:
    """In order through everything that was touched."""

    def walk(stream: Stream) -> Path:
        step = code.threads[stream.kernel] * stream.width % stream.length // ROW * ROW
        return Path(stream.base, stream.length, step or leap_through(stream.length))

    return walk


def walk_window(size: int) -> Walk:
    """Back and forth in the first bytes of a stream: `size` of them, whole rows."""

    def walk(stream: Stream) -> Path:
        length = max(ROW, min(size, stream.length) // ROW * ROW)
        return Path(stream.base, length, leap_through(length))

    return walk


def leap_through(length: int) -> int:
    """A step, in whole rows, that comes back to the same bytes late."""
    return int(length * _GOLDEN) // ROW * ROW


def describe_kept(code: Code, kinds: Sequence[str]) -> str:
    """How many accesses of global memory stay where they are, and why."""
    steering = unmovable = apart = 0
    for access in code.accesses:
        if not access.in_global or access.kind not in kinds or not code.has_executed(access):
            continue
        steering += access.steers
        unmovable += bool(access.unmovable) and not access.steers
        apart += access.number not in code.anchored and not access.unmovable and not access.steers
    words = []
    if steering:
        words.append(f"{steering} that decide a branch or an address stay")
    if unmovable:
        words.append(f"{unmovable} whose place the hardware decides stay")
    if apart:
        words.append(f"{apart} that go through several allocations stay")
    return ", ".join(words)
