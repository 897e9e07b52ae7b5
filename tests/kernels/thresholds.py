"""What holds the numbers that decide a verdict? Each is moved until the verdict on a probe changes.

For every number of the diagnosis that decides bound or limiter: how far down and up it can go before
a probe of kernels/probes is judged wrong, and which one that is; how many are wrong when it is a
quarter smaller or larger. Then leave-one-out: every number is put in the middle of the range that the
other probes leave it, and the probe that was left out is judged with it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from types import ModuleType

from profkit.diagnosis import verdict
from profkit.diagnosis.rules import launch as shapes
from profkit.diagnosis.rules import waste
from profkit.model import launch as units
from profkit.model import resources
from profkit.model.launch import Launch
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import read_report_files
from tools import verdicts

MODULES: tuple[ModuleType, ...] = (resources, units, verdict, shapes, waste)
# Numbers of these files that decide no verdict: facts of the hardware, and those of gains and causes.
DECIDE_NO_VERDICT = {
    "resources.SCATTERED",
    "resources.PAIRED",
    "launch.SCHEDULERS",
    "waste.LINE",
    "waste.HOT_ADDRESS",
    "launch.HIDDEN",
    "launch.ROUNDS",
    "launch.ENDS",
    "launch.SINGLE",
    "launch.MOVES",
    "launch.GENERIC",
    "verdict.BUSY",
    "verdict.MARGIN",
    "verdict.HALVINGS",
    "verdict.WORTH_NAMING",
    "waste.WASTE",
    "waste.LOCAL",
    "waste.SHARED_ATOMIC",
    "waste.SEES",
}
# Ends of the range that follow from what the number is; the others can go to 0 and to 1, or to 8
# times the value.
ENDS = {
    "resources.QUEUED_LOAD_CYCLES": (500.0, 12000.0),  # from the latency of an unloaded DRAM on
    "resources.CROWDED_DRAM": (
        resources.DRAM.likely,
        resources.DRAM.sure,
    ),  # decides between the two
    "resources.ALONE": (1.0, 8.0),
    "launch.HEAVY": (1.0, 2.0),  # the heavy half over the average of both
    "verdict.MOSTLY": (0.5, 1.0),
    "verdict.WORTH": (1.0, 8.0),
    "launch.TAIL": (0.5, 1.0),  # more than one wave fills more than half of two
    "launch.LINE": (1.0, 8.0),  # a gain
    **{
        f"{name}.likely": (0.0, peak.sure)
        for name, peak in vars(resources).items()
        if isinstance(peak, resources.Peak)
    },
}
STEPS = (0.25, 0.5, 0.98)  # of the way to the end of the range: where verdicts are tried
PRECISION = 1 / 512  # of that way: how closely the turning point is found


@dataclass(frozen=True)
class Threshold:
    """A number that decides: where it is, what it is, how far it could go."""

    name: str
    value: float
    lowest: float
    highest: float
    put: Callable[[float], None]

    @contextmanager
    def at(self, value: float) -> Iterator[None]:
        """Judge with another value."""
        self.put(value)
        try:
            yield
        finally:
            self.put(self.value)


@dataclass(frozen=True)
class Range:
    """Where a threshold may be.

    Attributes:
        name: Of the threshold.
        value: It is here.
        low: Probe -> the value at and below which its verdict is wrong.
        high: Probe -> the value at and above which its verdict is wrong.
        smaller: Probes judged wrong at three quarters of the value.
        larger: Probes judged wrong at a quarter more.
    """

    name: str
    value: float
    low: Mapping[str, float]
    high: Mapping[str, float]
    smaller: int
    larger: int

    @property
    def lower(self) -> tuple[str, float] | None:
        """The probe that holds it from below, and where."""
        return max(self.low.items(), key=lambda item: item[1], default=None)

    @property
    def upper(self) -> tuple[str, float] | None:
        """The probe that holds it from above, and where."""
        return min(self.high.items(), key=lambda item: item[1], default=None)


def thresholds() -> list[Threshold]:
    """All of them: three of every kind of unit, and the named numbers of the files that decide."""
    found = [
        _threshold(f"{name}.{part}", getattr(peak, part), _of_peak(peak, part))
        for name, peak in vars(resources).items()
        if isinstance(peak, resources.Peak)
        for part in ("sure", "likely", "queued")
    ]
    for module in MODULES:
        source = inspect.getsource(module)
        for names in re.findall(
            r"^([A-Z_]+(?:, [A-Z_]+)*) = (?:Threshold\(\s*)?[0-9]", source, re.M
        ):
            for name in names.split(", "):
                full = f"{module.__name__.rsplit('.', 1)[1]}.{name}"
                value = getattr(module, name)  # with its reason, which is put back, too
                if full not in DECIDE_NO_VERDICT:
                    found.append(_threshold(full, value, _of_modules(name, value)))
    return found


def _threshold(name: str, value: float, put: Callable[[float], None]) -> Threshold:
    share = 1e-3 < value < 1  # below are seconds
    return Threshold(name, value, *ENDS.get(name, (0.0, 1.0 if share else 8 * value)), put)


def _of_peak(peak: resources.Peak, part: str) -> Callable[[float], None]:
    return lambda value: setattr(peak, part, value)


def _of_modules(name: str, value: float) -> Callable[[float], None]:
    """In every module that has it, imported ones too."""
    ours = [
        m for n, m in sys.modules.items() if n.startswith(("profkit.diagnosis", "profkit.model"))
    ]
    having = [m for m in ours if getattr(m, name, None) == value]

    def put(new: float) -> None:
        for module in having:
            setattr(module, name, new)

    return put


def find_no_border(*_asked: object) -> None:
    """Stand in for verdict._find_border: a mock is made 50,000 times here and took a third of all."""


class Probes:
    """The probes' launches, and whether the verdict on each is right."""

    def __init__(self) -> None:
        known, reports = (
            verdicts.truths(),
            read_report_files(sorted(verdicts.RECORDED.glob("probes-*.ncu-rep*"))),
        )
        times = json.loads((verdicts.RECORDED / "times.json").read_text("utf-8"))["times"]
        rows = {r["variant"]: r for r in reports.launches.to_dict("records") if r["case"] == "main"}
        keys = {n: known.header(p) for n, p in known.probes(verdicts.PROBES).items() if n in times}
        self.truth = {n: (k["bound"], sorted(k["limiter"].split("+"))) for n, k in keys.items()}
        self.values = {n: {**rows[n], **verdicts.declared(k)} for n, k in keys.items()}
        self.rows = {
            n: {k: float(v) for k, v in row.items() if k in CATALOGUE}
            for n, row in self.values.items()
        }
        self.launches = {n: Launch(row) for n, row in self.rows.items()}

    def right(self, name: str) -> bool:
        """Whether bound and limiter of a probe are right, as the thresholds are now.

        Not asked how near the next bound is, which is thirty verdicts more.
        """
        find_border = verdict._find_bound_across_border
        verdict._find_bound_across_border = find_no_border
        try:
            said = verdict.decide_bound(Launch(self.rows[name]))  # which has kept nothing yet
        finally:
            verdict._find_bound_across_border = find_border
        return (said.bound, sorted((said.limiter or "").split("+"))) == self.truth[name]

    def wrong(self) -> set[str]:
        """All that are judged wrong now."""
        return {name for name in self.launches if not self.right(name)}


