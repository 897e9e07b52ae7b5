"""How PyTorch SDPA is beaten where profkit says it is weak, step by step, and what is left.

The path: cuDNN leaves most of an H200 idle at small shapes (grid-too-small). exp2fold is a good kernel
with the same fault; splitk fills the machine by splitting keys over warps; pair halves what each SM
fetches by a cluster of two blocks; champion merges the parts in registers. For large shapes wgmma runs
products and exponentials side by side; fourgroups pays no half round of tiles, uniform and nomax take
instructions off the warps, latev and qregisters are the ends.
"""

from __future__ import annotations

from arithmetic import B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, gate, timed
from profkit.evidence.runs import Evidence
from profkit.evidence.stats import Interval, TimeComparison

ISSUE = "the target set for this kernel"
BEYOND = "beyond the target"


# What PyTorch picks, and the same kernel pinned: at these shapes the fastest two of its backends.
BEST = ("sdpa", "sdpa-cudnn")


def _ratio(evidence: Evidence, ours: str, case: str, wanted: float) -> Answer:
    """How many times faster than the faster of BEST, with the interval."""
    best = min((timed(evidence, f"{b}.{case}", f"{ours}.{case}") for b in BEST), key=_speedup)
    return decide(
        at_least(best.speedup, wanted),
        f"{ours} at {case} against PyTorch's fastest backend: {best.sentence}; wanted {wanted}x",
        speedup=best.speedup.median,
        low=best.speedup.low,
        high=best.speedup.high,
    )


def _speedup(found: TimeComparison) -> float:
    return found.speedup.median


@claim(who="profkit diagnose on cuDNN's kernel", needs=["sdpa-cudnn.B"])
def cudnn_leaves_the_machine_idle(evidence: Evidence) -> Answer:
    """At B the fastest SDPA backend is limited by its grid, not by any pipe or memory."""
    run = evidence.load("sdpa-cudnn", "B")
    launch, verdict = run.launch, run.diagnosis()
    return decide(
        (verdict.bound, verdict.limiter) == ("launch", "grid_too_small"),
        f"{launch['waves']:.2f} waves, SMs active {launch['sm_active']:.0%} of the time, tensor pipe "
        f"{launch['tensor_busy']:.0%}, XU {launch['xu_busy']:.0%}",
        waves=launch["waves"],
        sm_active=launch["sm_active"],
    )


@claim(who="header of splitk", needs=["exp2fold.B", "splitk.B"])
def filling_the_machine_pays(evidence: Evidence) -> Answer:
    """Splitting keys over warps, so that 128 blocks run, is at least 1.3 times faster at B."""
    found = timed(evidence, "exp2fold.B", "splitk.B")
    before, after = (evidence.load(v, "B").launch for v in ("exp2fold", "splitk"))
    return decide(
        at_least(found.speedup, 1.3),
        f"{found.sentence}; SMs active {before['sm_active']:.0%} to {after['sm_active']:.0%}, but "
        f"{after['l2_to_l1_bytes'] / before['l2_to_l1_bytes']:.1f} times the bytes from L2 to the SMs",
        speedup=found.speedup.median,
    ).elsewhere(computed_l4(after, B))


@claim(who="header of pair", needs=["splitk.B", "pair.B"])
def sharing_the_keys_pays(evidence: Evidence) -> Answer:
    """A cluster of two blocks that halves the keys is at least 1.3 times faster at B than splitk."""
    found = timed(evidence, "splitk.B", "pair.B")
    return decide(at_least(found.speedup, 1.3), found.sentence, speedup=found.speedup.median)


