"""V3's acceptance gate (document 000), as it was stated, and the part that a kernel can meet."""

from __future__ import annotations

from arithmetic import L4, V

from profkit.evidence.claims import (
    Answer,
    at_least,
    claim,
    decide,
    gate,
    timed,
    undecided,
)
from profkit.evidence.runs import Evidence

BASELINE, CANDIDATE = "v2.B", "v3.B"
BOTH = [BASELINE, CANDIDATE]
LIBRARY = "sdpa.B"
# 0.255 ms against V2's 0.3184 ms on an L4: a ratio, to be asked of any GPU.
FACTOR = 0.3184 / 0.255
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
DOCUMENT = "document 000: acceptance of V3"


@claim(who=DOCUMENT, needs=BOTH)
def latency(evidence: Evidence) -> Answer:
    """At most 0.255 ms, against V2's 0.3184 ms: at least 1.249 times faster."""
    found = timed(evidence, BASELINE, CANDIDATE)
    return decide(
        at_least(found.speedup, FACTOR),
        f"V3 against V2: {found.sentence}",
        speedup=found.speedup.median,
        needed=FACTOR,
    )


@claim(who=DOCUMENT, needs=BOTH)
def intervals_apart(evidence: Evidence) -> Answer:
    """The 95 % intervals of V2's and V3's medians do not overlap."""
    found = timed(evidence, BASELINE, CANDIDATE)
    spans = [f"{x.low * 1e6:.2f} to {x.high * 1e6:.2f} us" for x in (found.before, found.after)]
    return decide(not found.before.overlaps(found.after), " and ".join(spans))


@claim(who=DOCUMENT, needs=BOTH)
def effect_size(evidence: Evidence) -> Answer:
    """Hedges' g is at least 0.8."""
    g = timed(evidence, BASELINE, CANDIDATE).hedges_g
    return decide(
        g >= 0.8,
        f"g is {g:.1f}; at a spread of 5 us and a difference of 63 us it is above 10, so this "
        "never decides",
        hedges_g=g,
    )


def _points(evidence: Evidence, metric: str) -> tuple[float, float]:
    one, other = (evidence.load(*name.split(".")).launch[metric] for name in BOTH)
    return one, other


@claim(who=DOCUMENT, needs=BOTH)
def l2_hit_rate(evidence: Evidence) -> Answer:
    """The L2 hit rate rises by at least 8 percentage points."""
    before, after = _points(evidence, "l2_hit")
    asked = [b / 1e6 for b in _points(evidence, "l2_read_bytes")]
    return decide(
        after - before >= 0.08,
        f"{100 * before:.1f} % to {100 * after:.1f} %, {(after - before) * 100:+.1f} points: L2 was "
        f"asked for {asked[0]:.1f} MB and then {asked[1]:.1f}; what misses is read once either way, so "
        "a kernel that reuses more hits less, and no better kernel could meet this part",
        before=before,
        after=after,
    )


@claim(who=DOCUMENT, needs=BOTH)
def dram_share(evidence: Evidence) -> Answer:
    """The DRAM share of peak falls by at least 10 percentage points."""
    before, after = _points(evidence, "dram_busy")
    room = "" if before >= 0.10 else f": V2 is at {before:.1%}, there are no 10 points to lose"
    return decide(
        before - after >= 0.10,
        f"{before:.1%} to {after:.1%}, {(after - before) * 100:+.1f} points{room}",
        before=before,
        after=after,
    )


@claim(who="arithmetic on document 000's own times")
def ten_points_of_dram_were_there(_: Evidence) -> Answer:
    """On an L4 V2 used enough DRAM bandwidth to lose 10 percentage points of it."""
    share = V.bytes / 318.4e-6 / L4.dram
    return decide(
        share >= 0.10,
        f"its compulsory bytes are {share:.1%} of the peak: no kernel could ever meet this part",
        dram_share=share,
    )


