"""Parts of a picture  ->  SVG for a page, whose policy allows no style of an element's own.

Looks are classes. Places across are shares of the width, so that words keep their size on a phone;
places down are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, starmap
from math import atan2, degrees, inf, isfinite, log, log10
from typing import TYPE_CHECKING

from markupsafe import Markup

from profkit.diagnosis.launches import JudgedLaunch
from profkit.evidence.ladder import Ladder, LadderStep
from profkit.evidence.samples import Interval
from profkit.model import roofline as model
from profkit.reports import figures
from profkit.show import numbers
from profkit.show.numbers import HistoryPoint, get_latest_reference_times
from profkit.show.text.escape import escape_html
from profkit.show.text.words import format_measured_speedup, format_median, name_device

if TYPE_CHECKING:
    from profkit.units import (
        GpuName,
        LookName,
        LowAndHigh,
        Pixels,
        RunLabel,
        Seconds,
        Share,
        TextOrEmpty,
    )


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


Corner = tuple[object, float]  # across, as a share or 0; down, in pixels


def draw_line(begin: Corner, end: Corner, **attributes: object) -> Markup:
    """Return a line; its ends are places across, as a picture has them, and pixels down."""
    (x1, y1), (x2, y2) = begin, end
    return write_element("line", **attributes, x1=x1, x2=x2, y1=y1, y2=y2)


def format_position(share: Share) -> str:
    return f"{round(100 * share, 3):g}%"


def write_svg(height: int, label: str, parts: Iterable[str], **attributes: object) -> Markup:
    """Return a picture as wide as its place; one that holds links needs the role "group"."""
    named = {"role": "img", "aria_label": label, "width": "100%", "height": height, **attributes}
    return write_element("svg", *parts, **named)


def make_log_position_function(low: float, high: float) -> Callable[[float], Share]:
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


def draw_strip(bars: Iterable[Bar], label: str, *, are_bars_named_in_label: bool = False) -> Markup:
    """Return bars side by side in one row, each named in its label if `are_bars_named_in_label`."""
    bars = list(bars)
    if are_bars_named_in_label:
        label += f": {'; '.join(bar.about for bar in bars)}"
    box = {"viewBox": f"0 0 1000 {HIGH}", "preserveAspectRatio": "none"}
    return write_svg(HIGH, label, map(draw_bar, bars), role="group", **box)


def draw_bar(bar: Bar) -> Markup:
    """Return a bar as a link to its element, or as a group; hatched as far as it could be saved."""
    wide = bar.end - bar.begin
    look = " ".join(("fill", bar.look, *bar.marks))
    if wide < THIN:
        look += " thin"
    at = {"x": 1000 * bar.begin, "y": 0, "width": 1000 * wide, "height": HIGH}
    rects = write_element("rect", class_=look, **at)
    if bar.saved > 0:
        at["width"] = 1000 * bar.saved
        rects += write_element("rect", class_="saved", **at, fill="url(#hatch)")
    tip = write_tooltip(bar.about)
    if not bar.to:
        return write_element("g", tip, rects)
    link: dict[str, object] = {"href": f"#{bar.to}"}
    if bar.marks:
        # Not by the tab key: a table's rows lead to the same places, without a stop a bar.
        link["tabindex"] = -1
    return write_element("a", tip, rects, **link)


NumberLabelLaunch = tuple[int, str, JudgedLaunch]  # number on the page, label, launch
APART = 13  # pixels between the words of two flats
WIDE = 1200  # of the picture of all launches
NAMED = 12  # launches whose names stand in it
NEAR_EDGE = 70  # per cent of the width, from which on a name is left of its point
WIDTHS = {True: 560, False: WIDE}  # for the angle of words until the script knows the width


def make_roofline_row(run: JudgedLaunch) -> numbers.Row:
    return {**run.values, "cc": run.cc, "status": run.status}


def draw_roofline_of_each_device(launches: Sequence[NumberLabelLaunch]) -> dict[GpuName, Markup]:
    """Return one roofline per device: ceilings of several do not belong in one picture."""
    devices: dict[str, list[NumberLabelLaunch]] = {}
    for launch in launches:
        devices.setdefault(name_device(launch[2]), []).append(launch)
    return {name: draw_roofline(some) for name, some in devices.items()}


@dataclass(frozen=True)
class _RooflineFrame:
    left: float
    right: float
    bottom: float
    top: float
    height: int

    def place_intensity(self, intensity: float) -> str:
        return format_position(make_log_position_function(self.left, self.right)(intensity))

    def place_rate(self, rate: float) -> Pixels:
        return self.height * (1 - make_log_position_function(self.bottom, self.top)(rate))

    def place_points(
        self, points: Sequence[model.RooflinePoint]
    ) -> list[tuple[str, Pixels, model.RooflinePoint]]:
        """Return the points that are drawn, from the left: across as a share, down in pixels."""
        placed = []
        for intensity, rate, point in numbers.place_points_in_frame(points, self.left, self.right):
            placed.append((self.place_intensity(intensity), self.place_rate(rate), point))
        return placed

    def count_decades(self) -> tuple[float, float]:
        """Return how many powers of ten the axes hold, across and up."""
        return log10(self.right / self.left), log10(self.top / self.bottom)

    def write_rotation(self, picture_width: int) -> str:
        """Return the transform of words along a diagonal in a picture so many pixels wide."""
        across, up = self.count_decades()
        angle = -degrees(atan2(self.height / up, picture_width / across))
        return f"rotate({angle:.1f}) translate(8 -3)"


def draw_roofline(
    launches: Sequence[NumberLabelLaunch], *, is_picture_of_one_launch: bool = False
) -> Markup:
    """Return ceilings and points of launches on one device; without a point, why there is none.

    With `is_picture_of_one_launch` the levels are named at the points.
    """
    rows = [make_roofline_row(run) for _, _, run in launches]
    each = [model.list_roofline_points(row) for row in rows]
    if not any(each):
        reasons = "; ".join(numbers.count_reasons_for_no_point(rows))
        why = reasons or "its counters do not give a position"
        return write_element("p", escape_html(f"No point: {why}."), class_="faint")
    roofs = numbers.choose_ceiling_ranges_to_draw(rows, list(chain.from_iterable(each)))
    frame = _RooflineFrame(
        *numbers.compute_axis_limits(roofs, each), 280 if is_picture_of_one_launch else 400
    )
    named = choose_named_launches(frame, launches, each, roofs)
    groups = []
    for launch, points in zip(launches, each, strict=True):
        groups.append(
            draw_connected_points(
                frame, launch, points, is_picture_of_one_launch, launch[0] in named
            )
        )
    lines, names = draw_roofs(frame, roofs, frame.write_rotation(WIDTHS[is_picture_of_one_launch]))
    across, up = frame.count_decades()
    parts = [*draw_axes(frame), *lines, *groups, *names]
    looks = {"class_": "roofline", "data_across": across, "data_up": up}
    return write_svg(frame.height, "Roofline", parts, role="group", **looks)


def draw_axes(frame: _RooflineFrame) -> Iterator[str]:
    """Yield the grid with its numbers, and the titles of the axes."""
    middle = {"class_": "tick", "text_anchor": "middle"}
    for tick in numbers.list_log_ticks(frame.left, frame.right):
        x = frame.place_intensity(tick)
        yield draw_line((x, 0), (x, frame.height), class_="rule")
        yield write_svg_text(f"{tick:,g}", **middle, x=x, y=frame.height + 16)
    for tick in numbers.list_log_ticks(frame.bottom, frame.top):
        y = frame.place_rate(tick)
        text = numbers.format_rate_tick(tick)
        yield draw_line((0, y), ("100%", y), class_="rule")
        yield write_svg_text(text, class_="tick", dx=-6, y=y + 4, text_anchor="end")
    turned = f"translate(-46 {frame.height / 2}) rotate(-90)"
    yield write_svg_text(numbers.AXES[0], **middle, x="50%", y=frame.height + 34)
    yield write_svg_text(numbers.AXES[1], **middle, transform=turned)


def choose_named_launches(
    frame: _RooflineFrame,
    launches: Sequence[NumberLabelLaunch],
    points_by_launch: Sequence[Sequence[model.RooflinePoint]],
    roofs: Sequence[numbers.Roof],
) -> set[int]:
    """Return the numbers of the launches whose names fit beside their points, the first ones first."""
    places = [_list_point_pixels(frame, points) for points in points_by_launch]
    taken = _list_roof_name_boxes(frame, roofs)
    for x, y in chain.from_iterable(places):
        taken.append(_Box(x - 7, x + 7, y - 7, y + 7))
    named: set[int] = set()
    for (number, label, _), points in zip(launches, places, strict=True):
        if not points or len(named) == NAMED:
            continue
        x, y = points[-1]
        box = _Box(*place_point_name(x, WIDE, 8 * len(label)), y - 22, y - 8)
        if not any(map(box.overlaps, taken)):
            named.add(number)
            taken.append(box)
    return named


def _list_roof_name_boxes(frame: _RooflineFrame, roofs: Iterable[numbers.Roof]) -> list[_Box]:
    """Return where the names of flat roofs are: at the right, over or under their line."""
    boxes = []
    for roof in roofs:
        if not roof.is_slope:
            y = frame.place_rate(roof.high)
            boxes.append(_Box(WIDE - 8 * len(roof.text), WIDE, y - 16, y + 14))
    return boxes


def _list_point_pixels(
    frame: _RooflineFrame, points: Sequence[model.RooflinePoint]
) -> list[tuple[Pixels, Pixels]]:
    """Return where points are in the picture of all launches, in pixels from its left and top."""
    return [(float(x[:-1]) / 100 * WIDE, y) for x, y, _ in frame.place_points(points)]


@dataclass(frozen=True)
class _Box:
    """A part of the picture of all launches, in pixels."""

    left: float
    right: float
    top: float
    bottom: float

    def overlaps(self, other: _Box) -> bool:
        apart = self.right < other.left or other.right < self.left
        return not (apart or self.bottom < other.top or other.bottom < self.top)


def place_point_name(
    point_x: Pixels, picture_width: Pixels, name_width: Pixels
) -> tuple[Pixels, Pixels]:
    """Return where the name of a point at `point_x` begins and ends, in pixels of a picture so wide."""
    if point_x > NEAR_EDGE / 100 * picture_width:
        return point_x - 10 - name_width, point_x - 10
    return point_x + 10, point_x + 10 + name_width


def draw_roofs(
    frame: _RooflineFrame, roofs: Sequence[numbers.Roof], tilt: str
) -> tuple[list[Markup], list[Markup]]:
    """Return the lines and their names, which stand above the points."""
    lines = []
    names = []
    written = -inf  # where the name of the flat before is
    for roof, begin, end in numbers.iterate_roof_lines(roofs, frame.left, frame.right):
        first = last = roof.high
        if roof.is_slope:
            first = roof.high * begin
            last = roof.high * end
        y = frame.place_rate(first)
        line = draw_line(
            (frame.place_intensity(begin), y), (frame.place_intensity(end), frame.place_rate(last))
        )
        lines.append(write_element("g", write_tooltip(_describe_roof(roof)), line, class_="roof"))
        if roof.is_slope:
            name = write_svg_text(roof.text, x=0, y=y - 3, class_="faint slope", transform=tilt)
            names.append(name)
            continue
        below = y - 3
        if y - written < APART:
            below = y + 12
        at = {"x": "100%", "dx": -2, "y": below}
        names.append(write_svg_text(roof.text, class_="faint", text_anchor="end", **at))
        written = y
    return lines, names


def _describe_roof(roof: numbers.Roof) -> str:
    """Return a roof under the pointer: its rate, the clock that it is at, and who says so."""
    text = f"roof: {roof.text}"
    if isfinite(roof.clock):
        text += f" at {figures.format_value_with_unit(roof.clock, 'Hz')}"
    if roof.device:
        text += " (by the device attributes)"
    return text


def draw_connected_points(
    frame: _RooflineFrame,
    launch: NumberLabelLaunch,
    points: Sequence[model.RooflinePoint],
    is_picture_of_one_launch: bool,
    is_name_always_seen: bool,
) -> TextOrEmpty:
    """Return a launch's points, tied by lines; "" where none is in the frame.

    With `is_picture_of_one_launch` each level has its word; else the launch has its label, seen
    without the pointer with `is_name_always_seen`.
    """
    number, label, run = launch
    placed = frame.place_points(points)
    if not placed:
        return ""
    parts = []
    for (x0, y0, _), (x1, y1, _) in pairwise(placed):
        parts.append(draw_line((x0, y0), (x1, y1)))
    highest = min(y for _, y, _ in placed)
    for turn, (x, y, point) in enumerate(placed):
        parts.append(_draw_point(number, label, x, y, point))
        if (
            is_picture_of_one_launch
        ):  # neighbours are often closer than a name is wide: in turns below and above
            is_above = turn % 2 or (point.level == "workload" and y == highest)
            word_at = y - 9 if is_above else y + 19
            word = numbers.WORDS[point.level]
            parts.append(write_svg_text(word, x=x, y=word_at, text_anchor="middle"))
    if not is_picture_of_one_launch:
        parts.append(_write_label(label, *placed[-1][:2], is_name_always_seen))
    return write_element("g", *parts, class_=run.diagnosis.bound, data_launch=number)


def _write_label(label: str, x: str, y: float, is_name_always_seen: bool) -> Markup:
    """Return a launch's label right of its last point; left of it near the right edge."""
    side: dict[str, object] = {"dx": 10}
    if float(x[:-1]) > NEAR_EDGE:
        side = {"dx": -10, "text_anchor": "end"}
    look = "name always" if is_name_always_seen else "name"
    return write_svg_text(label, class_=look, x=x, y=y - 8, **side)


