"""Ranges that were open when a recording ended  ->  ranges that end there, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from profkit.program.timeline import Activity, Call, HostSpan, Process

# Of a process: more is a program that never ends its ranges, and each call would be inside of all.
OPEN_MOST = 100


def find_end(
    activities: Sequence[Activity], calls: Sequence[Call], spans: Sequence[HostSpan]
) -> int:
    """When a process's recording ends: the last time that is in it."""
    last = max((activity.end for activity in activities), default=0)
    last = max(last, max((call.end for call in calls), default=last))
    return max(last, max((span.end for span in spans), default=last))


def end_ranges(begun: Sequence[HostSpan], end: int) -> list[HostSpan]:
    """Ranges that were begun and not ended, as they are until the recording's end."""
    latest = sorted(begun, key=lambda span: span.start)[-OPEN_MOST:]
    return [replace(span, end=max(span.start, end), ended=False) for span in latest]


def say_unended(processes: Sequence[Process]) -> Iterator[str]:
    """Says of how many ranges nobody recorded the end."""
    unended = [span for process in processes for span in process.spans if not span.ended]
    if not unended:
        return
    name = unended[0].name[:60]
    what = f"{len(unended):,} ranges were" if len(unended) > 1 else "1 range was"
    yield (
        f"{what} still open when the recording ended ({name}): the recording's end is taken as "
        "theirs, and no step is told by them unless --range names them"
    )
