"""Prefill with grouped queries: causal attention where eight query heads share a key head, fp16.

q and o are (B, H, S, D), k and v (B, K, S, D); query head h reads key head h // (H // K). All else is as
in the problem attention: inputs, tolerance and reference are its own, with k and v repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.lab.measure.variants.problem import load_problem

Half = NDArray[np.float16]
_ATTENTION = load_problem(Path(__file__).parents[1] / "attention").module

ATOL, RTOL = _ATTENTION.ATOL, _ATTENTION.RTOL
SEEDS = (0, 1)
# sdpa and flex are told of the groups (enable_gqa); expanded is sdpa after k and v were repeated.
REFERENCES = ("sdpa", "sdpa-expanded", "flex")


@dataclass(frozen=True)
class Case:
    """Sequences, query heads, key heads, queries and keys, head dimension; causal or not."""

    B: int
    H: int
    K: int
    S: int
    D: int
    causal: bool = True

    @property
    def expanded(self) -> Any:
        """The case of the problem attention that is left when k and v have been repeated."""
        return _ATTENTION.Case(self.B, self.H, self.S, self.D, self.causal)


CASES = {
    "2k-8to1": Case(2, 32, 4, 2048, 128),
    "8k-8to1": Case(1, 8, 1, 8192, 128),
    "4k-8to1-D64": Case(1, 32, 4, 4096, 64),
}
CHECKS = {
    f"S{s}-8to1-D{d}" + ("" if causal else "-full"): Case(b, 8 * k, k, s, d, causal)
    for s in (1, 17, 128, 255, 300)
    for b, k, d in ((2, 1, 64), (1, 2, 128))
    for causal in (True, False)
}


def arguments(case: Case) -> dict[str, Any]:
    """The sizes are B, H, S, D and K; strides are those of q."""
    told: dict[str, Any] = _ATTENTION.arguments(case.expanded)
    return {**told, "size": (*told["size"], case.K)}


def inputs(case: Case, seed: int, grid: str | None = None) -> tuple[Half, ...]:
    """Arrays q (B, H, S, D), k and v (B, K, S, D)."""
    q, k, v = _ATTENTION.inputs(case.expanded, seed, grid)
    return q, k[:, :: case.H // case.K], v[:, :: case.H // case.K]


def outputs(case: Case) -> tuple[tuple[tuple[int, ...], str], ...]:
    """The output o: (B, H, S, D) fp16."""
    return (((case.B, case.H, case.S, case.D), "float16"),)


def reference(case: Case, given: Sequence[Half]) -> tuple[NDArray[np.float64], ...]:
    """The output in fp64: attention with k and v repeated."""
    q, k, v = given
    repeated = (np.repeat(x, case.H // case.K, axis=1) for x in (k, v))
    out: tuple[NDArray[np.float64], ...] = _ATTENTION.reference(case.expanded, (q, *repeated))
    return out


def operations(case: Case) -> float:
    """Multiplications and additions of both products; the causal half counts half."""
    return float(_ATTENTION.operations(case.expanded))


def exponentials(case: Case) -> float:
    """One per score."""
    return float(_ATTENTION.exponentials(case.expanded))


def compulsory_bytes(case: Case) -> float:
    """q, k and v read once, o written once; a group's k and v are one."""
    return 2.0 * case.B * (2 * case.H + 2 * case.K) * case.S * case.D


def reference_call(name: str, case: Case, tensors: Sequence[Any]) -> Callable[[], Any]:
    """PyTorch's attention, told of the groups or given repeated k and v; both are part of the call."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = tensors

    def seen(_b: Any, _h: Any, i: Any, j: Any) -> Any:
        return i >= j

    if name == "flex":
        mask = create_block_mask(seen, None, None, case.S, case.S) if case.causal else None
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)

    def expanded() -> Any:
        group = case.H // case.K
        repeated = (x.repeat_interleave(group, dim=1) for x in (k, v))
        return scaled_dot_product_attention(q, *repeated, is_causal=case.causal)

    def sdpa() -> Any:
        return scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=True)

    return expanded if name == "sdpa-expanded" else sdpa


backend_of = _ATTENTION.backend_of