def _draw_point(
    launch_number: int, label: str, x: str, y: float, point: model.RooflinePoint
) -> Markup:
    """Return a point as a link to its launch; hollow where its position says nothing."""
    tip = write_tooltip(*filter(None, list_tooltip_facts(label, point)))
    mark = write_element("use", href=f"#m-{point.level}", x=x, y=y)
    look = "point"
    if point.note:
        look = "point hollow"
    # Not by the tab key: the table's rows lead to the same places, without 4 stops a launch.
    return write_element("a", tip, mark, class_=look, href=f"#launch-{launch_number}", tabindex=-1)


def list_tooltip_facts(label: str, point: model.RooflinePoint) -> Iterator[str]:
    """Yield what a point says under the pointer: "name: text"."""
    family = ""
    if point.family:
        family = numbers.make_display_name(point.family)
    rate = "no arithmetic"
    if point.intensity > 0:
        rate = figures.format_value_with_unit(point.rate, numbers.find_rate_unit(point.family))
    yield f"launch: {label}"
    yield f"bytes of: {numbers.WORDS[point.level]}"
    yield f"rate: {rate} {family}".rstrip()
    yield f"intensity: {figures.format_three_figures(point.intensity)} op/byte"
    yield f"moved: {figures.format_value_with_unit(point.moved, 'byte/s')}"
    if isfinite(point.share) and point.roof:
        yield f"roof: {numbers.say_share_of_roof(point)}"
    else:
        yield "roof: not known"
    if point.is_above_roof:
        yield f"note: {point.note} above its roof: a measurement error"
    elif point.note:
        yield f"note: {point.note}"


