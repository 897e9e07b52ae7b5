"""Launches, ladders, histories  ->  the numbers of their pictures, for plots and for pages.

No drawing library: a page is written with the base install.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import floor, isnan, log10, nan
from typing import TYPE_CHECKING, Any

from profkit.model import roofline as model
from profkit.model.launch import Missing
from profkit.reports.figures import figures
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.occupancy import METRICS as OCCUPANCY_METRICS
from profkit.reports.metrics.pipes import METRICS as PIPE_METRICS

if TYPE_CHECKING:
    from profkit.evidence.history.steps import HistoryStep
    from profkit.evidence.ladder import Rung

Row = Mapping[str, Any]

# Figures with units.

_SMALL, _LARGE = ("", "m", "µ", "n"), ("", "k", "M", "G", "T", "P")


def si(value: float, unit: str, top: str = "P") -> str:
    """Return three figures and a unit: 4.81e12, "B/s" -> "4.81 TB/s"; "?" when not known."""
    if isnan(value):
        return f"? {unit}"
    if value == 0:
        return f"0 {unit}"
    power = floor(log10(abs(value) * (1 + 5e-4)) / 3)
    power = min(max(power, 1 - len(_SMALL)), _LARGE.index(top))
    prefix = _LARGE[power] if power >= 0 else _SMALL[-power]
    return f"{three(value / 1000.0**power)} {prefix}{unit}"


def three(value: float) -> str:
    """Return three significant figures without commas: 0.0283, 4.81, 1070."""
    return "?" if isnan(value) else figures(value).replace(",", "")


def span(low: float, high: float, unit: str, top: str = "P") -> str:
    """Return a range with one unit, or one value when the ends differ by less than 2 %."""
    if not high > 1.02 * low:
        return si(high, unit, top)
    text = si(high, unit, top)
    number, _, rest = text.partition(" ")
    return f"{three(low * float(number) / high)}–{text}" if rest else text


# The roofline.

WORDS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "workload": "workload's own"}
_LEFT, _RIGHT = 1e-2, 1e5  # intensities beyond are no place where kernels are


@dataclass(frozen=True)
class Roof:
    """A ceiling over all launches: the clocks moved it between low and high."""

    name: str
    low: float
    high: float
    clock: float
    device: bool

    @property
    def text(self) -> str:
        per = "B/s" if self.name in model.LEVELS else unit(self.name)
        return f"{word(self.name)} {span(self.low, self.high, per, 'T')}"


def word(name: str) -> str:
    """Return a ceiling's name in a picture."""
    if name in WORDS:
        return WORDS[name]
    return " ".join("tensor" if w == "tensor" else w.upper() for w in name.split("_"))


def unit(family: str) -> str:
    return "op/s" if family.endswith("int8") else "FLOP/s"


def lack_text(lack: Missing) -> str:
    """Return why a launch has no point, and which section of ncu's has what it needs."""
    return f"{lack.why} (ncu --section {lack.section})" if lack.section else lack.why


def ceilings_of(rows: Sequence[Row], points: Sequence[model.Point]) -> list[Roof]:
    """Return the ceilings to draw: every level, FP32, and the precisions in which arithmetic ran."""
    used = {"fp32", *model.LEVELS, *(p.family for p in points)}
    every = list(chain.from_iterable(map(model.ceilings, rows)))
    roofs = []
    for name in (*model.LEVELS, *model.FAMILIES):
        named = [c for c in every if c.name == name and name in used]
        if named := [c for c in named if c.source == "report"] or named:
            values = [c.value for c in named]
            device = named[0].source != "report"
            roofs.append(Roof(name, min(values), max(values), max(c.clock for c in named), device))
    return roofs


def axis_limits(
    roofs: Sequence[Roof], launches: Sequence[Sequence[model.Point]]
) -> tuple[float, float, float, float]:
    """Return left, right, bottom and top of the frame that holds roofs and positions."""
    slopes = [r.high for r in roofs if r.name in model.LEVELS] or [1e12]
    peaks = [r.high for r in roofs if r.name not in model.LEVELS] or [10 * min(slopes)]
    # A launch is held by its positions; by its other points where it has none.
    positions = ([p for p in points if not p.note] or points for points in launches)
    xs = [p.intensity for p in chain.from_iterable(positions) if p.intensity > 0]
    xs += [peak / slope for peak, slope in product(peaks, (min(slopes), max(slopes)))]
    wide = max(5.0, (1e3 * min(xs) / max(xs)) ** 0.5)  # at least three decades
    left = max(min(xs) / wide, _LEFT)
    right = max(min(max(xs) * wide, _RIGHT), 10 * left)
    drawn = chain.from_iterable(visible_points(points, left, right) for points in launches)
    ys = [y for y in (y_of(p, left) for p in drawn) if y > 0] + [left * min(slopes)] + peaks
    return left, right, min(ys) / 3, max(ys) * 4


