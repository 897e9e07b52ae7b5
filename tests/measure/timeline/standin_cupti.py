"""The injection library of this source over a CUPTI that needs no GPU (standin/libcupti.cpp)."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from profkit.collect import timeline

STANDIN = Path(__file__).parents[1] / "standin" / "libcupti.cpp"


def build_over_standin(folder: Path) -> Path:
    """The injection library, linked with the stand-in; both in the folder."""
    found = timeline.find_cupti()
    library = folder / "libcupti.so"
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", str(STANDIN), f"-I{found.header}"]
    command += [f"-I{found.cuda}", "-Wl,-soname,libcupti.so", "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    target = folder / "injection.so"
    timeline._compile_library("g++", replace(found, library=library), target)
    return target


def is_cupti_here() -> bool:
    """Whether its header is: what is compiled against."""
    try:
        timeline.find_cupti()
    except timeline.ProfkitError:
        return False
    return True
