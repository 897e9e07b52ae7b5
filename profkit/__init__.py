"""profkit: what is this CUDA kernel waiting for, how do you know, and did my change fix it?

    import profkit as pk
    runs = pk.load("artifacts/*.ncu-rep")    # DataFrame, one row per launch
    found = pk.diagnose(runs)                # DataFrame, one row per launch and rule
    ax = pk.plots.roofline(runs)             # an Axes

Every name is imported when it is first used, so that `import profkit` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.diagnosis.engine import diagnose
    from profkit.errors import ProfkitError
    from profkit.evidence.sides import compare
    from profkit.reports.reader import load, raw
    from profkit.show import plots
    from profkit.show.explain import explain

__all__ = ["ProfkitError", "compare", "diagnose", "explain", "load", "plots", "raw"]

_WHERE = {
    "ProfkitError": "profkit.errors",
    "compare": "profkit.evidence.sides",
    "diagnose": "profkit.diagnosis.engine",
    "explain": "profkit.show.explain",
    "load": "profkit.reports.reader",
    "raw": "profkit.reports.reader",
}


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("profkit.show.plots")
    if name == "__version__":
        from importlib.metadata import version

        return version("profkit")
    if name not in _WHERE:
        raise AttributeError(f"module 'profkit' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