@claim(who="header of champion", needs=["pair.A", "champion.A"])
def merging_in_registers_pays(evidence: Evidence) -> Answer:
    """Merging the parts in registers is at least 1.15 times faster at A than adding in shared memory."""
    found = timed(evidence, "pair.A", "champion.A")
    before, after = (evidence.load(v, "A").launch for v in ("pair", "champion"))
    return decide(
        at_least(found.speedup, 1.15),
        f"{found.sentence}; shared wavefronts to "
        f"{after['shared_wavefronts'] / before['shared_wavefronts']:.2f}, bytes that reach an SM to "
        f"{after['l2_to_l1_bytes'] / before['l2_to_l1_bytes']:.2f}",
        speedup=found.speedup.median,
    )


@claim(who="header of multicast", needs=["splitk.B", "multicast.B"])
def multicast_over_four_blocks_pays(evidence: Evidence) -> Answer:
    """TMA multicast over a cluster of four makes splitk faster at B."""
    found = timed(evidence, "splitk.B", "multicast.B")
    before, after = (evidence.load(v, "B").launch for v in ("splitk", "multicast"))
    return decide(
        at_least(found.speedup, 1),
        f"{found.sentence}: 30 clusters of four fit, 32 are needed, so the last two wait; and neither "
        f"kernel was short of L2 ({before['l2_cache_busy']:.0%} and {after['l2_cache_busy']:.0%})",
        speedup=found.speedup.median,
    )


@claim(who=ISSUE, needs=[f"{b}.A" for b in (*BEST, "champion")])
def a_full(evidence: Evidence) -> Answer:
    """At A we are at least 1.6 times faster than SDPA."""
    return _ratio(evidence, "champion", "A", 1.6)


@claim(who=ISSUE, needs=[f"{b}.B" for b in (*BEST, "champion")])
def b_full(evidence: Evidence) -> Answer:
    """At B we are at least 2 times faster than SDPA."""
    return _ratio(evidence, "champion", "B", 2.0)


@claim(who=ISSUE, needs=[f"{b}.V" for b in (*BEST, "champion")])
def v_full(evidence: Evidence) -> Answer:
    """At V we are at least 1.3 times faster than SDPA."""
    return _ratio(evidence, "champion", "V", 1.3)


@claim(who=ISSUE, needs=[f"{b}.C" for b in (*BEST, "latev")])
def c_full(evidence: Evidence) -> Answer:
    """At C we reach at least 0.7 of SDPA."""
    return _ratio(evidence, "latev", "C", 0.7)


def _causal(evidence: Evidence, ours: str, cases: str) -> Answer:
    said, kept = [], []
    for case in cases:
        full, causal = (
            timed(evidence, f"sdpa.{c}", f"{ours}.{c}").speedup for c in (case, f"{case}-causal")
        )
        said.append(f"{case} {full.median:.2f}x, causal {causal.median:.2f}x")
        ends = causal.low / full.high, causal.high / full.low  # NaN, not known, is not kept
        kept.append(at_least(Interval(causal.median / full.median, *ends), 0.8))
    return decide(False if False in kept else None if None in kept else True, "; ".join(said))


SMALL = [f"{v}.{c}{end}" for v in ("sdpa", "champion") for c in "ABV" for end in ("", "-causal")]
LARGE = [f"{v}.{c}{end}" for v in ("sdpa", "latev") for c in "CD" for end in ("", "-causal")]


@claim(who=ISSUE, needs=SMALL)
def causal_small(evidence: Evidence) -> Answer:
    """Causal, the ratio at A, B and V is no worse than full by more than a fifth."""
    return _causal(evidence, "champion", "ABV")


@claim(who=ISSUE, needs=LARGE)
def causal_large(evidence: Evidence) -> Answer:
    """Causal, the ratio at C and D is no worse than full by more than a fifth."""
    return _causal(evidence, "latev", "CD")


targets = gate(
    "the targets against SDPA", [a_full, b_full, v_full, c_full, causal_small, causal_large]
)


@claim(who=BEYOND, needs=[f"{b}.V" for b in (*BEST, "champion")])
def v_beyond(evidence: Evidence) -> Answer:
    """At V champion is at least 1.8 times faster than SDPA."""
    return _ratio(evidence, "champion", "V", 1.8)


