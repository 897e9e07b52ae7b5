"""A rule  ->  what a mend of its cause takes away: at best (for the bound), as a rule (to expect).

Rules whose gain is their own arithmetic (work that a counter calls redundant) say here what is
expected of it. How far the mends on record came from all this is in estimate.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from profkit.model.coalescing import coalesced, sector_waste
from profkit.model.launch import Launch
from profkit.model.resources import BY_LIMITER, RESOURCES, uses
from profkit.model.scenario import (
    ENTRY,
    LINKS,
    ONCHIP,
    Mend,
    fullest,
    loads,
    modelled_gain,
)
from profkit.reports.metrics.warps import STATES

Kind = Literal["throughput", "waste", "wait", "places", "shape", "instructions", "atomics"]
Build = Callable[[Launch], Mend]

# States that come and go together: the instructions of a family stand in one queue.
MEMORY = ("long_scoreboard", "lg_throttle", "drain", "tex_throttle", "membar")
MIO = ("short_scoreboard", "mio_throttle")
FETCH = ("no_instruction", "imc_miss", "branch_resolving")
MATH = ("math_pipe_throttle", "dispatch_stall")
ISSUING = ("selected", "not_selected", "wait")  # what every instruction costs by itself
NOTHING = dict.fromkeys(STATES, 0.0)  # no state is certain to stay

# Work of a unit that is left when people relieve it: register tiles, wider accesses, one special
# function where several were. Median of the steps on record that did so.
RELIEVED = 0.4
FEWER = 0.6  # of the instructions, when people cut those of a kernel that is full of them
FEWER_TRIPS = 0.6  # of the accesses, when people no longer wait for each
EMPTY_LAUNCH = 1e-6  # s: no launch is faster (1.03 us measured on an H200 in a replayed graph)
# s: what a launch takes under ncu before its blocks are at work and after; more blocks pay it again.
SHARE_OF_ENDS = 4e-6
# Work that goes with the instructions that ask for it; matrix products are the problem's own.
_ASKED = (
    *ONCHIP,
    *(r.limiter for r in RESOURCES if r.group == "compute" and r.limiter != "tensor"),
)
HIDDEN = 0.5  # exponent of a redundancy's gain in a launch that waits: three steps, 0.50 to 0.52
HOT_ADDRESS = 34.0  # geometric mean of the mends on record: 9.9, 24 and 161 times
MATRIX = 0.125  # instructions left of a scalar product on tensor cores, and they are asynchronous


@dataclass(frozen=True)
class Cause:
    """What mending one rule's cause does.

    Attributes:
        kind: Which mends are alike: residuals are pooled over a kind.
        formula: Bound and expectation in words, for `explain`.
        best: The most that can go. Without it the rule's own gain is the bound, if it gives one.
        typical: What goes when people mend it.
        own: Instead of `typical`: the expected speed-up from the launch and the rule's own gain.
    """

    kind: Kind
    formula: str
    best: Build | None = None
    typical: Build | None = None
    own: Callable[[Launch, float | None], float | None] | None = None


def _gone(*states: str) -> dict[str, float]:
    return dict.fromkeys(states, 0.0)


def _units(stays: float, *names: str) -> dict[str, float]:
    return dict.fromkeys(names, stays)


def _near(launch: Launch, *limiters: str) -> bool:
    """Whether one of these is near its peak: any wait may then be for it, whatever it is booked as."""
    return any(u.near and u.resource.limiter in limiters for u in uses(launch))


def conflicts(launch: Launch) -> float:
    """Share of the shared-memory wavefronts that conflict-free accesses would not need."""
    if "excess_shared_wavefronts" in launch:
        waste = launch["excess_shared_wavefronts"]
    else:
        waste = max(launch["shared_ld_conflicts"], launch["shared_st_conflicts"])
    return min(waste, 31 / 32)


def _conflict_free(launch: Launch) -> dict[str, float]:
    # The entry takes a request however many wavefronts it becomes: it keeps its work.
    return _units(1 - conflicts(launch), "shared", "l1")


def _conflicts_best(launch: Launch) -> Mend:
    waits = NOTHING if _near(launch, "shared", "l1") else _gone(*MIO, "lg_throttle")
    return Mend(_conflict_free(launch), waits)


def _conflicts_typical(launch: Launch) -> Mend:
    return Mend(_conflict_free(launch), dict.fromkeys(MIO, 1 - conflicts(launch)))


def _coalesced_units(launch: Launch) -> dict[str, float]:
    waste, _ = sector_waste(launch)
    now = loads(launch)
    after = coalesced(launch, waste)
    stays = {u: min(1.0, after[u] / now[u]) for u in after if now.get(u, 0.0) > 0}
    if "l2" in stays:
        stays[LINKS] = stays["l2"]
    return stays


def _coalesced_best(launch: Launch) -> Mend:
    near = _near(launch, "dram", "l2", "l1")
    return Mend(_coalesced_units(launch), NOTHING if near else _gone(*MEMORY, "not_selected"))


def _coalesced_typical(launch: Launch) -> Mend:
    keep = 1 - sector_waste(launch)[0]
    waits = dict.fromkeys(("long_scoreboard", "drain"), keep)
    # The queue of the LSU backs up only because each access takes so long.
    return Mend(
        _coalesced_units(launch), {**waits, "lg_throttle": 0.0, "short_scoreboard": (1 + keep) / 2}
    )


def _always(mend: Mend) -> Build:
    """A mend that is the same for every launch."""
    return lambda _: mend


def _throughput(limiter: str, stays: float, *with_it: str) -> Cause:
    """A unit that is full: its work shrinks, and its queue goes."""
    units = {limiter: stays, **{u: FEWER if u == "issue" else stays for u in with_it}}
    return Cause(
        "throughput",
        f"bound: the next unit at its peak. expected: {stays:.0%} of the unit's work stays, the wait "
        "for it goes",
        _always(Mend(_units(0.0, limiter, *with_it), NOTHING)),
        _always(Mend(units, _gone(*BY_LIMITER[limiter].queue))),
    )


def _instructions(limiter: str, stays: float) -> Cause:
    """Too many instructions: each takes its waits with it, and the work it asks of units on chip."""
    units = {**_units(FEWER, *_ASKED), limiter: stays}
    return Cause(
        "throughput",
        f"bound: L2 or DRAM at its peak. expected: {stays:.0%} of the instructions stay, with their "
        "waits and their work on chip",
        _always(Mend(_units(0.0, *_ASKED), NOTHING)),
        _always(Mend(units, dict.fromkeys(STATES, stays))),
    )


def _share(launch: Launch, *counts: str) -> float:
    """Share of the executed instructions that are of these kinds."""
    own = sum(launch.get(count, 0.0) for count in counts)
    return min(1.0, own / max(launch.get("instructions", 0.0), 1.0))


_LOADS = ("inst_global_load", "inst_texture", "inst_async_copy")
_TRIPS = ("inst_shared_load", "inst_shared_store", "inst_xu", "inst_shuffle")
_OWN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("long_scoreboard", "lg_throttle"), _LOADS),
    **dict.fromkeys(MIO, _TRIPS),
    "barrier": ("inst_barrier",),
    "membar": ("inst_membar",),
    "branch_resolving": ("branches",),
}


def _typical_waits(state: str, family: tuple[str, ...], launch: Launch) -> dict[str, float]:
    """A wait, its queue, and its own instructions' issue; what stands behind it while it holds."""
    own = 1 - _share(launch, *_OWN.get(state, ()))
    waits = {**dict.fromkeys(ISSUING, own), **_gone(state, *family)}
    if state in MATH:
        # Where it holds the scheduler or the pipe longer than the cycle of an issue, the warps that
        # are ready stand behind it.
        part = launch[f"stall_{state}"]
        waits["not_selected"] = launch["stall_selected"] / (part + launch["stall_selected"])
    if state == "branch_resolving":
        waits["no_instruction"] = 0.0  # the fetch of what it jumps to
    return waits


