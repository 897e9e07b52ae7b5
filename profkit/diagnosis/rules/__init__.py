"""Every rule, by id: one launch  ->  a hit or nothing, one file per hardware area.

One more rule is one more entry in the RULES of its file, or a file of its own here with RULES: it is
found by being there. Its page is in it (`page`), or is pages/<id>.md.
"""

from importlib import import_module
from itertools import chain
from pkgutil import iter_modules

from profkit.diagnosis.rule import LaunchRule

# Findings of equal worth are in this order; what is asked otherwise, and doubts, come last.
_AREAS = ("launch", "memory", "waste", "compute", "waits", "occupancy")
_OTHERS = sorted({m.name for m in iter_modules(__path__)} - {*_AREAS, "checks"})
_MODULES = [import_module(f"{__name__}.{name}") for name in (*_AREAS, *_OTHERS, "checks")]
ALL: tuple[LaunchRule, ...] = tuple(chain.from_iterable(module.RULES for module in _MODULES))
BY_ID: dict[str, LaunchRule] = {rule.id: rule for rule in ALL}
