"""V3's acceptance gate (document 000), as it was stated, and the part that a kernel can meet."""

from __future__ import annotations

from arithmetic import L4, V

from profkit.evidence.claims import Answer, at_least, claim, decide, gate, timed, undecided
from profkit.evidence.runs import Evidence

BASELINE, CANDIDATE = "v2.B", "v3.B"
BOTH = [BASELINE, CANDIDATE]
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
    room = (
        "" if before <= 0.92 else f": V2 is at {before:.1%} already, no kernel could add 8 points"
    )
    return decide(
        after - before >= 0.08,
        f"{before:.1%} to {after:.1%}, {(after - before) * 100:+.1f} points{room}",
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
    """No race, no uninitialised read, no synchronisation error."""
    record = evidence.load(*CANDIDATE.split(".")).record
    said = record.sanitizers if record else {}
    missing = [tool for tool in TOOLS if tool not in said]
    if missing:
        return undecided(
            f"{', '.join(missing)} did not run", "profkit profile --variant v3 --case B --sanitize"
        )
    return decide(
        all(said[tool] == "clean" for tool in TOOLS), "; ".join(f"{t}: {said[t]}" for t in TOOLS)
    )


@claim(who=DOCUMENT, needs=[CANDIDATE])
def numerics(evidence: Evidence) -> Answer:
    """The largest relative error is at most 1e-2."""
    record = evidence.load(*CANDIDATE.split(".")).record
    if record is None or record.max_rel is None:
        return undecided("V3 was not checked", "profkit profile --variant v3 --case B")
    return decide(
        record.max_rel <= 1e-2,
        f"largest relative error {record.max_rel:.2g}, absolute {record.max_abs:.2g}; the check "
        f"{'passed' if record.right else 'failed'}",
        max_rel=record.max_rel,
        max_abs=record.max_abs,
    )


@claim(who=DOCUMENT, needs=[CANDIDATE])
def resources(evidence: Evidence) -> Answer:
    """At most 48 KB of shared memory and 96 registers."""
    launch = evidence.load(*CANDIDATE.split(".")).launch
    shared = launch["shared_static"] + launch["shared_dynamic"]
    registers = launch["registers"]
    blocks = L4.blocks(registers, shared, launch["block_size"])
    return decide(
        shared <= 48 * 1024 and registers <= 96,
        f"{shared / 1024:.1f} KB and {registers:.0f} registers; 48 KB is the limit of static shared "
        "memory only, dynamic goes to 99 KB on an L4",
        shared_kb=shared / 1024,
        registers=registers,
    ).elsewhere(f"L4 (computed): {blocks} blocks per SM")


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
        resources,
    ],
    binding=False,  # two of its parts ask for what V2 does not have to give
)
ATTAINABLE = gate(
    "V3, without the two parts that no kernel could meet",
    [latency, intervals_apart, effect_size, sanitizers, numerics, resources],
)
