"""Begin and end events (B, E) of a Chrome trace  ->  whole events (X), by the format's rules.

They nest within each thread of a process, in the file's order: an end belongs to what began last. A
name on an end is optional; where it has one, it ends what is called so. Arguments may be on both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

OPEN_MOST = 1 << 16  # begun at a time, of all threads together
Event = Mapping[str, Any]


class EventPairs:
    """What was begun and not ended so far, by thread."""

    def __init__(self) -> None:
        self._open: dict[tuple[object, object], list[tuple[int, Event]]] = {}
        self._count = 0
        self.unmatched = 0  # begins without an end, and ends without a begin

    def begin(self, event: Event, number: int) -> None:
        """Keep an event, and its number in the file, until its end comes."""
        if self._count >= OPEN_MOST:
            self.unmatched += 1
            return
        self._count += 1
        self._open.setdefault(_thread_of(event), []).append((number, event))

    def end(self, event: Event) -> tuple[int, dict[str, Any]] | None:
        """Return the whole event that one ends, and its begin's number; None where nothing was begun."""
        stack = self._open.get(_thread_of(event), [])
        at = _find_begin(stack, event.get("name"))
        if at is None:
            self.unmatched += 1
            return None
        number, begin = stack[at]
        self.unmatched += len(stack) - at - 1  # begun inside of it, and not ended before it
        self._count -= len(stack) - at
        del stack[at:]
        try:
            took = float(event["ts"]) - float(begin["ts"])
        except (TypeError, ValueError, KeyError, OverflowError):
            took = -1.0
        if not took >= 0:
            self.unmatched += 1
            return None
        joined = _join_arguments(begin, event)
        return number, {**begin, "ph": "X", "dur": took, "args": joined}

    def list_open(self) -> Iterator[tuple[int, Event]]:
        """What was begun and never ended."""
        return chain.from_iterable(self._open.values())


def _thread_of(event: Event) -> tuple[object, object]:
    """The process and thread of an event: numbers, or names."""
    process, thread = event.get("pid"), event.get("tid")
    return (
        process if isinstance(process, int | str) else None,
        thread if isinstance(thread, int | str) else None,
    )


def _find_begin(stack: list[tuple[int, Event]], name: object) -> int | None:
    """Which of the events that were begun one of a name ends; the last where it has no name."""
    if not stack:
        return None
    if not name:
        return len(stack) - 1
    for at in reversed(range(len(stack))):
        if stack[at][1].get("name") == name:
            return at
    return None


def _join_arguments(begin: Event, end: Event) -> dict[str, Any]:
    """The arguments of both: what both have is the end's."""
    joined: dict[str, Any] = {}
    for event in (begin, end):
        own = event.get("args")
        if isinstance(own, dict):
            joined.update(own)
    return joined
