"""Judged launches  ->  the roofline of each device as plain data: roofs, points, the frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any

from profkit.diagnosis.launches import Judged
from profkit.model import roofline as model
from profkit.reports import figures
from profkit.reports.figures import share
from profkit.show.numbers import (
    WORDS,
    Roof,
    Row,
    axis_limits,
    ceilings_of,
    lack_text,
    si,
    unit,
    visible_points,
    word,
    x_of,
    y_of,
)
from profkit.show.text.words import device_of


def row_of(run: Judged) -> Row:
    """A launch as the roofline model reads it: a row of the frame."""
    return {**run.values, "cc": run.cc, "status": run.status}


def by_device(launches: Sequence[tuple[int, str, Judged]]) -> list[dict[str, Any]]:
    """One roofline per device: ceilings of several devices do not belong in one picture."""
    devices: dict[str, list[tuple[int, str, Judged]]] = {}
    for launch in launches:
        devices.setdefault(device_of(launch[2]), []).append(launch)
    return [{"device": name, **roofline_data(some)} for name, some in devices.items()]


def roofline_data(launches: Sequence[tuple[int, str, Judged]]) -> dict[str, Any]:
    """Roofs, points and frame of launches on one device.

    Args:
        launches: Number on the page, label and launch.

    Returns:
        frame (left, right, bottom, top); by columns roofs, words, points; what to collect for
        those without any.
    """
    rows = [row_of(run) for _, _, run in launches]
    each = [model.points(row) for row in rows]
    roofs = ceilings_of(rows, [p for points in each for p in points])
    left, right, bottom, top = axis_limits(roofs, each)
    points = [
        _point(number, label, run, p, left, right)
        for (number, label, run), own in zip(launches, each, strict=True)
        for p in visible_points(own, left, right)
    ]
    unplaced = [row for row, own in zip(rows, each, strict=True) if not own]
    missing = chain.from_iterable(map(model.missing, unplaced))
    return {
        "frame": [rounded(edge) for edge in (left, right, bottom, top)],
        "roofs": by_columns([end for roof in roofs for end in _roof(roof, roofs, left, right)]),
        "words": by_columns([_words(roof, left, right, bottom) for roof in roofs]),
        "points": by_columns(points),
        "lacking": list(dict.fromkeys(map(lack_text, missing))),
    }


def _roof(roof: Roof, every: Sequence[Roof], left: float, right: float) -> list[dict[str, Any]]:
    """A ceiling's two ends: diagonals and flats end where they meet the highest of the others."""
    slopes = [r.high for r in every if r.name in model.LEVELS]
    peaks = [r.high for r in every if r.name not in model.LEVELS]
    slope = roof.name in model.LEVELS
    if slope:
        ends = [left, min(max(peaks) / roof.high, right) if peaks else right]
    else:
        ends = [max(roof.high / max(slopes), left) if slopes else left, right]
    value = f"{roof.text} at {si(roof.clock, 'Hz')}" if isfinite(roof.clock) else roof.text
    by = " (by the device attributes)" if roof.device else ""
    return [
        {"roof": roof.name, "x": x, "y": x * roof.high if slope else roof.high, "about": value + by}
        for x in ends
    ]


def _words(roof: Roof, left: float, right: float, bottom: float) -> dict[str, Any]:
    """What is written on a ceiling, and where it begins (a diagonal) or ends (a flat)."""
    slope = roof.name in model.LEVELS
    x = max(left, bottom / roof.high) if slope else right
    return {"slope": slope, "x": x, "y": x * roof.high if slope else roof.high, "text": roof.text}


def _point(
    number: int, label: str, run: Judged, point: model.Point, left: float, right: float
) -> dict[str, Any]:
    known = isfinite(point.share) and bool(point.roof)
    flat = point.intensity <= 0
    rate = "no arithmetic" if flat else si(point.rate, unit(point.family), "T")
    return {
        "launch": number,
        "label": label,
        "level": WORDS[point.level],
        "bound": run.diagnosis.bound,
        "x": x_of(point, left, right),
        "y": y_of(point, left),
        "hollow": bool(point.note),
        "intensity": figures.figures(point.intensity) + " op/byte",
        "rate": f"{rate} {word(point.family)}" if point.family else rate,
        "moved": si(point.moved, "B/s", "T"),
        "of": f"{share(point.share)} of {word(point.roof)}" if known else "not known",
        "note": point.note
        + (" above its roof: an error of the measurement" if point.above else ""),
    }


PIXEL, VALUE = 6, 9  # digits of what is drawn, and of what is compared: all 17 are half of a page


def by_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows with the same keys, to be drawn: each key said once."""
    keys = list(rows[0]) if rows else []
    return {"keys": keys, "rows": [[rounded(row[key]) for key in keys] for row in rows]}


def rounded(value: Any, digits: int = PIXEL) -> Any:
    """A number in so many digits; anything else as it is."""
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
