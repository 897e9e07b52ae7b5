"""Stores to global memory that are issued and write nothing."""

from profkit.lab.ablation.change import GLOBAL
from profkit.lab.ablation.removal import AccessesGone


class StoresGone(AccessesGone):
    id = "no-stores"
    title = "stores"
    rules = ("store-drain", "dram-bandwidth")
    probes = ("dram-write", "drain", "transpose-naive")
    keeps = "STG"
    spaces = GLOBAL
    kinds = ("store",)
    what = "stores are read again and"
    nothing = "it stores nothing to global memory"
    unit = "store"
    left = "that are read again to decide something"


ABLATION = StoresGone
