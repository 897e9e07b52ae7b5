"""A step's model and what a fix does to it, as data  ->  the model after the fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from profkit.program.replay.play import Event, Model, ReplayItem

LOW, EXPECT, HIGH = range(3)
GRAPH_LAG = 1_000.0  # nanoseconds between the kernels of a graph


class Reach(NamedTuple):
    """The share that is left, by how much a fix helps; 1 changes nothing."""

    low: float
    expect: float
    high: float

    def times(self, by: float) -> Reach:
        """The shares of a part, at most all of it."""
        return Reach(*(min(1.0, by * share) for share in self))


ALL = Reach(1.0, 1.0, 1.0)
GONE = Reach(0.0, 0.0, 0.0)


class CallShare(NamedTuple):
    """What is left of the host's time before a call, and in it."""

    gap: Reach = ALL
    busy: Reach = ALL


class Aside(NamedTuple):
    """A stream for work that nothing waits for any more, and the share that stays where it was."""

    stream: int
    left: Reach


@dataclass(frozen=True)
class Change:
    """What a fix does to a step: its works and calls by index, with what is left of them."""

    scale: Mapping[int, Reach] = field(default_factory=dict)  # of a work's duration
    merge: Mapping[int, Reach] = field(default_factory=dict)  # work gone; of its launch's host time
    host: Mapping[int, CallShare] = field(default_factory=dict)  # calls that wait for nothing now
    stream: Mapping[int, Aside] = field(default_factory=dict)
    launches: Reach = ALL  # of the host's time for all calls, as a graph has them; not its pauses
    pauses: Reach = ALL  # of the host's long work between calls

    def apply(self, model: Model, level: int) -> Model:
        """The model after the fix, where it helps least (LOW), as expected, or most."""
        lost = {i: reach[level] for i, reach in self.merge.items() if reach[level] < 1}
        moved = {i: aside.stream for i, aside in self.stream.items() if aside.left[level] < 1}
        launches, pauses = self.launches[level], self.pauses[level]
        events = []
        for i, before in enumerate(model.events):
            event = before
            if (share := self.host.get(i)) is not None:
                event = event.times(share.gap[level], share.busy[level])._replace(awaits=-1)
            event = _launching(event, lost)
            paused = event.gap > model.pause
            events.append(event.times(pauses, 1.0) if paused else event.times(launches, launches))
        items = []
        for i, (stream, whole, after, lag) in enumerate(model.items):
            duration = 0.0 if i in lost else whole * self.scale.get(i, ALL)[level]
            if i in moved:
                items.append(ReplayItem(moved[i], duration))
            else:
                short = 0.0 if i in lost else min(lag, GRAPH_LAG) if launches < 1 else lag
                items.append(ReplayItem(stream, duration, -1 if after in moved else after, short))
        tail = model.tail * (pauses if model.tail > model.pause else launches)
        return replace(model, events=tuple(events), items=tuple(items), tail=tail)


def _launching(event: Event, lost: Mapping[int, float]) -> Event:
    """A call without what others do; with a share of its time where nothing is left to launch."""
    if lost.keys().isdisjoint(event.items):
        return event
    left = tuple(i for i in event.items if i not in lost)
    if left:
        return event._replace(items=left)
    share = lost[event.items[0]]
    return event.times(share, share)._replace(items=())
