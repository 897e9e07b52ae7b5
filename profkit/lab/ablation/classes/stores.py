"""Stores to global memory that are issued and write nothing."""

from profkit.lab.ablation.change import GLOBAL
from profkit.lab.ablation.removal import AccessesGone


class StoresGone(AccessesGone):
    id = "no-stores"
    title = "stores"
    rules = ("store-drain", "dram-bandwidth")
    probes = ("dram-write", "drain", "transpose-naive")
    keeps = "STG"
    spaces, kinds = GLOBAL, ("store",)
    what, nothing = "stores are read again and", "it stores nothing to global memory"
    unit, left = "store", "that are read again to decide something"


ABLATION = StoresGone
