"""Parts of a picture  ->  SVG for a page, whose policy allows no style of an element's own.

Looks are classes. Places across are shares of the width, so that words keep their size on a phone;
places down are pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import starmap
from math import log

from markupsafe import Markup

from profkit.show.text.escape import html

HIGH = 34  # of a strip
THIN = 0.004  # of its width: what is narrower has no edge


def part(tag: str, *inside: str, **attributes: object) -> Markup:
    """Return an element: `inside` is markup, attributes are any text (class_ is class, x_y is x-y)."""
    named = "".join(starmap(_attribute, attributes.items()))
    text = f"<{tag}{named}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{named}/>"
    return Markup(text)  # noqa: S704 - every text goes through html()


def _attribute(key: str, value: object) -> str:
    text = str(round(value, 2) if isinstance(value, float) else value)
    return f' {key.rstrip("_").replace("_", "-")}="{html(text)}"'


def about(*lines: str) -> Markup:
    """Return the element that says what another is."""
    return part("title", "\n".join(map(html, lines)))


def words(text: str, **attributes: object) -> Markup:
    return part("text", html(text), **attributes)


def across(share: float) -> str:
    """Return a place across: 0.5 -> 50%."""
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


def strip(bars: Iterable[Bar], label: str, *, listed: bool = False) -> Markup:
    """Return bars side by side in one row, each named in its label where it is `listed`."""
    bars = list(bars)
    if listed:
        label = f"{label}: {'; '.join(bar.about for bar in bars)}"
    box = {"viewBox": f"0 0 1000 {HIGH}", "preserveAspectRatio": "none"}
    return picture(HIGH, label, map(_bar, bars), role="group", **box)


def _bar(bar: Bar) -> Markup:
    thin = " thin" if bar.end - bar.begin < THIN else ""
    at = {"x": 1000 * bar.begin, "y": 0, "width": 1000 * (bar.end - bar.begin), "height": HIGH}
    rects = part("rect", class_=f"fill {bar.look}{thin}", **at)
    if bar.saved > 0:
        hatched = {**at, "width": 1000 * bar.saved}
        rects += part("rect", class_="saved", **hatched, fill="url(#hatch)")
    link = {"href": f"#{bar.to}"} if bar.to else {}
    return part("a" if bar.to else "g", about(bar.about), rects, **link)
