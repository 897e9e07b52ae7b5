"""The drawing library, imported without what the current folder says of it."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from profkit.errors import OUT_OF_MEMORY, ProfkitError
from profkit.files import measure_memory_left

# Bytes that pandas, matplotlib and one picture take: with less, the OpenBLAS in numpy ends the process.
_PICTURE = 170 << 20


def import_plots() -> ModuleType:
    """Return profkit.show.plots; matplotlib reads no matplotlibrc of the current folder.

    It looks for one there when it is first imported, before any other place, and no setting turns that
    off: so the import happens in another folder. In a program that uses profkit as a library, the
    folder is the program's own, and nothing changes.

    Raises:
        ProfkitError: `--max-memory` or `ulimit` leaves less than a picture takes.
    """
    if "matplotlib" in sys.modules:
        from profkit.show import plots

        return plots
    left = measure_memory_left()
    if left is not None and left < _PICTURE:
        raise ProfkitError(OUT_OF_MEMORY, "allow more: --max-memory 400M, or ulimit")
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
