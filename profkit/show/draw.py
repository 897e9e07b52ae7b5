"""Parts of a picture  ->  SVG for a page, whose policy allows no style of an element's own.

Looks are classes. Places across are shares of the width, so that words keep their size on a phone;
places down are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, starmap
from math import atan2, degrees, inf, isfinite, log, log10

from markupsafe import Markup

from profkit.diagnosis.launches import Judged
from profkit.evidence.ladder import Ladder
from profkit.evidence.samples import Interval
from profkit.model import roofline as model
from profkit.reports import figures
from profkit.show import numbers
from profkit.show.numbers import HistoryPoint, reference_times
from profkit.show.text.escape import html
from profkit.show.text.words import device_of, factor, timed

HIGH = 34  # of a strip
THIN = 0.004  # of its width: what is narrower has no edge


def part(tag: str, *inside: str, **attributes: object) -> Markup:
    """Return an element: `inside` is markup, attributes are any text (class_ is class, x_y is x-y)."""
    named = "".join(starmap(write_attribute, attributes.items()))
    if inside:
        text = f"<{tag}{named}>{''.join(inside)}</{tag}>"
    else:
        text = f"<{tag}{named}/>"
    return Markup(text)  # noqa: S704 - every text goes through html()


def write_attribute(key: str, value: object) -> str:
    text = str(round(value, 2) if isinstance(value, float) else value)
    return f' {key.rstrip("_").replace("_", "-")}="{html(text)}"'


def about(*lines: str) -> Markup:
    return part("title", "\n".join(map(html, lines)))


def words(text: str, **attributes: object) -> Markup:
    return part("text", html(text), **attributes)


def across(share: float) -> str:
    return f"{round(100 * share, 3):g}%"


def picture(height: int, label: str, parts: Iterable[str], **attributes: object) -> Markup:
    """Return a picture as wide as its place; one that holds links needs the role "group"."""
    named = {"role": "img", "aria_label": label, "width": "100%", "height": height, **attributes}
    return part("svg", *parts, **named)


def logarithmic(low: float, high: float) -> Callable[[float], float]:
    """Return where a value lies between two others, 0 to 1; equal ones are both at 0."""
    wide = log(high / low) or 1.0
    return lambda value: log(value / low) / wide


@dataclass(frozen=True)
class Bar:
    """A part of a strip; places are shares of its width."""

    begin: float
    end: float
    look: str  # a class
    about: str
    to: str = ""  # an element of the page
    saved: float = 0.0  # hatched, from its begin
    marks: tuple[str, ...] = ()  # further classes: what it lights up with


def strip(bars: Iterable[Bar], label: str, *, listed: bool = False) -> Markup:
    """Return bars side by side in one row, each named in its label where it is `listed`."""
    bars = list(bars)
    if listed:
        label += f": {'; '.join(bar.about for bar in bars)}"
    box = {"viewBox": f"0 0 1000 {HIGH}", "preserveAspectRatio": "none"}
    return picture(HIGH, label, map(draw_bar, bars), role="group", **box)


def draw_bar(bar: Bar) -> Markup:
    if bar.end - bar.begin < THIN:
        thin = " thin"
    else:
        thin = ""
    at = {"x": 1000 * bar.begin, "y": 0, "width": 1000 * (bar.end - bar.begin), "height": HIGH}
    rects = part("rect", class_=" ".join(("fill", bar.look, *bar.marks)) + thin, **at)
    if bar.saved > 0:
        hatched = {**at, "width": 1000 * bar.saved}
        rects += part("rect", class_="saved", **hatched, fill="url(#hatch)")
    # Not by the tab key: a table's rows lead to the same places, without a stop a bar.
    link: dict[str, object] = {}
    if bar.to:
        link["href"] = f"#{bar.to}"
    if bar.to and bar.marks:
        link["tabindex"] = -1
    return part("a" if bar.to else "g", about(bar.about), rects, **link)


Numbered = tuple[int, str, Judged]  # number on the page, label, launch
APART = 13  # pixels between the words of two flats
WIDTHS = {True: 560, False: 1200}  # for the angle of words until the script knows the width


def row_of(run: Judged) -> numbers.Row:
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
    each = [model.list_points(row) for row in rows]
    roofs = numbers.ceilings_of(rows, list(chain.from_iterable(each)))
    frame = _Frame(*numbers.axis_limits(roofs, each), 280 if single else 400)
    groups = [draw_tied_points(frame, *both, single) for both in zip(launches, each, strict=True)]
    if not any(groups):
        why = "; ".join(numbers.why_no_point(rows)) or "its counters do not give a position"
        return part("p", html(f"No point: {why}."), class_="faint")
    wide, high = log10(frame.right / frame.left), log10(frame.top / frame.bottom)
    angle = -degrees(atan2(frame.height / high, WIDTHS[single] / wide))
    tilt = f"rotate({angle:.1f}) translate(8 -3)"
    parts = [*draw_axes(frame), *draw_roofs(frame, roofs, tilt), *groups]
    decades = {"data_across": wide, "data_up": high}
    return picture(frame.height, "Roofline", parts, role="group", class_="roofline", **decades)


def draw_axes(frame: _Frame) -> Iterator[str]:
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


def draw_roofs(frame: _Frame, roofs: Sequence[numbers.Roof], tilt: str) -> Iterator[str]:
    written = -inf
    for roof, begin, end in numbers.roof_lines(roofs, frame.left, frame.right):
        y, last = (frame.y(roof.high * (x if roof.is_slope else 1.0)) for x in (begin, end))
        if isfinite(roof.clock):
            clock = f" at {figures.quantity(roof.clock, 'Hz')}"
        else:
            clock = ""
        if roof.device:
            by = " (by the device attributes)"
        else:
            by = ""
        line = part("line", x1=frame.x(begin), x2=frame.x(end), y1=y, y2=last)
        yield part("g", about(f"roof: {roof.text}{clock}{by}"), line, class_="roof")
        if roof.is_slope:
            yield words(roof.text, class_="faint slope", x=0, y=y - 3, transform=tilt)
            continue
        at = {"x": "100%", "dx": -2, "y": y + (12 if y - written < APART else -3)}
        yield words(roof.text, class_="faint", text_anchor="end", **at)
        written = y


def draw_tied_points(
    frame: _Frame, launch: Numbered, points: Sequence[model.Point], single: bool
) -> str:
    number, label, run = launch
    placed = numbers.placed_points(points, frame.left, frame.right)
    at = [(frame.x(x), frame.y(y), point) for x, y, point in placed]
    if not at:
        return ""
    parts = []
    for a, b in pairwise(at):
        parts.append(part("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1]))
    highest = min(y for _, y, _ in at)
    for turn, (x, y, point) in enumerate(at):
        said = about(*filter(None, list_facts(label, point)))
        mark = part("use", href=f"#m-{point.level}", x=x, y=y)
        if point.note:
            look = "point hollow"
        else:
            look = "point"
        # Not by the tab key: the table's rows lead to the same places, without 4 stops a launch.
        parts.append(part("a", said, mark, class_=look, href=f"#launch-{number}", tabindex=-1))
        if single:  # neighbours are often closer than a name is wide: in turns below and above
            above = turn % 2 or (point.level == "workload" and y == highest)
            name = {"x": x, "y": y + (-9 if above else 19), "text_anchor": "middle"}
            parts.append(words(numbers.WORDS[point.level], **name))
    if not single:
        x, y, _ = at[-1]
        if float(x[:-1]) > 70:
            side = {"dx": -10, "text_anchor": "end"}
        else:
            side = {"dx": 10}
        parts.append(words(label, class_="name", x=x, y=y - 8, **side))
    return part("g", *parts, class_=run.diagnosis.bound, data_launch=number)


def list_facts(label: str, point: model.Point) -> Iterator[str]:
    """Yield what a point says under the pointer: "name: text" or nothing."""
    if point.family:
        family = numbers.word(point.family)
    else:
        family = ""
    rate = figures.quantity(point.rate, numbers.unit(point.family))
    yield f"launch: {label}"
    yield f"bytes of: {numbers.WORDS[point.level]}"
    yield f"rate: {rate if point.intensity > 0 else 'no arithmetic'} {family}".rstrip()
    yield f"intensity: {figures.figures(point.intensity)} op/byte"
    yield f"moved: {figures.quantity(point.moved, 'byte/s')}"
    known = isfinite(point.share) and point.roof
    yield f"roof: {numbers.of_roof(point) if known else 'not known'}"
    if point.above:
        above = " above its roof: a measurement error"
    else:
        above = ""
    if point.note or above:
        yield f"note: {point.note}{above}"
    else:
        yield ""


_RUNG_HIGH, _HISTORY_HIGH, _EDGE = 22, 120, 24  # pixels: a ladder's row, a history, its free ends
_MACHINES = 6  # colours
Place = Callable[[float], float]  # a time -> where it is across, 0 to 1


def chart(ladder: Ladder) -> Markup:
    """Return every variant that was timed, in the ladder's order, then the references."""
    steps = [(step, step.time) for step in ladder.steps if step.time]
    references = reference_times(ladder.steps)
    times = [*(time for _, time in steps), *references.values()]
    if not times:
        return Markup("")
    ends = list(chain.from_iterable(map(find_ends, times)))
    place = logarithmic(min(ends), max(ends))
    rows = []
    for step, time in steps:
        if step.change:
            change = step.change.time
        else:
            change = None
        against: str | None
        if change:
            against = f"{factor(change)} {change.answer} than {step.parent}"
        else:
            against = step.note
        kind = "waiting"
        if change and change.answer in ("faster", "slower"):
            kind = change.answer
        said = " · ".join(filter(None, (timed(time), factor(change))))
        more = ", ".join(filter(None, (against, step.bound)))
        rows.append(draw_row(step.variant, time, kind, more, said, place))
    for name, time in references.items():
        rows.append(draw_row(name, time, "reference", "a library call", timed(time), place))
    label = f"Case {ladder.case}: time per call, warm L2, logarithmic"
    return part("div", *rows, class_="rungs", role="group", aria_label=label)