_RUNG_HIGH, _HISTORY_HIGH, _EDGE = 22, 120, 24  # pixels: a ladder's row, a history, its free ends
_MACHINES = 6  # colours
PlaceTime = Callable[[float], float]  # a time -> where it is across, 0 to 1


def draw_ladder(ladder: Ladder) -> Markup:
    """Return every variant that was timed, in the ladder's order, then the references."""
    references = get_latest_reference_times(ladder.steps)
    times = [*(step.time for step in ladder.steps if step.time), *references.values()]
    if not times:
        return Markup("")
    ends = list(chain.from_iterable(map(get_interval_ends_or_median, times)))
    place = make_log_position_function(min(ends), max(ends))
    rows = []
    for step in ladder.steps:
        if step.time:
            rows.append(_draw_step_row(step, step.time, place))
    for name, time in references.items():
        texts = "a library call", format_median(time)
        rows.append(draw_ladder_row(name, time, "reference", *texts, place))
    label = f"Case {ladder.case}: time per call, warm L2, logarithmic"
    return write_element("div", *rows, class_="rungs", role="group", aria_label=label)


def _draw_step_row(step: LadderStep, time: Interval, place: PlaceTime) -> Markup:
    """Return the row of a variant: its time, and how it compares with its parent."""
    change = None
    against: str | None = step.note
    kind = "waiting"
    if step.change and step.change.time:
        change = step.change.time
        against = f"{format_measured_speedup(change)} {change.answer} than {step.parent}"
        if change.answer in ("faster", "slower"):
            kind = change.answer
    said = " · ".join(filter(None, (format_median(time), format_measured_speedup(change))))
    more = ", ".join(filter(None, (against, step.bound)))
    return draw_ladder_row(step.variant, time, kind, more, said, place)


