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
from profkit.show.numbers import HistoryPoint, find_reference_times
from profkit.show.text.escape import escape_html
from profkit.show.text.words import format_measured_speedup, format_median, name_device

HIGH = 34  # of a strip
THIN = 0.004  # of its width: what is narrower has no edge


def write_element(tag: str, *inside: str, **attributes: object) -> Markup:
    """Return an element: `inside` is markup, attributes are any text (class_ is class, x_y is x-y)."""
    named = "".join(starmap(write_attribute, attributes.items()))
    if inside:
        text = f"<{tag}{named}>{''.join(inside)}</{tag}>"
    else:
        text = f"<{tag}{named}/>"
    return Markup(text)  # noqa: S704 - every text goes through html()


def write_attribute(key: str, value: object) -> str:
    text = str(round(value, 2) if isinstance(value, float) else value)
    return f' {key.rstrip("_").replace("_", "-")}="{escape_html(text)}"'


def write_tooltip(*lines: str) -> Markup:
    return write_element("title", "\n".join(map(escape_html, lines)))


def write_svg_text(text: str, **attributes: object) -> Markup:
    return write_element("text", escape_html(text), **attributes)


def format_position(share: float) -> str:
    return f"{round(100 * share, 3):g}%"


def write_svg(height: int, label: str, parts: Iterable[str], **attributes: object) -> Markup:
    """Return a picture as wide as its place; one that holds links needs the role "group"."""
    named = {"role": "img", "aria_label": label, "width": "100%", "height": height, **attributes}
    return write_element("svg", *parts, **named)


def make_log_scale(low: float, high: float) -> Callable[[float], float]:
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


def draw_strip(bars: Iterable[Bar], label: str, *, listed: bool = False) -> Markup:
    """Return bars side by side in one row, each named in its label where it is `listed`."""
    bars = list(bars)
    if listed:
        label += f": {'; '.join(bar.about for bar in bars)}"
    box = {"viewBox": f"0 0 1000 {HIGH}", "preserveAspectRatio": "none"}
    return write_svg(HIGH, label, map(draw_bar, bars), role="group", **box)


def draw_bar(bar: Bar) -> Markup:
    if bar.end - bar.begin < THIN:
        thin = " thin"
    else:
        thin = ""
    at = {"x": 1000 * bar.begin, "y": 0, "width": 1000 * (bar.end - bar.begin), "height": HIGH}
    rects = write_element("rect", class_=" ".join(("fill", bar.look, *bar.marks)) + thin, **at)
    if bar.saved > 0:
        hatched = {**at, "width": 1000 * bar.saved}
        rects += write_element("rect", class_="saved", **hatched, fill="url(#hatch)")
    # Not by the tab key: a table's rows lead to the same places, without a stop a bar.
    link: dict[str, object] = {}
    if bar.to:
        link["href"] = f"#{bar.to}"
    if bar.to and bar.marks:
        link["tabindex"] = -1
    return write_element("a" if bar.to else "g", write_tooltip(bar.about), rects, **link)


Numbered = tuple[int, str, Judged]  # number on the page, label, launch
APART = 13  # pixels between the words of two flats
WIDE = 1200  # of the picture of all launches
NAMED = 12  # launches whose names stand in it
NEAR_EDGE = 70  # per cent of the width, from which on a name is left of its point
WIDTHS = {True: 560, False: WIDE}  # for the angle of words until the script knows the width


def make_roofline_row(run: Judged) -> numbers.Row:
    return {**run.values, "cc": run.cc, "status": run.status}


def draw_roofline_of_each_device(launches: Sequence[Numbered]) -> dict[str, Markup]:
    """Return one roofline per device: ceilings of several do not belong in one picture."""
    devices: dict[str, list[Numbered]] = {}
    for launch in launches:
        devices.setdefault(name_device(launch[2]), []).append(launch)
    return {name: draw_roofline(some) for name, some in devices.items()}


@dataclass(frozen=True)
class _Frame:
    left: float
    right: float
    bottom: float
    top: float
    height: int

    def place_intensity(self, intensity: float) -> str:
        return format_position(make_log_scale(self.left, self.right)(intensity))

    def place_rate(self, rate: float) -> float:
        return self.height * (1 - make_log_scale(self.bottom, self.top)(rate))


