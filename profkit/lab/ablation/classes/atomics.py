"""Atomics that are issued and change nothing."""

from profkit.lab.ablation.change import GLOBAL
from profkit.lab.ablation.removal import AccessesGone


class AtomicsGone(AccessesGone):
    id = "no-atomics"
    title = "atomics"
    rules = ("atomics-contention",)
    probes = ("atomic-same", "atomic-bins", "atomic-shared", "histogram")
    keeps = "REDG ATOMG ATOMS"
    spaces = (*GLOBAL, "shared")
    kinds = ("atomic",)
    what = "atomics"
    nothing = "it has no atomics"
    unit = "atomic"
    left = "that decide something"


ABLATION = AtomicsGone