def draw_row(name: str, time: Interval, kind: str, more: str, said: str, place: Place) -> Markup:
    x, *ends = (across(place(value)) for value in (time.median, *find_ends(time)))
    drawn = (
        about(", ".join(filter(None, (name, timed(time), more)))),
        part("line", x1=ends[0], x2=ends[1], y1=_RUNG_HIGH / 2, y2=_RUNG_HIGH / 2),
        part("circle", cx=x, cy=_RUNG_HIGH / 2, r=5),
    )
    svg = picture(_RUNG_HIGH, name, drawn, class_=kind)
    return part("span", html(name)) + svg + part("span", html(said))


def find_ends(time: Interval) -> tuple[float, float]:
    """Return the 95 % interval; the median twice where there is none."""
    known = isfinite(time.low) and isfinite(time.high)
    if known:
        return (time.low, time.high)
    return (time.median, time.median)


def history_pictures(
    points: Mapping[str, Sequence[HistoryPoint]],
) -> tuple[dict[str, Markup], list[tuple[str, str]]]:
    """Return a picture of each subject that was timed more than once, and (look, machine) of all."""
    machines = dict.fromkeys(p.machine for p in chain.from_iterable(points.values()))
    looks = {name: f"m-{i % _MACHINES}" for i, name in enumerate(machines)}
    charts = {}
    for subject, some in points.items():
        if len(some) > 1:
            label, drawn = f"{subject} over its runs", draw_history(some, looks)
            charts[subject] = picture(_HISTORY_HIGH, label, drawn, class_="history")
    return charts, [(look, name) for name, look in looks.items()]


