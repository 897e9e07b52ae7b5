"""A rule  ->  what a mend of its cause takes away: at best (for the bound), as a rule (to expect).

A rule that is not here does its own arithmetic: its gain is the bound, and what is expected of it.
What people get is not all of it; see realised.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from profkit.diagnosis.coalescing import coalesced, sector_waste
from profkit.diagnosis.estimate.load import ENTRY, LINKS, ONCHIP, loads
from profkit.diagnosis.estimate.mend import Mend
from profkit.diagnosis.resources import BY_LIMITER, RESOURCES
from profkit.diagnosis.rule import Launch
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
_ASKED = (*ONCHIP, *(r.limiter for r in RESOURCES if r.group == "compute" and r.limiter != "tensor"))
MATRIX = 0.125  # instructions left of a scalar product on tensor cores, and they are asynchronous


@dataclass(frozen=True)
class Cause:
    """What mending one rule's cause does.

    Attributes:
        kind: Which mends are alike: residuals are pooled over a kind.
        best: The most that can go; None where no counter bounds it.
        typical: What goes when people mend it.
        formula: Both in words, for `explain`.
    """

    kind: Kind
    best: Build | None
    typical: Build
    formula: str


def _gone(*states: str) -> dict[str, float]:
    return dict.fromkeys(states, 0.0)


def _units(stays: float, *names: str) -> dict[str, float]:
    return dict.fromkeys(names, stays)


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
    return Mend(_conflict_free(launch), _gone(*MIO, "lg_throttle"))


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
    # Address registers (S2R) and barriers queue behind scattered accesses.
    return Mend(_coalesced_units(launch), _gone(*MEMORY, *MIO, "not_selected"))


def _coalesced_typical(launch: Launch) -> Mend:
    keep = 1 - sector_waste(launch)[0]
    waits = dict.fromkeys(("long_scoreboard", "drain"), keep)
    # The queue of the LSU backs up only because each access takes so long.
    return Mend(_coalesced_units(launch), {**waits, "lg_throttle": 0.0, "short_scoreboard": (1 + keep) / 2})


def _throughput(limiter: str, stays: float, *with_it: str) -> Cause:
    """A unit that is full: its work shrinks, and its queue goes."""

    def best(launch: Launch) -> Mend:
        return Mend({limiter: 0.0, **_units(0.0, *with_it)}, NOTHING)

    def typical(launch: Launch) -> Mend:
        units = {limiter: stays, **{u: FEWER if u == "issue" else stays for u in with_it}}
        return Mend(units, _gone(*BY_LIMITER[limiter].queue))

    formula = (
        f"bound: the next unit at its peak. expected: {stays:.0%} of the unit's work stays, the wait "
        "for it goes"
    )
    return Cause("throughput", best, typical, formula)


def _instructions(limiter: str, stays: float) -> Cause:
    """Too many instructions: each takes its waits with it, and the work it asks of units on chip."""
    def best(launch: Launch) -> Mend:
        return Mend(_units(0.0, *_ASKED), NOTHING)

    def typical(launch: Launch) -> Mend:
        return Mend({**_units(FEWER, *_ASKED), limiter: stays}, dict.fromkeys(STATES, stays))

    formula = (
        "bound: L2 or DRAM at its peak. expected: "
        f"{stays:.0%} of the instructions stay, with their waits and their work on chip"
    )
    return Cause("throughput", best, typical, formula)


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


def _wait(state: str, family: tuple[str, ...], *relieves: str, best: Build | None = None) -> Cause:
    """Warps that wait: at best everything that comes with it goes, but no other family's wait."""

    def most(launch: Launch) -> Mend:
        return Mend(_units(0.0, *relieves), _gone(state, *family, *ISSUING))

    def typical(launch: Launch) -> Mend:
        queue = {MEMORY: ("lg_throttle",), MIO: MIO}.get(family, ())
        units = _units(FEWER_TRIPS, *relieves) if family == MIO else {}
        return Mend(units, _typical_waits(state, queue, launch), shrinks=True)

    formula = (
        "bound: what is left are the busy units and the waits of other families. expected: this wait, "
        "its queue and its own instructions go, and barriers wait as much less"
    )
    return Cause("wait", best or most, typical, formula)


def _exposes(launch: Launch) -> Mend:
    """A barrier exposes the latencies before it: without it no wait is certain to stay."""
    return Mend(_units(0.0, *ONCHIP), NOTHING)


def _alone(launch: Launch) -> Mend:
    return Mend({}, NOTHING)


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


CAUSES: Mapping[str, Cause] = {
    "grid-too-small": Cause(
        "shape", _filled_best, _filled_typical,
        "bound: every place of the machine filled, but for the launch's ends, up to the fullest unit. "
        "expected: the same, with the ends that each block pays",
    ),
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
        "waste", _coalesced_best, _coalesced_typical,
        "bound: every level moves the useful sectors only. expected: the same, and of the waits for "
        "memory the useful share stays",
    ),
    "shared-bank-conflicts": Cause(
        "waste", _conflicts_best, _conflicts_typical,
        "bound: the useful wavefronts, no wait for shared memory. expected: of its waits the share of "
        "the useful wavefronts stays, and barriers wait as much less",
    ),
    "tensor-idle": Cause(
        "instructions", None, _on_tensor_cores,
        "no bound. expected: an eighth of the scalar instructions of the product stays",
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
    "barrier-wait": _wait("barrier", (), best=_exposes),
    "wgmma-wait": _wait("barrier", (), best=_alone),
    "gmma-wait": _wait("gmma", (), best=_alone),
    "sleeping": _wait("sleeping", (), best=_alone),
    **{
        f"occupancy-{what}": Cause(
            "places", _more_warps, _more_warps,
            "bound and expected: as many warps as an SM holds, up to the fullest unit",
        )
        for what in ("registers", "shared", "blocks")
    },
}  # fmt: skip
