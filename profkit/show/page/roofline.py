"""Judged launches  ->  their points under the ceilings of the machine, for a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import atan2, degrees, inf, isfinite, log10

from markupsafe import Markup

from profkit.diagnosis.launches import Judged
from profkit.model import roofline as model
from profkit.reports import figures
from profkit.show import numbers
from profkit.show.page.draw import about, across, logarithmic, part, picture, words
from profkit.show.text.escape import html
from profkit.show.text.words import device_of

Numbered = tuple[int, str, Judged]  # number on the page, label, launch
APART = 13  # pixels between the words of two flats
WIDTHS = {True: 560, False: 1200}  # for the angle of words until the script knows the width


def row_of(run: Judged) -> numbers.Row:
    """Return a launch as the roofline model reads it: a row of the frame."""
    return {**run.values, "cc": run.cc, "status": run.status}


def by_device(launches: Sequence[Numbered]) -> dict[str, Markup]:
    """Return one roofline per device: ceilings of several do not belong in one picture."""
    devices: dict[str, list[Numbered]] = {}
    for launch in launches:
        devices.setdefault(device_of(launch[2]), []).append(launch)
    return {name: picture_of(some) for name, some in devices.items()}


@dataclass(frozen=True)
class _Frame:
    left: float
    right: float
    bottom: float
    top: float
    height: int

    def x(self, intensity: float) -> str:
        return across(logarithmic(self.left, self.right)(intensity))

    def y(self, rate: float) -> float:
        return self.height * (1 - logarithmic(self.bottom, self.top)(rate))


def picture_of(launches: Sequence[Numbered], *, single: bool = False) -> Markup:
    """Return ceilings and points of launches on one device; without a point, why there is none.

    Of a `single` launch the levels are named at the points.
    """
    rows = [row_of(run) for _, _, run in launches]
    each = [model.points(row) for row in rows]
    roofs = numbers.ceilings_of(rows, list(chain.from_iterable(each)))
    frame = _Frame(*numbers.axis_limits(roofs, each), 280 if single else 400)
    groups = [_launch(frame, *both, single) for both in zip(launches, each, strict=True)]
    if not any(groups):
        why = "; ".join(numbers.why_no_point(rows)) or "nothing was counted that has a place on it"
        return part("p", html(f"No point: {why}."), class_="faint")
    wide, high = log10(frame.right / frame.left), log10(frame.top / frame.bottom)
    angle = -degrees(atan2(frame.height / high, WIDTHS[single] / wide))
    tilt = f"rotate({angle:.1f}) translate(8 -3)"
    parts = [*_axes(frame), *_roofs(frame, roofs, tilt), *groups]
    decades = {"data_across": wide, "data_up": high}
    return picture(frame.height, "Roofline", parts, role="group", class_="roofline", **decades)


def _axes(frame: _Frame) -> Iterator[str]:
    middle = {"class_": "tick", "text_anchor": "middle"}
    for tick in numbers.log_ticks(frame.left, frame.right):
        x = frame.x(tick)
        yield part("line", class_="rule", x1=x, x2=x, y1=0, y2=frame.height)
        yield words(f"{tick:,g}", **middle, x=x, y=frame.height + 16)
    for tick in numbers.log_ticks(frame.bottom, frame.top):
        y = frame.y(tick)
        yield part("line", class_="rule", x1=0, x2="100%", y1=y, y2=y)
        yield words(numbers.rate_tick(tick), class_="tick", dx=-6, y=y + 4, text_anchor="end")
    turned = f"translate(-46 {frame.height / 2}) rotate(-90)"
    yield words(numbers.AXES[0], **middle, x="50%", y=frame.height + 34)
    yield words(numbers.AXES[1], **middle, transform=turned)


def _roofs(frame: _Frame, roofs: Sequence[numbers.Roof], tilt: str) -> Iterator[str]:
    """Yield the lines of the ceilings with their words."""
    written = -inf
    for roof, begin, end in numbers.roof_lines(roofs, frame.left, frame.right):
        y, last = (frame.y(roof.high * (x if roof.is_slope else 1.0)) for x in (begin, end))
        clock = f" at {figures.quantity(roof.clock, 'Hz')}" if isfinite(roof.clock) else ""
        by = " (by the device attributes)" if roof.device else ""
        line = part("line", x1=frame.x(begin), x2=frame.x(end), y1=y, y2=last)
        yield part("g", about(f"roof: {roof.text}{clock}{by}"), line, class_="roof")
        if roof.is_slope:
            yield words(roof.text, class_="faint slope", x=0, y=y - 3, transform=tilt)
            continue
        at = {"x": "100%", "dx": -2, "y": y + (12 if y - written < APART else -3)}
        yield words(roof.text, class_="faint", text_anchor="end", **at)
        written = y


def _launch(frame: _Frame, launch: Numbered, points: Sequence[model.Point], single: bool) -> str:
    """Return the points of a launch, tied in the order of their intensity."""
    number, label, run = launch
    placed = numbers.placed_points(points, frame.left, frame.right)
    at = [(frame.x(x), frame.y(y), point) for x, y, point in placed]
    if not at:
        return ""
    parts = [part("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1]) for a, b in pairwise(at)]
    highest = min(y for _, y, _ in at)
    for turn, (x, y, point) in enumerate(at):
        said = about(*filter(None, _facts(label, point)))
        mark = part("use", href=f"#m-{point.level}", x=x, y=y)
        look = "point hollow" if point.note else "point"
        # Not by the tab key: the table's rows lead to the same places, without 4 stops a launch.
        parts.append(part("a", said, mark, class_=look, href=f"#launch-{number}", tabindex=-1))
        if single:  # neighbours are often closer than a name is wide: in turns below and above
            above = turn % 2 or (point.level == "workload" and y == highest)
            name = {"x": x, "y": y + (-9 if above else 19), "text_anchor": "middle"}
            parts.append(words(numbers.WORDS[point.level], **name))
    if not single:
        x, y, _ = at[-1]
        side = {"dx": -10, "text_anchor": "end"} if float(x[:-1]) > 70 else {"dx": 10}
        parts.append(words(label, class_="name", x=x, y=y - 8, **side))
    return part("g", *parts, class_=run.diagnosis.bound, data_launch=number)


def _facts(label: str, point: model.Point) -> Iterator[str]:
    """Yield what a point says under the pointer: "name: text" or nothing."""
    family = numbers.word(point.family) if point.family else ""
    rate = figures.quantity(point.rate, numbers.unit(point.family))
    yield f"launch: {label}"
    yield f"bytes of: {numbers.WORDS[point.level]}"
    yield f"rate: {rate if point.intensity > 0 else 'no arithmetic'} {family}".rstrip()
    yield f"intensity: {figures.figures(point.intensity)} op/byte"
    yield f"moved: {figures.quantity(point.moved, 'byte/s')}"
    known = isfinite(point.share) and point.roof
    yield f"roof: {numbers.of_roof(point) if known else 'not known'}"
    above = " above its roof: an error of the measurement" if point.above else ""
    yield f"note: {point.note}{above}" if point.note or above else ""
