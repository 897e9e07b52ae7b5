"""Floating-point arithmetic that is issued and does nothing: its units are free, issue slots are not.

What an instruction would have computed is the last value that it reads, so that no compiler may compute
it all the same, and nothing that follows goes with it. Whole numbers stay: they are addresses and
branches.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.lab.ablation.accesses import find_steering
from profkit.lab.ablation.change import (
    Ablation,
    Change,
    Code,
    Refused,
    count_words,
    refuse_nothing,
    say_how_many_stay,
)
from profkit.lab.ablation.ptx import Kernel, Statement, find_written
from profkit.lab.ablation.removal import find_statements, make_switchable

_FLOATS = ("add.", "sub.", "mul.", "fma.", "min.", "max.")
_FUNCTIONS = ("ex2.approx.", "lg2.approx.", "sin.approx.", "cos.approx.", "rsqrt.approx.", "tanh.")
# The last word of an opcode -> the type of a move of so many bits.
_MOVES = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}


def skip_arithmetic(code: Code) -> Change:
    found = []
    for statement in find_statements(code, *_FLOATS, *_FUNCTIONS):
        if statement.words[-1] in _MOVES:
            found.append(statement)
    if not found:
        raise refuse_nothing("it has no floating-point arithmetic")
    free = choose_free_statements(code, found, "floating-point instructions", "each unit is")
    changed = f"{count_words(len(free), 'instruction')} issued, not done; issue slots stay"
    kept = say_how_many_stay(len(found) - len(free), "that decide a branch or an address")
    return make_switchable(code, free, changed, kept, at_once=True, put_first=keep_last)


def choose_free_statements(
    code: Code, statements: Sequence[Statement], what: str, busy: str
) -> list[Statement]:
    """Those of the statements whose results decide no branch and no address; Refused if there are none.

    `what` they are, and whose load is counted: "the tensor cores are".
    """
    wanted = {statement.start for statement in statements}
    free = []
    for kernel in code.module.kernels.values():
        steering = find_steering(kernel)
        for statement in kernel.statements:
            if statement.start in wanted and steering.isdisjoint(find_written(statement)):
                free.append(statement)
    if not free:
        raise Refused(
            "steers",
            f"all {len(statements)} {what} decide a branch or an address",
            "one that does not",
            f"counted instructions say how busy {busy}",
        )
    return free


def keep_last(_: Kernel, statement: Statement) -> tuple[list[str], Sequence[str]]:
    """Let the result be the last operand, and compute from there; or what it was, where that is read."""
    result, last = statement.operands[0], statement.operands[-1]
    if result in statement.operands[1:]:
        return [], statement.operands
    kind = _MOVES[statement.words[-1]]
    return [f"mov.{kind} {result}, {last};"], [*statement.operands[:-1], result]


ABLATION = Ablation(
    id="no-arithmetic",
    title="floating-point arithmetic",
    reachable=False,
    rules=("fp64-pipe", "fp16-pipe"),
    probes=("fp64", "fp16"),
    keeps="DFMA HFMA2",
    make=skip_arithmetic,
)