@claim(who=DOCUMENT, needs=[CANDIDATE])
def sanitizers(evidence: Evidence) -> Answer:
    """No invalid access, race, uninitialised read or synchronisation error."""
    record = evidence.load(*CANDIDATE.split(".")).record
    said = record.sanitizers if record else {}
    missing = [tool for tool in TOOLS if tool not in said]
    if missing:
        return undecided(
            f"{', '.join(missing)} did not run",
            "profkit check --variant v3 --sanitize",
            "profkit profile --variant v3 --case B",
        )
    return decide(
        all(said[tool] == "clean" for tool in TOOLS), "; ".join(f"{t}: {said[t]}" for t in TOOLS)
    )


def _error(evidence: Evidence, name: str) -> float | None:
    """Largest relative error of an element, of all that was checked."""
    record = evidence.load(*name.split(".")).record
    return record.max_rel if record else None


@claim(who=DOCUMENT, needs=[CANDIDATE, LIBRARY])
def numerics(evidence: Evidence) -> Answer:
    """The largest relative error of any element is at most 1e-2."""
    ours, theirs = (_error(evidence, name) for name in (CANDIDATE, LIBRARY))
    if ours is None:
        return undecided("V3 was not checked", "profkit profile --variant v3 --case B")
    beside = "" if theirs is None else f", SDPA's at its one case {theirs:.2g}"
    return decide(
        ours <= 1e-2,
        f"largest relative error {ours:.2g}{beside}: near zero the terms of an output cancel and "
        "their rounding does not, so no kernel with fp16 inputs could ever meet this part",
        max_rel=ours,
        max_rel_sdpa=theirs,
    )


@claim(who="the part of the same that says something: absolute and relative", needs=[CANDIDATE])
def checked(evidence: Evidence) -> Answer:
    """Every element is within 1e-3 + 1e-3 of its value, on every size and seed."""
    record = evidence.load(*CANDIDATE.split(".")).record
    if record is None or record.correct is None or record.max_abs is None:
        return undecided("V3 was not checked", "profkit profile --variant v3 --case B")
    return decide(
        record.correct,
        f"the check against fp64 {'passed' if record.correct else 'failed'}, largest error "
        f"{record.max_abs:.2g}",
        max_abs=record.max_abs,
    )


@claim(who=DOCUMENT, needs=[CANDIDATE])
def shared_memory(evidence: Evidence) -> Answer:
    """At most 48 KB of shared memory per block."""
    launch = evidence.load(*CANDIDATE.split(".")).launch
    shared = launch["shared_static"] + launch["shared_dynamic"]
    blocks = L4.blocks(launch["registers"], shared, launch["block_size"])
    return decide(
        shared <= 48 * 1024,
        f"{shared / 1024:.1f} KB; 48 KB is the limit of static shared memory only, dynamic goes to "
        "99 KB on an L4",
        shared_kb=shared / 1024,
    ).elsewhere(f"L4 (computed): {blocks} blocks per SM")


@claim(who=DOCUMENT, needs=[CANDIDATE])
def registers(evidence: Evidence) -> Answer:
    """At most 96 registers per thread."""
    launch = evidence.load(*CANDIDATE.split(".")).launch
    count, shared = launch["registers"], launch["shared_static"] + launch["shared_dynamic"]
    with_96, now = (L4.blocks(n, shared, launch["block_size"]) for n in (96, count))
    return decide(
        count <= 96,
        f"{count:.0f} registers: scores, probabilities and output live in them, which is the design; "
        f"the grid has {launch['grid_size'] / launch['sm_count']:.2f} blocks per SM, so fewer would "
        "let nothing more in here",
        registers=count,
    ).elsewhere(f"L4 (computed): {now} blocks per SM, with 96 registers {with_96}")


AS_STATED = gate(
    "V3, as document 000 states it",
    [
        latency,
        intervals_apart,
        effect_size,
        l2_hit_rate,
        dram_share,
        sanitizers,
        numerics,
        shared_memory,
        registers,
    ],
    binding=False,  # three of its parts ask for what no kernel could give
)
ATTAINABLE = gate(
    "V3, without the parts that no kernel could meet",
    [latency, intervals_apart, effect_size, sanitizers, checked, shared_memory, registers],
)
