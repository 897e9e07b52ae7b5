"""The charts of the page as Vega-Lite: what is drawn how. Their data come when they are shown.

Colours are CSS variables of the page, so that light, dark and print need no second drawing. No
expression here is ever made of a report's text.
"""

from __future__ import annotations

from typing import Any

import altair as alt

BOUNDS = ("memory", "compute", "latency", "launch", "balanced", "unknown")
LEVELS = {"DRAM": "circle", "L2": "square", "L1": "triangle-up", "workload's own": "diamond"}
_INK, _FAINT, _ROOF = "var(--ink)", "var(--faint)", "var(--roof)"
_STEP = 21  # pixels from bar to bar
_LOG = alt.Scale(type="log", nice=False)
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "inherit",
    "view": {"stroke": None},
    "axis": {"labelColor": _INK, "titleColor": _INK, "gridColor": "var(--line)",
             "domainColor": "var(--line)", "tickColor": "var(--line)", "labelFontSize": 12,
             "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 190},
    "legend": {"labelColor": _INK, "titleColor": _FAINT, "labelFontSize": 12, "orient": "top",
               "titleFontWeight": "normal", "symbolStrokeWidth": 1.5},
}  # fmt: skip


def specs() -> dict[str, Any]:
    """Name -> Vega-Lite specification; width and data are filled in by the page."""
    charts = {"roofline": roofline(), "stalls": stalls(), "pipes": pipes(), "ladder": ladder()}
    return {name: _plain(chart) for name, chart in charts.items()}


def _plain(chart: alt.LayerChart) -> dict[str, Any]:
    spec = chart.to_dict()
    return {**spec, "config": _CONFIG, "autosize": {"type": "fit-x", "contains": "padding"}}


def _data(name: str) -> alt.Chart:
    return alt.Chart(alt.NamedData(name=name))


def roofline() -> alt.LayerChart:
    """Roofs, a point per launch and level, the levels of a launch on a line.

    Data: frame (two corners), roofs, points. Parameters: one decade's pixels decide the angle of
    what is written on a diagonal; `picked` is the launch to stand out, 0 for none.
    """
    x = alt.X("x:Q", scale=_LOG, title="Arithmetic intensity (operations per byte of the level)",
              axis=alt.Axis(format="~g", tickCount=6))  # fmt: skip
    y = alt.Y("y:Q", scale=_LOG, title="Operations per second",
              axis=alt.Axis(format="~s", tickCount=6))  # fmt: skip
    roofs = _data("roofs")
    lines = roofs.mark_line(color=_ROOF, strokeWidth=1.6).encode(
        x, y, detail="roof:N", tooltip=[alt.Tooltip("about:N", title="roof")]
    )
    angle = alt.ExprRef("-atan2(height / up, width / across) * 180 / PI")
    at_left = roofs.transform_aggregate(x="min(x)", y="min(y)", groupby=["roof", "kind", "text"])
    slopes = at_left.transform_filter("datum.kind == 'bandwidth'").mark_text(
        angle=angle, align="left", baseline="bottom", dx=6, dy=-3, color=_FAINT, fontSize=11
    )  # fmt: skip
    at_right = roofs.transform_aggregate(x="max(x)", y="max(y)", groupby=["roof", "kind", "text"])
    flats = at_right.transform_filter("datum.kind == 'peak'").mark_text(
        align="right", baseline="bottom", dx=-2, dy=-3, color=_FAINT, fontSize=11
    )
    frame = _data("frame").mark_point(opacity=0, tooltip=None).encode(x, y)
    words = [layer.encode(x, y, text="text:N") for layer in (slopes, flats)]
    return alt.layer(frame, lines, *words, *_launches(x, y)).add_params(
        alt.param("picked", value=0), alt.param("across", value=4), alt.param("up", value=4)
    ).properties(height=330)  # fmt: skip