def visible_points(points: Sequence[model.Point], left: float, right: float) -> list[model.Point]:
    """Return the points in the frame, and at an edge one that is all there is beyond it."""
    inside = [p for p in points if left <= p.intensity <= right]
    before = [p for p in points if p.intensity < left and not p.note]
    best = max(before, key=lambda p: p.share, default=None)
    shown = inside + ([best] if best else [])
    return shown or sorted(points, key=lambda p: p.intensity)[:1]


def x_of(point: model.Point, left: float, right: float) -> float:
    """Return the intensity, or just inside of the edge that it lies beyond."""
    return min(max(point.intensity, left * 1.12), right / 1.12)


def y_of(point: model.Point, left: float) -> float:
    """Return the height; left of the frame it slides along its diagonal: the gap to the roof stays."""
    return point.rate if point.intensity >= left else point.moved * left * 1.12


# Pipes and occupancy.

PIPES = tuple(
    m.name.removesuffix("_busy")
    for m in PIPE_METRICS
    if m.name.endswith("_busy") and f"{m.name}_active" in CATALOGUE
)
_PIPE_WORDS = {"tensor": "tensor", "uniform": "uniform", "issue": "issue slots"}


def pipe_word(pipe: str) -> str:
    return _PIPE_WORDS.get(pipe, pipe.upper())


def shares(row: Mapping[str, float], pipe: str) -> tuple[float, float]:
    """Return elapsed and active share, NaN where not collected."""
    return row.get(f"{pipe}_busy", nan), row.get(f"{pipe}_busy_active", nan)


LIMITS = tuple(m.name for m in OCCUPANCY_METRICS if m.name.startswith("limit_"))
_STEPS = {"limit_registers": "registers_step", "limit_shared": "shared_step"}


def next_block(row: dict[str, float], blocks: dict[str, float], least: float) -> str:
    """Return what the deciding limiters have to give for one more block; a dash when one cannot.

    Shared memory without a step needs none: the driver only configured as much of it as the other
    limiters let it use.
    """
    deciding = [name for name in blocks if blocks[name] == least]
    steps = {name: row.get(_STEPS[name], nan) for name in deciding if name in _STEPS}
    words = []
    if (registers := steps.get("limit_registers", nan)) > 0:
        words.append(f"−{registers:.0f} registers")
    if (shared := steps.get("limit_shared", nan)) > 0:
        words.append(f"−{shared / 1024:.3g} KiB shared")
    return ", ".join(words) if words and len(steps) == len(deciding) else "–"


# Ladders and histories.

_ALIKE = 1.02  # references nearer than this share a line


def references_of(timed: Sequence[Rung]) -> dict[str, float]:
    """Return names -> median; those that are as good as one stand together."""
    times: dict[str, float] = {}
    for step in timed:
        times |= {name: time.before.median for name, time in step.references.items()}
    references: dict[str, float] = {}
    for name, time in sorted(times.items(), key=lambda pair: pair[1]):
        last = next(reversed(references), None)
        if last and time < _ALIKE * references[last]:
            references[f"{last}, {name}"] = references.pop(last)
        else:
            references[name] = time
    return references


REAL = ("faster", "slower")


@dataclass(frozen=True)
class HistoryPoint:
    """One run. Seconds."""

    order: int  # its place among the subject's runs, from 0
    # with a warm L2; low and high are its 95 % interval, equal to it where there is none
    median: float
    low: float
    high: float
    machine: str  # the GPU that it was measured on, told apart by uuid: "NVIDIA H200 2"
    answer: str  # what became of its time against the run before it
    commit: str  # the first letters of its commit; "" where that is not known
    made: str  # the day on which it was measured
    factor: str  # speed-up of a real change; "" otherwise

    @property
    def real(self) -> bool:
        """Whether its time changed, beyond noise, method and machine."""
        return self.answer in REAL

    @property
    def told(self) -> str:
        words = (self.made, self.commit, self.machine, self.answer, self.factor)
        return ", ".join(filter(None, words))


def history_points(steps: Sequence[HistoryStep]) -> dict[str, list[HistoryPoint]]:
    """Return subject -> its timed runs, oldest first."""
    machines: dict[str, str] = {}
    points: dict[str, list[HistoryPoint]] = {}
    for run, step in ((step.run, step) for step in steps):
        name, key = run.gpu or "unknown GPU", run.gpu_uuid or run.gpu or ""
        alike = sum(other.rpartition(" ")[0] == name for other in machines.values())
        machine = machines.setdefault(key, f"{name} {alike + 1}")
        if run.median is None:
            continue
        timed = points.setdefault(run.subject, [])
        point = HistoryPoint(
            len(timed),
            run.median,
            run.median if run.low is None else run.low,
            run.median if run.high is None else run.high,
            machine,
            step.answer,
            (run.commit or "")[:8],
            (run.made or "")[:10],
            f"{step.time.speedup.median:.3g}x" if step.time and step.answer in REAL else "",
        )
        timed.append(point)
    return points
