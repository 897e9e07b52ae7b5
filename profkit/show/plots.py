"""Launches  ->  pictures: roofline, warp states, pipes, occupancy; ladder and ledger too.

Each returns its Axes. The plots_*.py files beside this one are the only room with matplotlib.
"""

from __future__ import annotations

from profkit.show.plots_bars import pipes, stalls
from profkit.show.plots_base import save
from profkit.show.plots_ladder import ladder
from profkit.show.plots_ledger import ledger
from profkit.show.plots_occupancy import occupancy
from profkit.show.plots_roofline import roofline

__all__ = ["ladder", "ledger", "occupancy", "pipes", "roofline", "save", "stalls"]