@claim(who=BEYOND, needs=[f"{b}.A" for b in (*BEST, "champion")])
def a_beyond(evidence: Evidence) -> Answer:
    """At A champion is at least 2 times faster than SDPA."""
    return _ratio(evidence, "champion", "A", 2.0)


@claim(who=BEYOND, needs=[f"{b}.B" for b in (*BEST, "champion")])
def b_beyond(evidence: Evidence) -> Answer:
    """At B champion is at least 2.5 times faster than SDPA."""
    return _ratio(evidence, "champion", "B", 2.5)


@claim(who=BEYOND, needs=[f"{b}.C" for b in (*BEST, "latev")])
def c_beyond(evidence: Evidence) -> Answer:
    """At C latev is at least 1.05 times faster than SDPA."""
    return _ratio(evidence, "latev", "C", 1.05)


def _picked(evidence: Evidence, ours: str, case: str, wanted: float) -> Answer:
    """Against what PyTorch picks, where no backend was pinned in the same run."""
    found = timed(evidence, f"sdpa.{case}", f"{ours}.{case}")
    return decide(
        at_least(found.speedup, wanted),
        f"{ours} at {case} against what PyTorch picks: {found.sentence}; wanted {wanted}x",
        speedup=found.speedup.median,
    )


@claim(who=BEYOND, needs=["sdpa.C-causal", "nomax.C-causal"])
def c_causal_beyond(evidence: Evidence) -> Answer:
    """At C, causal, nomax is at least 1.05 times faster than SDPA."""
    return _picked(evidence, "nomax", "C-causal", 1.05)


@claim(who=BEYOND, needs=["sdpa.D", "latev.D"])
def d_beyond(evidence: Evidence) -> Answer:
    """At D latev is at least 1.02 times faster than SDPA."""
    return _picked(evidence, "latev", "D", 1.02)


@claim(who=BEYOND, needs=["sdpa.D-causal", "latev.D-causal"])
def d_causal_beyond(evidence: Evidence) -> Answer:
    """At D, causal, latev is at least 1.05 times faster than SDPA."""
    return _picked(evidence, "latev", "D-causal", 1.05)


UNITS = (
    "tensor_busy",
    "xu_busy",
    "fma_busy",
    "shared_busy",
    "l1_busy",
    "l2_cache_busy",
    "dram_busy",
)


@claim(who="headers of pair and champion: what is left at B is latency", needs=["champion.B"])
def what_is_left_is_latency(evidence: Evidence) -> Answer:
    """At B no unit of the machine is busy for a third of champion's time."""
    launch = evidence.load("champion", "B").launch
    busy = {name: launch[name] for name in UNITS}
    most = max(busy, key=lambda name: busy[name])
    return decide(
        busy[most] < 1 / 3,
        f"the busiest is {most}, {busy[most]:.1%}; {launch['warps_per_scheduler']:.1f} warps a "
        f"scheduler wait, {launch['stall_long_scoreboard']:.0%} of their time for the trip to L2, "
        f"{launch['stall_barrier']:.0%} at a barrier",
        **busy,
    )


@claim(who="header of wgmma", needs=["persistent.C", "wgmma.C"])
def wgmma_overlaps_products_and_exponentials(evidence: Evidence) -> Answer:
    """At C the tensor and XU pipes are busy for more of the time in sum than one can be alone."""
    before, after = (evidence.load(v, "C").launch for v in ("persistent", "wgmma"))
    one, other = (x["tensor_busy_active"] + x["xu_busy_active"] for x in (before, after))
    return decide(
        other > 1,
        f"tensor and XU in sum {one:.0%} of the active time before, {other:.0%} now; "
        f"{timed(evidence, 'persistent.C', 'wgmma.C').sentence}",
        before=one,
        after=other,
    )
