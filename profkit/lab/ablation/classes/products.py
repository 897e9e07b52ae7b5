"""Matrix products of tensor cores that are issued and leave their sums as they were."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.lab.ablation.change import (
    Ablation,
    Change,
    Code,
    count_words,
    refuse_nothing,
    say_how_many_stay,
)
from profkit.lab.ablation.classes.arithmetic import choose_free_statements
from profkit.lab.ablation.ptx import Kernel, Statement
from profkit.lab.ablation.removal import find_statements, make_switchable

_SUM = 3  # which operand of a product is added to: it is behind the result and two factors


def skip_products(code: Code) -> Change:
    found = find_statements(code, "mma.", "wmma.mma.", "wgmma.mma_async.")
    if not found:
        raise refuse_nothing("it has no matrix product of tensor cores")
    free = choose_free_statements(code, found, "matrix products", "the tensor cores are")
    changed = f"{count_words(len(free), 'matrix product')} issued, not done"
    kept = say_how_many_stay(len(found) - len(free), "that decide a branch or an address")
    return make_switchable(code, free, changed, kept, at_once=True, put_first=keep_sum)


def keep_sum(kernel: Kernel, statement: Statement) -> tuple[list[str], Sequence[str]]:
    """Let the result be the sum so far; a product of a warp group adds in place."""
    operands = list(statement.operands)
    if statement.words[0] == "wgmma":
        return [], operands
    lines = []
    results, sums = _list_registers(operands[0]), _list_registers(operands[_SUM])
    for result, before in zip(results, sums, strict=True):
        if result == before:
            continue
        bits = kernel.types.get(result, "b32")[1:]
        lines.append(f"mov.b{bits} {result}, {before};")
    operands[_SUM] = operands[0]
    return lines, operands


def _list_registers(operand: str) -> list[str]:
    return [word.strip() for word in operand.strip("{} ").split(",")]


ABLATION = Ablation(
    id="no-products",
    title="matrix products",
    reachable=False,
    rules=("tensor-pipe",),
    probes=("tensor-mma", "tensor-int8"),
    keeps="HMMA IMMA",
    make=skip_products,
)
