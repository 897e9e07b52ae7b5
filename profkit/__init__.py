"""profkit: what limits this CUDA kernel, how do you know, and did my change fix it?

    import profkit as pk
    runs = pk.load("artifacts/*.ncu-rep")    # DataFrame, one row per launch
    found = pk.findings(runs)                # DataFrame, one row per finding
    ax = pk.plots.roofline(runs)             # an Axes

Every name is imported when it is first used, so that `import profkit` costs nothing.
"""

# No `from __future__` here: that is an import too, and comes before the folder is left.
import sys

if sys.argv[:1] == ["-m"] or sys.argv[0].endswith(("/profkit", "/profkit.exe")):
    # This is the program and not somebody's library: Ctrl-C is silent from this line on. `signal`
    # itself would take longer to import than all that there is until the first verb.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    # `python -m` looks for modules in the current folder first: whoever sent it may have put a
    # json.py there. `python -m profkit` looks there for nothing from here on, as `profkit` does.
    _begun = sys.orig_argv[1:3] if sys.argv[0] == "-m" else []
    if _begun[:1] == ["-m"] and _begun[1].partition(".")[0] == "profkit":
        from os.path import samefile

        _place = __path__[0].rpartition("profkit")[0] or "."
        if sys.path and samefile(sys.path[0] or ".", "."):
            _here = sys.path.pop(0)
            if samefile(_place, "."):  # where profkit itself lies comes last
                sys.path.append(_here)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from profkit.diagnosis.rule import Hit
    from profkit.diagnosis.rule import LaunchRule as Rule
    from profkit.errors import ProfkitError
    from profkit.evidence.history import history
    from profkit.model.launch import Launch
    from profkit.show import plots
    from profkit.show.notebook import (
        claims,
        compare,
        diagnose,
        explain,
        findings,
        from_raw,
        ladder,
        lines,
        load,
        raw,
        report,
        triage,
        whatif,
    )
    from profkit.show.notebook import claims as verify
    from profkit.show.plots import roofline

__all__ = [
    "Hit",
    "Launch",
    "ProfkitError",
    "Rule",
    "claims",
    "compare",
    "diagnose",
    "explain",
    "findings",
    "from_raw",
    "history",
    "ladder",
    "lines",
    "load",
    "plots",
    "raw",
    "report",
    "roofline",
    "triage",
    "verify",
    "whatif",
]

_WHERE = {
    "Hit": "profkit.diagnosis.rule",
    "Rule": "profkit.diagnosis.rule",
    "Launch": "profkit.model.launch",
    "ProfkitError": "profkit.errors",
    "history": "profkit.evidence.history",
    "roofline": "profkit.show.plots",
}
_MODULE = "profkit.show.notebook"  # of every other name
# What other libraries call the same thing.
_SAID_ELSEWHERE = dict.fromkeys(("read", "open", "read_report", "read_ncu", "reports"), "load")
_CALLED = {"Rule": "LaunchRule", "verify": "claims"}  # what a name is called in its module


def __getattr__(name: str) -> Any:
    if name == "plots":
        return import_module("profkit.show.plots")
    if name == "__version__":
        from importlib.metadata import version

        return version("profkit")
    if name not in __all__:
        message = f"module 'profkit' has no attribute {name!r}"
        if not name.startswith("_"):
            from difflib import get_close_matches

            near = [_SAID_ELSEWHERE[name]] if name in _SAID_ELSEWHERE else []
            if near := near or get_close_matches(name, __all__, 1):
                message += f"; did you mean {near[0]}?"
        raise AttributeError(message)
    module = import_module(_WHERE.get(name, _MODULE))
    return getattr(module, _CALLED.get(name, name))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
