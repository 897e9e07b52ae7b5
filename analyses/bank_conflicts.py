"""Were shared-memory bank conflicts the bottleneck of stage 2?"""

from __future__ import annotations

from collections.abc import Callable

from arithmetic import B, computed_l4

from profkit.evidence.claims import Answer, at_least, claim, decide, timed
from profkit.evidence.runs import Evidence

ROW = 128  # bytes of an un-padded row of 64 halves
BANKS, WORD, CHUNK = 32, 4, 16


def _banks(address: Callable[[int, int], int]) -> int:
    """Banks that ldmatrix touches when it reads one 16-byte chunk of each of 8 rows."""
    words = {(address(row, 0) + byte) // WORD for row in range(8) for byte in range(0, CHUNK, WORD)}
    return len({word % BANKS for word in words})


@claim(who="the original's helper: row ^= column & 3")
def row_xor_spreads_the_banks(_: Evidence) -> Answer:
    """XOR of the row number with column bits spreads 8 rows over more banks."""
    plain = _banks(lambda row, column: row * ROW + column * 2)
    row_xor = _banks(lambda row, column: (row ^ (column & 3)) * ROW + column * 2)
    chunk = _banks(lambda row, column: row * ROW + ((column // 8) ^ (row & 7)) * CHUNK)
    return decide(
        row_xor > plain,
        f"8 rows x 16 B touch {plain} of 32 banks before and {row_xor} after: with rows of 128 B "
        f"the bank does not depend on the row; XOR of the 16-byte chunk with the row touches {chunk}",
        plain=plain,
        row_xor=row_xor,
        chunk_xor=chunk,
    )


@claim(who="the same helper, counted", needs=["stage2.B", "stage2rowxor.B"])
def row_xor_removes_conflicts(evidence: Evidence) -> Answer:
    """The row XOR removes the shared-memory conflicts of stage 2."""
    before, after = (evidence.load(v, "B").launch for v in ("stage2", "stage2rowxor"))
    return decide(
        after["shared_ld_conflicts"] < 0.5 * before["shared_ld_conflicts"],
        f"conflicts per wavefront of shared loads: {before['shared_ld_conflicts']:.1%} before, "
        f"{after['shared_ld_conflicts']:.1%} after",
        before=before["shared_ld_conflicts"],
        after=after["shared_ld_conflicts"],
    )


@claim(who="the ladder: a swizzle of 16-byte chunks", needs=["stage2.B", "stage2swizzle.B"])
def a_real_swizzle_removes_conflicts(evidence: Evidence) -> Answer:
    """A swizzle of 16-byte chunks removes the conflicts of shared-memory loads."""
    before, after = (evidence.load(v, "B").launch for v in ("stage2", "stage2swizzle"))
    return decide(
        after["shared_ld_conflicts"] < 0.2 * before["shared_ld_conflicts"],
        f"conflicts per wavefront of shared loads: {before['shared_ld_conflicts']:.1%} before, "
        f"{after['shared_ld_conflicts']:.1%} after; wavefronts {before['shared_wavefronts']:.3g} "
        f"and {after['shared_wavefronts']:.3g}",
        before=before["shared_ld_conflicts"],
        after=after["shared_ld_conflicts"],
    )


@claim(
    who="document 001: the swizzle regressed 6.1 %, so conflicts are not the bottleneck",
    needs=["stage2.B", "stage2swizzle.B"],
)
def conflicts_are_not_the_bottleneck(evidence: Evidence) -> Answer:
    """Without bank conflicts stage 2 is less than 1.1 times faster."""
    found = timed(evidence, "stage2.B", "stage2swizzle.B")
    more = at_least(found.speedup, 1.1)
    return decide(
        None if more is None else not more,
        f"the swizzled stage 2 against stage 2: {found.sentence}. The original never tried it: its "
        "flag changed no code",
        speedup=found.speedup.median,
        low=found.speedup.low,
        high=found.speedup.high,
    ).elsewhere(
        f"L4 (computed): the same {BANKS} banks of {WORD} bytes, so the same conflicts",
        *(computed_l4(evidence.load(v, "B").launch, B) for v in ("stage2", "stage2swizzle")),
    )
