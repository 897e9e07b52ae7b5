"""Launches, a search, a grid  ->  pictures: roofline, warp states, pipes, occupancy; ladder, heat map.

Each returns its Axes. This folder is the only room with matplotlib.
"""

from __future__ import annotations

from profkit.errors import require_package

with require_package("matplotlib", "a picture"):
    from profkit.show.plots.bars import heatmap, occupancy, pipes, stalls
    from profkit.show.plots.base import png, save
    from profkit.show.plots.roofline import roofline
    from profkit.show.plots.times import (
        draw_ladder_plot as ladder,
    )
    from profkit.show.plots.times import (
        history_steps,
        search_history,
        search_resources,
    )

__all__ = [
    "heatmap",
    "history_steps",
    "ladder",
    "occupancy",
    "pipes",
    "png",
    "roofline",
    "save",
    "search_history",
    "search_resources",
    "stalls",
]
