"""Works of a step  ->  the line of Python that they come from, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from profkit.program.timeline import Place

_SITE = re.compile(r"^.*/(?:site|dist)-packages/")


class PlaceOfWorks(NamedTuple):
    """Where some works come from, most of their time."""

    place: Place  # its module's path has a * where the works' modules differ
    share: float  # of their time that is of this line


def find_place(works: Iterable[tuple[Place | None, int]]) -> PlaceOfWorks | None:
    """Find the line that most of some works' time comes from; None where no line is known.

    Args:
        works: The place of each, and its nanoseconds.
    """
    times: Counter[str] = Counter()
    by_line: dict[str, list[Place]] = {}
    whole = 0
    for place, time in works:
        whole += time
        if place is None or not place.line:
            continue
        times[place.line] += max(1, time)
        by_line.setdefault(place.line, []).append(place)
    if not times:
        return None
    ((line, time),) = times.most_common(1)
    own = by_line[line]
    first = own[0]
    alike = [place for place in own if place.kind == first.kind]
    module = join_paths([place.module for place in alike])
    called = Counter(place.called for place in own).most_common(1)[0][0]
    place = Place(
        line=line,
        function=first.function,
        module=module,
        kind=first.kind,
        called=called,
        part=first.part,
        lines=first.lines,
    )
    return PlaceOfWorks(place, time / max(1, whole))


def join_paths(paths: Sequence[str]) -> str:
    """Join paths of modules into one with a * for what differs: transformer.h.*.attn."""
    distinct = list(dict.fromkeys(paths))
    if len(distinct) == 1:
        return distinct[0]
    parts = [path.split(".") for path in distinct]
    if len({len(path) for path in parts}) > 1:
        return ""
    joined = []
    for names in zip_longest(*parts):
        joined.append(names[0] if len(set(names)) == 1 else "*")
    return ".".join(joined)


def say_place(place: Place) -> str:
    """Say it in words: model.py:64 CausalSelfAttention (transformer.h.*.attn), called at train.py:88."""
    said = shorten_line(place.line)
    name = place.kind or place.function.rpartition("<locals>.")[2]
    if name and name != "<module>":
        said += f" {name}"
    if place.module:
        said += f" ({place.module})"
    if place.called:
        said += f", called at {shorten_line(place.called)}"
    if place.part == "backward":
        said += ", in its backward pass"
    return said


def shorten_line(line: str) -> str:
    """Shorten a line's file to its name; one of an installed package to its path in there."""
    installed = _SITE.sub("", line)
    return installed if installed != line else line.rpartition("/")[2]