def _wait(
    state: str, family: tuple[str, ...], *relieves: str, exposes: Mend | None = None
) -> Cause:
    """Warps that wait: at best everything that comes with it goes, but no other family's wait."""
    queue = {MEMORY: ("lg_throttle",), MIO: MIO}.get(family, ())
    units = _units(FEWER_TRIPS, *relieves) if family == MIO else {}

    def typical(launch: Launch) -> Mend:
        return Mend(units, _typical_waits(state, queue, launch))

    return Cause(
        "wait",
        "bound: what is left are the busy units and the waits of other families. expected: this wait, "
        "its queue and its own instructions go, and barriers wait as much less",
        _always(exposes or Mend(_units(0.0, *relieves), _gone(state, *family, *ISSUING))),
        typical,
    )


# A barrier exposes the latencies before it: without it no wait is certain to stay.
_EXPOSES = Mend(_units(0.0, *ONCHIP), NOTHING)
_ALONE = Mend({}, NOTHING)  # only the busy units are certain to stay


def _more_warps(launch: Launch) -> Mend:
    return Mend(places=1 / launch["occupancy_limit"])


def _filled(launch: Launch, ends: float) -> Mend:
    """Blocks enough for every place: of the SMs, and of the warps on each."""
    fill = launch["grid_size"] / launch["sm_count"]
    fill = min(1.0, fill, launch.get("waves", fill))
    idle = 1 - min(1.0, launch.get("sm_active_max", 1.0))
    if "time" in launch:
        idle = max(idle, ends / launch["time"])
    return Mend(places=1 / fill, ends=min(1.0, idle))


