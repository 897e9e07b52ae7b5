"""The charts of the page as Vega-Lite  ->  profkit/show/page/web/charts.json, which pages carry.

    python tools/charts.py

Altair checks each chart against the schema, for a second of a processor; what it says is the same
each time, so a page takes it from the file. Data come when a chart is shown. Colours are CSS variables
of the page, so that light, dark and print need no second drawing. No expression here is ever made of a
report's text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt

FILE = Path(__file__).parents[1] / "profkit" / "show" / "page" / "web" / "charts.json"

Layers = alt.LayerChart | alt.FacetChart  # what alt.layer says that it returns
BOUNDS = ("memory", "compute", "latency", "launch", "balanced", "unknown")
LEVELS = {"DRAM": "circle", "L2": "square", "L1": "triangle-up", "workload's own": "diamond"}
_INK, _FAINT, _ROOF = "var(--ink)", "var(--faint)", "var(--roof)"
_LOG = alt.Scale(type="log", nice=False)
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {"labelColor": _INK, "titleColor": _INK, "gridColor": "var(--line)",
             "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12,
             "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 190},
    "legend": {"labelColor": _INK, "titleColor": _FAINT, "labelFontSize": 12, "orient": "top",
               "titleFontWeight": "normal", "symbolStrokeWidth": 1.5, "columnPadding": 14,
               "layout": {"top": {"direction": "horizontal", "margin": 28}}},
}  # fmt: skip


def specs() -> dict[str, Any]:
    """Name -> Vega-Lite specification; width and data are filled in by the page."""
    charts = {
        "roofline": roofline_chart(),
        "position": roofline_chart(one=True),
    }
    return {name: _plain(chart) for name, chart in charts.items()}


def _plain(chart: Layers) -> dict[str, Any]:
    spec = chart.to_dict()
    return {**spec, "config": _CONFIG, "autosize": {"type": "fit-x", "contains": "padding"}}


def _data(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=name))


def roofline_chart(one: bool = False) -> Layers:
    """Roofs, a point per launch and level, the levels of a launch on a line.

    Data: frame (two corners), roofs (their ends), words (on them), points. Parameters: the decades
    across and up decide the angle of what is written on a diagonal; `picked` is the launch to
    stand out, 0 for none.

    Args:
        one: Of one launch: levels are named at the points and need no legend.
    """
    x = alt.X("x:Q", scale=_LOG, title="Operations per byte (arithmetic intensity)",
              axis=alt.Axis(format="~g", tickCount=6))  # fmt: skip
    y = alt.Y("y:Q", scale=_LOG, title="Operations per second",
              axis=alt.Axis(format="~s", tickCount=6))  # fmt: skip
    frame = _data("frame").mark_point(opacity=0, tooltip=None).encode(x, y)
    lines = _data("roofs").mark_line(color=_ROOF, strokeWidth=1.6).encode(
        x, y, detail="roof:N", tooltip=[alt.Tooltip("about:N", title="roof")]
    )  # fmt: skip
    words = _data("words").encode(x, y, text="text:N")
    angle = alt.ExprRef("-atan2(height / up, width / across) * 180 / PI")
    slopes = words.transform_filter("datum.slope").mark_text(
        angle=angle, align="left", baseline="bottom", dx=6, dy=-3, color=_FAINT, fontSize=11
    )
    flats = words.transform_filter("!datum.slope").mark_text(
        align="right", baseline="bottom", dx=-2, dy=-3, color=_FAINT, fontSize=11
    )
    parameters = (
        alt.param("picked", value=0),
        alt.param("across", value=4),
        alt.param("up", value=4),
    )
    return (
        alt.layer(frame, lines, slopes, flats, *_launches(x, y, one))
        .add_params(*parameters)
        .properties(height=280 if one else 400)
    )


def _launches(x: alt.X, y: alt.Y, single: bool) -> list[alt.Chart]:
    points = _data("points")
    colours = alt.Scale(domain=list(BOUNDS), range=[f"var(--{b})" for b in BOUNDS])
    shapes = alt.Scale(domain=list(LEVELS), range=list(LEVELS.values()))
    inked = alt.Legend(symbolFillColor=_INK, symbolStrokeColor=_INK)
    bound = alt.Color(
        "bound:N", title="bound by", scale=colours, legend=None if single else alt.Legend()
    )
    bound_fill = alt.Fill("bound:N", title="bound by", scale=colours,
                          legend=None if single else alt.Legend())  # fmt: skip
    level = alt.Shape("level:N", title="bytes of", scale=shapes, legend=None if single else inked)
    dim = alt.condition("picked == 0 || picked == datum.launch", alt.value(1), alt.value(0.15))
    named = alt.condition("picked == datum.launch", alt.value(1), alt.value(0))
    ties = points.mark_line(strokeWidth=1.3).encode(
        x, y, color=bound, detail="launch:N", opacity=dim, order="x:Q"
    )
    tooltips = [
        alt.Tooltip(f"{name}:N", title=title)
        for name, title in (
            ("label", "launch"), ("level", "bytes of"), ("rate", "rate"),
            ("intensity", "intensity"), ("moved", "moved"), ("of", "roof"), ("note", "note"),
        )
    ]  # fmt: skip
    marks = points.mark_point(size=95, strokeWidth=1.8, cursor="pointer").encode(
        x, y, color=bound, shape=level, opacity=dim, tooltip=tooltips,
        fill=bound_fill, fillOpacity=alt.condition("datum.hollow", alt.value(0), alt.value(1)),
    )  # fmt: skip
    if single:
        return [ties, marks, *_level_names(points.encode(x, y, text="level:N"))]
    names = points.mark_text(
        align="left", dx=10, dy=-8, fontSize=12, fontWeight="bold", color=_INK
    ).encode(x, y, text="label:N", opacity=named)
    return [ties, marks, names]


def _level_names(points: alt.Chart) -> list[alt.Chart]:
    """Names of the levels, in turns above and below: neighbours are often closer than a name is wide."""
    sides = {-13: ("DRAM", "L1"), 15: ("L2", "workload's own")}
    return [
        points.transform_filter(alt.FieldOneOfPredicate("level", list(levels)))
        .mark_text(dy=dy, fontSize=12, color=_INK, baseline="middle")
        for dy, levels in sides.items()
    ]  # fmt: skip


def main() -> None:
    """Write the file."""
    FILE.write_text(json.dumps(specs(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
