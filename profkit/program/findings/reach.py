"""What each kind of fix leaves: at worst, as expected, at best. The only place of these shares."""

from __future__ import annotations

from profkit.program.savings.scenario import Reach

REACH = {
    # The host.
    "launches in a graph": Reach(0.35, 0.03, 0.0),
    "pauses done ahead": Reach(0.4, 0.05, 0.0),
    "allocations kept": Reach(0.3, 0.0, 0.0),
    "values read once": Reach(0.5, 0.1, 0.1),
    "values not wanted": Reach(1.0, 1.0, 0.1),
    "sizes that are known": Reach(1.0, 0.1, 0.0),
    "copies in one": Reach(0.6, 0.05, 0.0),
    # Of a merged launch's host time.
    "launch of a chain": Reach(0.1, 0.1, 0.1),
    "launch of a parameter": Reach(0.02, 0.02, 0.02),
    "launch of a cast": Reach(1.0, 1.0, 0.1),
    # Transfers: times the pinned rate's time; what stays exposed beside learning, or without it.
    "copy pinned": Reach(1.6, 1.0, 0.9),
    "copy in its place": Reach(1.0, 0.0, 0.0),
    "collective beside learning": Reach(0.7, 0.25, 1.0),
    "collective": Reach(1.0, 0.25, 1.0),
    "collective in its place": Reach(1.0, 1.0, 0.0),
    # Layouts: conversions round a convolution go, what a product reads in either order nearly goes,
    # a permuted copy may be needed by what reads it.
    "layout of images": Reach(0.45, 0.2, 0.0),
    "layout of products": Reach(0.6, 0.15, 0.0),
    "layout": Reach(1.0, 0.6, 0.1),
    # At best every part is written where it belongs; at worst what makes it cannot.
    "join": Reach(0.8, 0.3, 0.0),
    # Of what moves 8 bytes a value, moving 4.
    "float64": Reach(0.65, 0.5, 0.45),
    # What the fused call takes of the products it replaces, which write and read the scores: on an
    # H200 0.34 forward and 0.47 backward where a causal mask leaves half of the work; twice that
    # without one is inferred, not seen.
    "attention": Reach(1.1, 0.6, 0.33),
    # What padding leaves, with newer units that odd sizes cannot use, or without. An H200 took a
    # sixth for a vocabulary of 50,304 in place of 50,257; before 9.0 nothing was measured.
    "padding, newer": Reach(0.6, 0.2, 0.14),
    "padding, older": Reach(0.9, 0.5, 0.3),
    # Of casts of one size all but one are of a tensor that was cast before, at best; at worst each is
    # of a tensor of its own, and half of them are needed.
    "casts": Reach(0.6, 0.12, 0.0),
    "sums in half precision": Reach(0.8, 0.5, 0.4),  # half of the bytes
    # Adam touches four tensors and writes three; done singly it does so in 18 to 20 accesses.
    "adam": Reach(0.6, 0.4, 0.3),
    # One H200, 50 of 32,000 in bfloat16: topk took a quarter of the sort.
    "sort": Reach(0.6, 0.3, 0.1),
}