def _filled_best(launch: Launch) -> Mend:
    return _filled(launch, EMPTY_LAUNCH)


def _filled_typical(launch: Launch) -> Mend:
    return _filled(launch, SHARE_OF_ENDS)


def _on_tensor_cores(launch: Launch) -> Mend:
    scalar = max(_share(launch, "inst_half"), _share(launch, "inst_ffma"))
    stays = 1 - scalar * (1 - MATRIX)
    return Mend(_units(stays, "fp16", "fp32", "issue"), dict.fromkeys((*ISSUING, *MATH), stays))


def _all_of_it(_: Launch, gain: float | None) -> float | None:
    return gain


def _where_full(launch: Launch, gain: float | None) -> float | None:
    """All of it where a unit is full of the redundant work, else half of it on a log scale.

    A launch that waits goes on waiting for what the redundant work had hidden.
    """
    if gain is None or any(u.near for u in uses(launch)):
        return gain
    return float(gain**HIDDEN)


_FEWER_ATOMICS = Mend(_units(RELIEVED, "atomics", "l2", LINKS, *ONCHIP), _gone(*MEMORY, *MIO))
_NO_ATOMICS = Mend(_units(0.0, "atomics", "l2", LINKS))


def _fewer_atomics(launch: Launch, _: float | None) -> float | None:
    """A full unit needs fewer atomics; a hot address is a queue of its own, which no counter bounds."""
    if any(u.near for u in uses(launch)):
        return modelled_gain(launch, _FEWER_ATOMICS)
    return min(HOT_ADDRESS, 1 / max(fullest(launch, _NO_ATOMICS), 1 / HOT_ADDRESS))


_REDUNDANT = Cause(
    "waste",
    "bound: time falls with the redundant work, up to the next unit at its peak. expected: the same "
    "where a unit is full of that work, else its square root",
    own=_where_full,
)
_SHAPE = Cause(
    "shape",
    "bound and expected: the time in which SMs had no work, given back",
    own=_all_of_it,
)