def draw_roofline(launches: Sequence[Numbered], *, single: bool = False) -> Markup:
    """Return ceilings and points of launches on one device; without a point, why there is none.

    Of a `single` launch the levels are named at the points.
    """
    rows = [make_roofline_row(run) for _, _, run in launches]
    each = [model.list_points(row) for row in rows]
    roofs = numbers.choose_ceilings(rows, list(chain.from_iterable(each)))
    frame = _Frame(*numbers.compute_axis_limits(roofs, each), 280 if single else 400)
    named = choose_named_launches(frame, launches, each, roofs)
    groups = []
    for launch, points in zip(launches, each, strict=True):
        groups.append(draw_tied_points(frame, launch, points, single, launch[0] in named))
    if not any(groups):
        why = (
            "; ".join(numbers.count_reasons_for_no_point(rows))
            or "its counters do not give a position"
        )
        return write_element("p", escape_html(f"No point: {why}."), class_="faint")
    wide, high = log10(frame.right / frame.left), log10(frame.top / frame.bottom)
    angle = -degrees(atan2(frame.height / high, WIDTHS[single] / wide))
    tilt = f"rotate({angle:.1f}) translate(8 -3)"
    lines, names = draw_roofs(frame, roofs, tilt)
    parts = [*draw_axes(frame), *lines, *groups, *names]
    decades = {"data_across": wide, "data_up": high}
    return write_svg(frame.height, "Roofline", parts, role="group", class_="roofline", **decades)


def draw_axes(frame: _Frame) -> Iterator[str]:
    middle = {"class_": "tick", "text_anchor": "middle"}
    for tick in numbers.list_log_ticks(frame.left, frame.right):
        x = frame.place_intensity(tick)
        yield write_element("line", class_="rule", x1=x, x2=x, y1=0, y2=frame.height)
        yield write_svg_text(f"{tick:,g}", **middle, x=x, y=frame.height + 16)
    for tick in numbers.list_log_ticks(frame.bottom, frame.top):
        y = frame.place_rate(tick)
        yield write_element("line", class_="rule", x1=0, x2="100%", y1=y, y2=y)
        yield write_svg_text(
            numbers.format_rate_tick(tick), class_="tick", dx=-6, y=y + 4, text_anchor="end"
        )
    turned = f"translate(-46 {frame.height / 2}) rotate(-90)"
    yield write_svg_text(numbers.AXES[0], **middle, x="50%", y=frame.height + 34)
    yield write_svg_text(numbers.AXES[1], **middle, transform=turned)


def choose_named_launches(
    frame: _Frame,
    launches: Sequence[Numbered],
    each: Sequence[Sequence[model.Point]],
    roofs: Sequence[numbers.Roof],
) -> set[int]:
    """Return the numbers of the launches whose names fit beside their points, the first ones first."""
    taken: list[tuple[float, float, float, float]] = []
    for roof in roofs:  # a flat one has its name at the right
        if not roof.is_slope:
            high = frame.place_rate(roof.high)
            taken.append((WIDE - 8 * len(roof.text), WIDE, high - 16, high + 14))
    for points in each:
        for x, y, _ in numbers.place_points_in_frame(points, frame.left, frame.right):
            across, high = float(frame.place_intensity(x)[:-1]) / 100 * WIDE, frame.place_rate(y)
            taken.append((across - 7, across + 7, high - 7, high + 7))
    named: set[int] = set()
    for (number, label, _), points in zip(launches, each, strict=True):
        placed = numbers.place_points_in_frame(points, frame.left, frame.right)
        if not placed or len(named) == NAMED:
            continue
        x, y, _ = placed[-1]
        across, high = float(frame.place_intensity(x)[:-1]), frame.place_rate(y)
        left, right = name_ends(across, WIDE, 8 * len(label))
        box = (left, right, high - 22, high - 8)
        is_free = all(
            right < a or b < left or box[3] < top or bottom < box[2] for a, b, top, bottom in taken
        )
        if is_free:
            named.add(number)
            taken.append(box)
    return named


def name_ends(across: float, wide: float, length: float) -> tuple[float, float]:
    """Return where the name of a point begins and ends; `across`: where the point is, in per cent."""
    x = across / 100 * wide
    if across > NEAR_EDGE:
        return x - 10 - length, x - 10
    return x + 10, x + 10 + length