def draw_ladder_row(
    name: str,
    time: Interval,
    css_class: str,
    tooltip_text: str,
    figures_text: str,
    place: PlaceTime,
) -> Markup:
    """Return a row of the ladder: a name, a dot with its interval, and a text.

    `tooltip_text`: what is said besides under the pointer; `place`: a time in s -> where it is, 0 to 1.
    """
    low, high = get_interval_ends_or_median(time)
    tip = ", ".join(filter(None, (name, format_median(time), tooltip_text)))
    middle = _RUNG_HIGH / 2
    drawn = (
        write_tooltip(tip),
        draw_line((format_position(place(low)), middle), (format_position(place(high)), middle)),
        write_element("circle", cx=format_position(place(time.median)), cy=middle, r=5),
    )
    svg = write_svg(_RUNG_HIGH, name, drawn, class_=css_class)
    return (
        write_element("span", escape_html(name))
        + svg
        + write_element("span", escape_html(figures_text))
    )


def get_interval_ends_or_median(time: Interval) -> LowAndHigh:
    """Return the 95 % interval; the median twice where there is none."""
    known = isfinite(time.low) and isfinite(time.high)
    if known:
        return (time.low, time.high)
    return (time.median, time.median)


def draw_histories(
    points: Mapping[str, Sequence[HistoryPoint]],
) -> tuple[dict[RunLabel, Markup], list[tuple[LookName, str]]]:
    """Return a picture of each subject that was timed more than once, and (look, machine) of all."""
    looks: dict[str, str] = {}  # by machine
    for point in chain.from_iterable(points.values()):
        looks.setdefault(point.machine, f"m-{len(looks) % _MACHINES}")
    charts = {}
    for subject, timed in points.items():
        if len(timed) > 1:
            drawn = draw_history(timed, looks)
            label = f"{subject} over its runs"
            charts[subject] = write_svg(_HISTORY_HIGH, label, drawn, class_="history")
    return charts, [(look, machine) for machine, look in looks.items()]


