"""The drawing library, imported without what the current folder says of it."""

from __future__ import annotations

import os
import sys
from types import ModuleType


def import_plots() -> ModuleType:
    """Return profkit.show.plots; matplotlib reads no matplotlibrc of the current folder.

    It looks for one there when it is first imported, before any other place, and no setting turns that
    off: so the import happens in another folder. In a program that uses profkit as a library, the
    folder is the program's own, and nothing changes.
    """
    if "matplotlib" in sys.modules:
        from profkit.show import plots

        return plots
    # A notebook or another program may have set a backend that is not here; files need none.
    os.environ["MPLBACKEND"] = "agg"
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        os.chdir("/")
        from profkit.show import plots
    finally:
        os.fchdir(here)
        os.close(here)
    return plots