def draw_roofs(
    frame: _Frame, roofs: Sequence[numbers.Roof], tilt: str
) -> tuple[list[Markup], list[Markup]]:
    """Return the lines and their names, which stand above the points."""
    lines, names = [], []
    written = -inf
    for roof, begin, end in numbers.iterate_roof_lines(roofs, frame.left, frame.right):
        y, last = (
            frame.place_rate(roof.high * (x if roof.is_slope else 1.0)) for x in (begin, end)
        )
        if isfinite(roof.clock):
            clock = f" at {figures.quantity(roof.clock, 'Hz')}"
        else:
            clock = ""
        if roof.device:
            by = " (by the device attributes)"
        else:
            by = ""
        line = write_element(
            "line", x1=frame.place_intensity(begin), x2=frame.place_intensity(end), y1=y, y2=last
        )
        tip = write_tooltip(f"roof: {roof.text}{clock}{by}")
        lines.append(write_element("g", tip, line, class_="roof"))
        if roof.is_slope:
            slope = {"class_": "faint slope", "transform": tilt}
            names.append(write_svg_text(roof.text, x=0, y=y - 3, **slope))
            continue
        at = {"x": "100%", "dx": -2, "y": y + (12 if y - written < APART else -3)}
        names.append(write_svg_text(roof.text, class_="faint", text_anchor="end", **at))
        written = y
    return lines, names