def _launches(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    points = _data("points")
    bound = alt.Color("bound:N", title="bound by",
                      scale=alt.Scale(domain=list(BOUNDS), range=[f"var(--{b})" for b in BOUNDS]))  # fmt: skip
    dim = alt.condition("picked == 0 || picked == datum.launch", alt.value(1), alt.value(0.15))
    level = alt.Shape("level:N", title="bytes of",
                      scale=alt.Scale(domain=list(LEVELS), range=list(LEVELS.values())))  # fmt: skip
    ties = points.mark_line(strokeWidth=1.3).encode(
        x, y, color=bound, detail="launch:N", opacity=dim, order="x:Q"
    )
    told = [alt.Tooltip(f"{name}:N", title=title) for name, title in (
        ("label", "launch"), ("level", "bytes of"), ("rate", "rate"), ("intensity", "intensity"),
        ("moved", "moved"), ("of", "roof"), ("note", "note"))]  # fmt: skip
    marks = points.mark_point(size=95, strokeWidth=1.8, cursor="pointer").encode(
        x, y, color=bound, shape=level, opacity=dim, tooltip=told,
        fill=alt.condition("datum.hollow", alt.value("var(--paper)"), bound),
    )  # fmt: skip
    names = points.mark_text(
        align="left", dx=10, dy=-8, fontSize=12, fontWeight="bold", color=_INK
    ).encode(
        x, y, text="label:N",
        opacity=alt.condition("picked == datum.launch", alt.value(1), alt.value(0)),
    )  # fmt: skip
    return [ties, marks, names]


def stalls() -> alt.LayerChart:
    """What the resident warps did, a bar a state; the verdict's own stands out. Data: bars."""
    kinds = {"issuing": "var(--issuing)", "waiting": "var(--waiting)", "verdict": "var(--verdict)"}
    bars = _data("bars").encode(
        alt.Y("state:N", sort=None, title=None),
        alt.X("of:Q", title="Share of a resident warp's time",
              axis=alt.Axis(format=".0%", tickCount=5)),
        tooltip=[alt.Tooltip("state:N"), alt.Tooltip("text:N", title="share"),
                 alt.Tooltip("meaning:N")],
    )  # fmt: skip
    colour = alt.Color("kind:N", legend=None,
                       scale=alt.Scale(domain=list(kinds), range=list(kinds.values())))  # fmt: skip
    return alt.layer(bars.mark_bar(size=14).encode(color=colour), _figures(bars)).properties(
        height=alt.Step(_STEP)
    )


def pipes() -> alt.LayerChart:
    """How busy the pipes were: elapsed over the lighter active. Data: bars."""
    colours = {"elapsed": "var(--elapsed)", "active": "var(--active)"}
    sizes = {"elapsed": 7, "active": 15}
    bars = _data("bars").encode(
        alt.Y("pipe:N", sort=alt.EncodingSortField("order", op="min"), title=None),
        alt.X("of:Q", title="Share of the pipe's peak, of elapsed and of active cycles",
              axis=alt.Axis(format=".0%", tickCount=5)),
        tooltip=[alt.Tooltip("pipe:N"), alt.Tooltip("cycles:N"), alt.Tooltip("text:N", title="busy"),
                 alt.Tooltip("meaning:N")],
    )  # fmt: skip
    colour = alt.Color("cycles:N", title=None,
                       scale=alt.Scale(domain=list(colours), range=list(colours.values())))  # fmt: skip
    each = [
        bars.transform_filter(f"datum.cycles == '{cycles}'").mark_bar(size=sizes[cycles])
        .encode(color=colour) for cycles in ("active", "elapsed")
    ]  # fmt: skip
    widest = bars.transform_filter("datum.cycles == 'elapsed'")
    return alt.layer(*each, _figures(widest)).properties(height=alt.Step(_STEP))


def _figures(bars: alt.Chart) -> alt.Chart:
    return bars.mark_text(align="left", dx=5, color=_INK, fontSize=11).encode(text="text:N")


def ladder() -> alt.LayerChart:
    """Each variant's time with its interval, in the order of the ladder. Data: steps."""
    kinds = {"faster": "var(--good)", "slower": "var(--bad)", "reference": "var(--reference)",
             "": "var(--waiting)"}  # fmt: skip
    steps = _data("steps").encode(
        alt.Y("name:N", sort=None, title=None),
        tooltip=[alt.Tooltip(f"{n}:N", title=title) for n, title in (
            ("variant", "variant"), ("text", "time"), ("interval", "95 % interval"),
            ("parent", "against its parent"), ("bound", "bound by"))],
    )  # fmt: skip
    title = "Time per call, warm L2 (seconds, logarithmic)"
    scale = alt.Scale(type="log", padding=30)
    axis = alt.Axis(format="~s", tickCount=6)
    x, low = (alt.X(f"{n}:Q", title=title, scale=scale, axis=axis) for n in ("median", "low"))
    colour = alt.Color("kind:N", legend=None,
                       scale=alt.Scale(domain=list(kinds), range=list(kinds.values())))  # fmt: skip
    whiskers = steps.mark_rule(strokeWidth=5, opacity=0.5).encode(low, x2="high:Q", color=colour)
    points = steps.mark_point(filled=True, size=60, opacity=1).encode(x, color=colour)
    words = steps.mark_text(align="left", dx=9, fontSize=11, color=_INK).encode(x, text="said:N")
    return alt.layer(whiskers, points, words).properties(height=alt.Step(_STEP))