CAUSES: Mapping[str, Cause] = {
    "grid-too-small": Cause(
        "shape",
        "bound: every place of the machine filled, but for the launch's ends, up to the fullest unit. "
        "expected: the same, with the ends that each block pays",
        _filled_best,
        _filled_typical,
    ),
    "tail-effect": _SHAPE,
    "workload-imbalance": _SHAPE,
    "hidden-tail": _SHAPE,
    "dram-bandwidth": _throughput("dram", FEWER, "l2"),
    "l2-bandwidth": _throughput("l2", RELIEVED, LINKS),
    "l1-bandwidth": _throughput("l1", RELIEVED, "shared", ENTRY, "issue"),
    "shared-bandwidth": _throughput("shared", RELIEVED, "l1", ENTRY, "issue"),
    "texture-bandwidth": _throughput("texture", 0.1, "l1", "issue"),
    "constant-divergence": _throughput("constant", 1 / 32),
    "tensor-pipe": _throughput("tensor", RELIEVED),
    "fp32-pipe": _throughput("fp32", RELIEVED, "issue"),
    "fp64-pipe": _throughput("fp64", RELIEVED),
    "fp16-pipe": _throughput("fp16", RELIEVED, "issue"),
    "xu-pipe": _throughput("xu", RELIEVED),
    "int-pipe": _instructions("int", 0.5),
    "issue-slots": _instructions("issue", FEWER),
    "uncoalesced-access": Cause(
        "waste",
        "bound: every level moves the useful sectors only. expected: the same, and of the waits for "
        "memory the useful share stays",
        _coalesced_best,
        _coalesced_typical,
    ),
    "shared-bank-conflicts": Cause(
        "waste",
        "bound: the useful wavefronts, no wait for shared memory. expected: of its waits the share of "
        "the useful wavefronts stays, and barriers wait as much less",
        _conflicts_best,
        _conflicts_typical,
    ),
    **dict.fromkeys(
        ("low-l2-hit", "register-spills", "local-memory", "thread-divergence", "non-fused-math",
         "redundant-exp", "tensor-xu-serial", "partial-warps"),
        _REDUNDANT,
    ),
    "tensor-idle": Cause(
        "instructions",
        "no bound. expected: an eighth of the scalar instructions of the product stays",
        typical=_on_tensor_cores,
    ),
    "atomics-contention": Cause(
        "atomics",
        f"no bound. expected: {RELIEVED:.0%} of a full unit's work stays; where one address is hot "
        f"{HOT_ADDRESS:g}x, the geometric mean of those on record, up to the next unit",
        own=_fewer_atomics,
    ),
    "long-scoreboard": _wait("long_scoreboard", MEMORY, "l1", ENTRY),
    "lg-throttle": _wait("lg_throttle", MEMORY, "l1", ENTRY),
    "store-drain": _wait("drain", MEMORY),
    "membar": _wait("membar", MEMORY),
    "tex-throttle": _wait("tex_throttle", MEMORY),
    "short-scoreboard": _wait("short_scoreboard", MIO, *ONCHIP),
    "mio-throttle": _wait("mio_throttle", MIO, *ONCHIP),
    "instruction-cache": _wait("no_instruction", FETCH),
    "constant-miss": _wait("imc_miss", FETCH),
    "branch-resolving": _wait("branch_resolving", FETCH),
    "math-throttle": _wait("math_pipe_throttle", MATH),
    "dispatch-stall": _wait("dispatch_stall", MATH),
    "fixed-latency": _wait("wait", ()),
    "barrier-wait": _wait("barrier", (), exposes=_EXPOSES),
    "wgmma-wait": _wait("barrier", (), exposes=_ALONE),
    "gmma-wait": _wait("gmma", (), exposes=_ALONE),
    "sleeping": _wait("sleeping", (), exposes=_ALONE),
    **dict.fromkeys(
        ("occupancy-registers", "occupancy-shared", "occupancy-blocks"),
        Cause(
            "places",
            "bound and expected: as many warps as an SM holds, up to the fullest unit",
            _more_warps,
            _more_warps,
        ),
    ),
    "short-blocks": Cause(
        "places", "bound and expected: the places that stand empty filled", own=_all_of_it
    ),
}  # fmt: skip

# Rules that nobody mended on record, and notes on the measurement.
UNPRICED = (
    "debug-build",
    "nothing-stands-out",
    "short-kernel",
    "cache-resident",
    "operations-mismatch",
    "clocks-unsteady",
    "replay-unsteady",
)