def draw_tied_points(
    frame: _Frame, launch: Numbered, points: Sequence[model.Point], single: bool, named: bool
) -> str:
    number, label, run = launch
    placed = numbers.place_points_in_frame(points, frame.left, frame.right)
    at = [(frame.place_intensity(x), frame.place_rate(y), point) for x, y, point in placed]
    if not at:
        return ""
    parts = []
    for a, b in pairwise(at):
        parts.append(write_element("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1]))
    highest = min(y for _, y, _ in at)
    for turn, (x, y, point) in enumerate(at):
        said = write_tooltip(*filter(None, list_tooltip_facts(label, point)))
        mark = write_element("use", href=f"#m-{point.level}", x=x, y=y)
        if point.note:
            look = "point hollow"
        else:
            look = "point"
        # Not by the tab key: the table's rows lead to the same places, without 4 stops a launch.
        parts.append(
            write_element("a", said, mark, class_=look, href=f"#launch-{number}", tabindex=-1)
        )
        if single:  # neighbours are often closer than a name is wide: in turns below and above
            above = turn % 2 or (point.level == "workload" and y == highest)
            name = {"x": x, "y": y + (-9 if above else 19), "text_anchor": "middle"}
            parts.append(write_svg_text(numbers.WORDS[point.level], **name))
    if not single:
        x, y, _ = at[-1]
        if float(x[:-1]) > NEAR_EDGE:
            side = {"dx": -10, "text_anchor": "end"}
        else:
            side = {"dx": 10}
        look = "name always" if named else "name"
        parts.append(write_svg_text(label, class_=look, x=x, y=y - 8, **side))
    return write_element("g", *parts, class_=run.diagnosis.bound, data_launch=number)


def list_tooltip_facts(label: str, point: model.Point) -> Iterator[str]:
    """Yield what a point says under the pointer: "name: text" or nothing."""
    if point.family:
        family = numbers.spell_unit(point.family)
    else:
        family = ""
    rate = figures.quantity(point.rate, numbers.find_rate_unit(point.family))
    yield f"launch: {label}"
    yield f"bytes of: {numbers.WORDS[point.level]}"
    yield f"rate: {rate if point.intensity > 0 else 'no arithmetic'} {family}".rstrip()
    yield f"intensity: {figures.figures(point.intensity)} op/byte"
    yield f"moved: {figures.quantity(point.moved, 'byte/s')}"
    known = isfinite(point.share) and point.roof
    yield f"roof: {numbers.say_share_of_roof(point) if known else 'not known'}"
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


def draw_ladder(ladder: Ladder) -> Markup:
    """Return every variant that was timed, in the ladder's order, then the references."""
    steps = [(step, step.time) for step in ladder.steps if step.time]
    references = find_reference_times(ladder.steps)
    times = [*(time for _, time in steps), *references.values()]
    if not times:
        return Markup("")
    ends = list(chain.from_iterable(map(find_interval_ends, times)))
    place = make_log_scale(min(ends), max(ends))
    rows = []
    for step, time in steps:
        if step.change:
            change = step.change.time
        else:
            change = None
        against: str | None
        if change:
            against = f"{format_measured_speedup(change)} {change.answer} than {step.parent}"
        else:
            against = step.note
        kind = "waiting"
        if change and change.answer in ("faster", "slower"):
            kind = change.answer
        said = " · ".join(filter(None, (format_median(time), format_measured_speedup(change))))
        more = ", ".join(filter(None, (against, step.bound)))
        rows.append(draw_ladder_row(step.variant, time, kind, more, said, place))
    for name, time in references.items():
        rows.append(
            draw_ladder_row(name, time, "reference", "a library call", format_median(time), place)
        )
    label = f"Case {ladder.case}: time per call, warm L2, logarithmic"
    return write_element("div", *rows, class_="rungs", role="group", aria_label=label)


def draw_ladder_row(
    name: str, time: Interval, kind: str, more: str, said: str, place: Place
) -> Markup:
    x, *ends = (format_position(place(value)) for value in (time.median, *find_interval_ends(time)))
    drawn = (
        write_tooltip(", ".join(filter(None, (name, format_median(time), more)))),
        write_element("line", x1=ends[0], x2=ends[1], y1=_RUNG_HIGH / 2, y2=_RUNG_HIGH / 2),
        write_element("circle", cx=x, cy=_RUNG_HIGH / 2, r=5),
    )
    svg = write_svg(_RUNG_HIGH, name, drawn, class_=kind)
    return write_element("span", escape_html(name)) + svg + write_element("span", escape_html(said))


def find_interval_ends(time: Interval) -> tuple[float, float]:
    """Return the 95 % interval; the median twice where there is none."""
    known = isfinite(time.low) and isfinite(time.high)
    if known:
        return (time.low, time.high)
    return (time.median, time.median)


def draw_histories(
    points: Mapping[str, Sequence[HistoryPoint]],
) -> tuple[dict[str, Markup], list[tuple[str, str]]]:
    """Return a picture of each subject that was timed more than once, and (look, machine) of all."""
    machines = dict.fromkeys(p.machine for p in chain.from_iterable(points.values()))
    looks = {name: f"m-{i % _MACHINES}" for i, name in enumerate(machines)}
    charts = {}
    for subject, some in points.items():
        if len(some) > 1:
            label, drawn = f"{subject} over its runs", draw_history(some, looks)
            charts[subject] = write_svg(_HISTORY_HIGH, label, drawn, class_="history")
    return charts, [(look, name) for name, look in looks.items()]


def draw_history(points: Sequence[HistoryPoint], looks: dict[str, str]) -> Iterator[str]:
    low, high = min(p.low for p in points), max(p.high for p in points)
    place, wide = make_log_scale(low, high), max(1, len(points) - 1)

    def place_time(time: float) -> float:
        return _HISTORY_HIGH - _EDGE - (_HISTORY_HIGH - 2 * _EDGE) * place(time)

    yield write_svg_text(figures.seconds(high), dx=-12, y=_EDGE + 4, text_anchor="end")
    yield write_svg_text(
        figures.seconds(low), dx=-12, y=_HISTORY_HIGH - _EDGE + 4, text_anchor="end"
    )
    for before, point in pairwise(points):
        if before.machine == point.machine:
            x0, x1 = format_position(before.order / wide), format_position(point.order / wide)
            y0, y1 = place_time(before.median), place_time(point.median)
            flat = write_element("line", x1=x0, x2=x1, y1=y0, y2=y0)
            upright = write_element("line", x1=x1, x2=x1, y1=y0, y2=y1)
            yield write_element("g", flat, upright, class_=looks[point.machine])
    for point in points:
        x, y = format_position(point.order / wide), place_time(point.median)
        whole = write_element(
            "line",
            class_="interval",
            x1=x,
            x2=x,
            y1=place_time(point.low),
            y2=place_time(point.high),
        )
        title = write_tooltip(f"{point.told}, {figures.seconds(point.median)}")
        dot = write_element("circle", title, class_="" if point.real else "hollow", cx=x, cy=y, r=5)
        yield write_element("g", whole, dot, class_=looks[point.machine])
        if point.real:
            yield write_svg_text(point.change, x=x, y=y - 10, text_anchor="middle")
