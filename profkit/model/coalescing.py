"""One launch  ->  the sectors it wastes, and how busy each level would be without them."""

from __future__ import annotations

from profkit.model.launch import Launch
from profkit.model.units import fetched
from profkit.reports.figures import share
from profkit.reports.metrics.derive import SECTOR

# On the crossbar a store is a header and its sectors: 2 packets for a lone one, 5 for a line of four.
# Measured: 12.1 and 13.0 times less crossbar work for stores coalesced from 32 sectors to 4.
PACKETS = (5 / 4) / 2
_REQUESTS = ("global_load_requests", "global_store_requests")
_SECTORS = ("global_load_sectors", "global_store_sectors")
SINGLE = 2.5  # sectors a request of L2 from which most of them travel together


def sector_waste(launch: Launch) -> tuple[float, str]:
    """Share of the global accesses' sectors that coalesced ones would not need, and how it shows."""
    if "excess_sectors" in launch:
        waste = launch["excess_sectors"]
        return (
            waste,
            f"{share(waste)} of the sectors of global accesses carry nothing the warp asked for",
        )
    # 16 sectors is what 32 coalesced accesses of 16 bytes need: more cannot be coalesced.
    per = launch["global_load_sectors_per_request"]
    per = max(per, launch.get("global_store_sectors_per_request", 0.0))
    return max(0.0, 1 - 16 / per), (
        f"{per:.3g} sectors per request, where coalesced accesses need 16 at most"
    )


def _past_l1(launch: Launch, waste: float) -> float:
    """Share of the sectors behind L1 that are wasted: what L1 serves again costs nothing there."""
    if not launch.known(*_SECTORS, "l2_read_bytes", "l2_write_bytes"):
        return waste
    needed = (1 - waste) * sum(launch[n] for n in _SECTORS)
    moved = (launch["l2_read_bytes"] + launch["l2_write_bytes"]) / SECTOR
    return min(waste, max(0.0, 1 - needed / moved)) if moved > 0 else waste


def _scatter(launch: Launch) -> tuple[float, float]:
    """What scattered sectors cost beyond themselves: at DRAM (1 to 2), at the L2 tags (1 to 4).

    DRAM fetches 64 bytes at a time, and L2 looks up a line of 4 sectors at once.
    """
    lines = 1.0
    if "l2_sectors_per_request" in launch:
        lines = min(4.0, max(1.0, 4 / max(launch["l2_sectors_per_request"], 1.0)))
    return fetched(launch), lines


def _lines(launch: Launch, keep: float) -> float:
    """Share of L1's work that stays: it looks up and serves a line at a time, not a sector."""
    if not launch.known("global_tag_requests", *_REQUESTS, *_SECTORS):
        return keep
    requests, sectors = (sum(launch[n] for n in names) for names in (_REQUESTS, _SECTORS))
    needed = max(requests, keep * sectors / 4)
    return min(keep, needed / max(launch["global_tag_requests"], needed, 1.0))


def _stores(launch: Launch, keep: float) -> float:
    """Share of the stored sectors that stays if as much of the waste as can be is the stores'."""
    if not launch.known("global_load_sectors", "global_store_sectors_per_request"):
        return keep
    loads, stores = launch["global_load_sectors"], launch["global_store_sectors"]
    least = min(keep, 4 / max(launch["global_store_sectors_per_request"], 4.0))
    scattered = launch.get("l2_sectors_per_request", 4.0) < SINGLE
    packets = PACKETS if scattered else 1.0
    return packets * max((keep * (loads + stores) - loads) / max(stores, 1.0), least)


def _useful(launch: Launch, keep: float) -> float:
    """Share of DRAM's bytes that is useful whatever the accesses look like; 0 when not known.

    What the warps asked for crosses DRAM at least once as far as DRAM moved it: sectors whose parts
    are used one after the other (an array of structures) are not read twice.
    """
    if not launch.known(*_SECTORS, "dram_bytes") or launch["dram_bytes"] <= 0:
        return 0.0
    asked = keep * sum(launch[n] for n in _SECTORS) * SECTOR
    return float(min(1.0, asked / launch["dram_bytes"]))


def coalesced(launch: Launch, waste: float) -> dict[str, float]:
    """Share of peak that each level would need in today's time if no sector were wasted."""
    keep, behind = 1 - waste, 1 - _past_l1(launch, waste)
    pairs, lines = _scatter(launch)
    l2 = {"l2_tag_busy": behind / lines, "l2_to_xbar_busy": behind}
    parts = {
        "dram": {"dram_busy": max(behind / pairs, _useful(launch, keep))},
        "l2": {**l2, "xbar_to_l2_busy": min(behind, _stores(launch, keep))},
        "l1": {"l1_busy": _lines(launch, keep)},
    }
    known = {level: stages for level, stages in parts.items() if launch.known(*stages)}
    return {level: max(launch[m] * part for m, part in known[level].items()) for level in known}