def turning(threshold: Threshold, probes: Probes, end: float) -> dict[str, float]:
    """Probe -> where its verdict turns wrong on the way from the value to an end of the range."""
    way, before = end - threshold.value, 0.0
    turned: dict[str, tuple[float, float]] = {}  # shares of the way: still right, already wrong
    for step in STEPS:
        with threshold.at(threshold.value + step * way):
            for name in probes.wrong() - turned.keys():
                turned[name] = (before, step)
        before = step
    for name, ends in turned.items():
        right, wrong = ends
        while wrong - right > PRECISION:
            middle = (right + wrong) / 2
            with threshold.at(threshold.value + middle * way):
                right, wrong = (middle, wrong) if probes.right(name) else (right, middle)
        turned[name] = (right, wrong)
    return {name: threshold.value + wrong * way for name, (_, wrong) in turned.items()}


def ranges(probes: Probes) -> list[Range]:
    """How far each threshold can move, and what holds it there."""
    found = []
    for t in thresholds():
        counts = []
        for factor in (0.75, 1.25):
            with t.at(min(t.value * factor, t.highest)):
                counts.append(len(probes.wrong()))
        low, high = (turning(t, probes, end) for end in (t.lowest, t.highest))
        found.append(Range(t.name, t.value, low, high, *counts))
    return found


def _middle(low: float, high: float) -> float:
    """Of shares the mean, of factors and cycles the geometric one."""
    return (low + high) / 2 if high <= 1 or low <= 0 else sqrt(low * high)


def left_out(probes: Probes, found: list[Range]) -> dict[str, list[str]]:
    """Probe -> thresholds that, put amid what the others leave, judge it wrong; only such probes."""
    by, failed = {t.name: t for t in thresholds()}, {}
    for r in found:
        t = by[r.name]
        for name in {*r.low, *r.high}:
            low = max((v for n, v in r.low.items() if n != name), default=t.lowest)
            high = min((v for n, v in r.high.items() if n != name), default=t.highest)
            with t.at(_middle(low, high)):
                if not probes.right(name):
                    failed.setdefault(name, []).append(r.name)
    return failed