def draw_history(points: Sequence[HistoryPoint], looks: dict[str, str]) -> Iterator[str]:
    low, high = min(p.low for p in points), max(p.high for p in points)
    place, wide = logarithmic(low, high), max(1, len(points) - 1)

    def down(time: float) -> float:
        return _HISTORY_HIGH - _EDGE - (_HISTORY_HIGH - 2 * _EDGE) * place(time)

    yield words(figures.seconds(high), dx=-12, y=_EDGE + 4, text_anchor="end")
    yield words(figures.seconds(low), dx=-12, y=_HISTORY_HIGH - _EDGE + 4, text_anchor="end")
    for before, point in pairwise(points):
        if before.machine == point.machine:
            x0, x1 = across(before.order / wide), across(point.order / wide)
            y0, y1 = down(before.median), down(point.median)
            flat = part("line", x1=x0, x2=x1, y1=y0, y2=y0)
            upright = part("line", x1=x1, x2=x1, y1=y0, y2=y1)
            yield part("g", flat, upright, class_=looks[point.machine])
    for point in points:
        x, y = across(point.order / wide), down(point.median)
        whole = part("line", class_="interval", x1=x, x2=x, y1=down(point.low), y2=down(point.high))
        title = about(f"{point.told}, {figures.seconds(point.median)}")
        dot = part("circle", title, class_="" if point.real else "hollow", cx=x, cy=y, r=5)
        yield part("g", whole, dot, class_=looks[point.machine])
        if point.real:
            yield words(point.change, x=x, y=y - 10, text_anchor="middle")