@dataclass(frozen=True)
class _HistoryScale:
    """Where runs and their times are in the picture of a history."""

    last: int  # the order of the last run
    place: PlaceTime

    def place_run(self, point: HistoryPoint) -> str:
        return format_position(point.order / self.last)

    def place_time(self, time: Seconds) -> Pixels:
        """Return pixels from the top; the longest time is there."""
        return _HISTORY_HIGH - _EDGE - (_HISTORY_HIGH - 2 * _EDGE) * self.place(time)


def draw_history(points: Sequence[HistoryPoint], looks: Mapping[str, str]) -> Iterator[str]:
    """Yield the runs of one subject, oldest first; a line ends where the machine changes.

    `looks`: the class of each machine.
    """
    low = min(p.low for p in points)
    high = max(p.high for p in points)
    scale = _HistoryScale(max(1, len(points) - 1), make_log_position_function(low, high))
    for time, y in ((high, _EDGE + 4), (low, _HISTORY_HIGH - _EDGE + 4)):
        yield write_svg_text(figures.format_seconds(time), dx=-12, y=y, text_anchor="end")
    for before, point in pairwise(points):
        if before.machine == point.machine:
            begin = scale.place_run(before), scale.place_time(before.median)
            corner = scale.place_run(point), begin[1]
            end = scale.place_run(point), scale.place_time(point.median)
            lines = draw_line(begin, corner), draw_line(corner, end)
            yield write_element("g", *lines, class_=looks[point.machine])
    for point in points:
        yield from _draw_run(point, scale, looks[point.machine])


def _draw_run(point: HistoryPoint, scale: _HistoryScale, look_of_machine: str) -> Iterator[str]:
    """Yield a run's interval and its median, filled and named where its change is real."""
    x = scale.place_run(point)
    y = scale.place_time(point.median)
    low = scale.place_time(point.low)
    high = scale.place_time(point.high)
    interval = draw_line((x, low), (x, high), class_="interval")
    tip = write_tooltip(f"{point.told}, {figures.format_seconds(point.median)}")
    dot = write_element("circle", tip, class_="" if point.real else "hollow", cx=x, cy=y, r=5)
    yield write_element("g", interval, dot, class_=look_of_machine)
    if point.real:
        yield write_svg_text(point.change, x=x, y=y - 10, text_anchor="middle")
