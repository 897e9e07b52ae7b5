"""One launch  ->  how busy each unit was, and how busy it can get.

Every unit of the verdict, and two that only limit what a mend brings: the entry of the load-store
unit (a request is one, however many wavefronts it takes) and the links between L1TEX and L2.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from profkit.diagnosis.machine import units
from profkit.diagnosis.machine.resources import PAIRED, RESOURCES, resource_use
from profkit.diagnosis.rule import Launch, NotCollected

ENTRY, LINKS = "entry", "links"
ONCHIP = ("l1", "shared", ENTRY)  # what a load or store goes through inside the SM

# The largest share of its peak that any launch on record holds over its whole time (probes and
# ladder on an H200, published streams elsewhere). Refresh and read-write turns take the rest of DRAM,
# uneven hashing that of L2; pipes lose only ramp and end.
REACH: Mapping[str, float] = {
    "dram": 0.92,
    "l2": 0.85,
    LINKS: 0.90,
    "l1": 0.97,
    "shared": 0.97,
    ENTRY: 0.97,
    "texture": 0.98,
    "constant": 0.95,
    "atomics": 0.95,
    "tensor": 0.95,
    "fp32": 0.97,
    "fp64": 0.97,
    "fp16": 0.95,
    "int": 0.95,
    "xu": 0.97,
    "issue": 0.95,
}
SCATTERED = 0.55  # of DRAM when it fetches sectors in pairs from random places (gather-dram: 0.53)


def loads(launch: Launch) -> dict[str, float]:
    """Share of its peak that each unit was at, of elapsed cycles; only what was collected."""
    shares = {r.limiter: u.elapsed for r in RESOURCES if (u := resource_use(r, launch)) is not None}
    if "lsu_in_busy" in launch:
        shares[ENTRY] = launch["lsu_in_busy"]
    with suppress(NotCollected):
        shares[LINKS] = units.links(launch)
    return shares


def scattered(launch: Launch) -> bool:
    """Whether DRAM serves sectors at random places, which it cannot do at its full rate."""
    return units.fetched(launch) >= PAIRED


def reach(unit: str, launch: Launch) -> float:
    """The share of its peak that a unit can get to in a launch with this access pattern."""
    return SCATTERED if unit == "dram" and scattered(launch) else REACH[unit]
