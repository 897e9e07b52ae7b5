"""Every ablation of a kernel's code: what a file of this folder calls ABLATION."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from profkit.lab.ablation.change import Ablation


@functools.cache
def list_ablations() -> tuple[type[Ablation], ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(importlib.import_module(f"{__name__}.{name}").ABLATION for name in names)
