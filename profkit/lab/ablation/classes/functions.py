"""Special functions and divisions that cost as much as an addition."""

from __future__ import annotations

from profkit.lab.ablation import ptx
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    Refused,
    SurveyedCode,
    format_count,
    make_nothing_to_remove_refusal,
    say_unchanged,
)
from profkit.lab.ablation.ptx import PtxEdits
from profkit.lab.ablation.removal import find_statements
from profkit.lab.ablation.steering import find_steering

_FUNCTIONS = "ex2. lg2. rcp. rsqrt. sqrt. sin. cos. tanh. div. rem.".split()
_TYPES = frozenset({"f32", "s32", "u32", "s64", "u64"})


def use_cheaper_functions(code: SurveyedCode) -> CodeChange:
    found = []
    for statement in find_statements(code, *_FUNCTIONS):
        if statement.words[-1] in _TYPES:
            found.append(statement)
    if not found:
        raise make_nothing_to_remove_refusal("it has no special function and no division")
    changes, replaced = PtxEdits(code.module), 0
    for kernel in code.module.kernels.values():
        steering = find_steering(kernel)
        for statement in kernel.statements:
            if statement in found and not steering.is_made_by(statement):
                to, *values = statement.operands
                kind, guard = statement.words[-1], ptx.write_guard(statement)
                text = f"{guard}add.{kind} {to}, {values[0]}, {values[-1]};"
                changes.replace_statement(statement, text)
                replaced += 1
    if not replaced:
        raise Refused(
            "steers",
            f"all {len(found)} special functions and divisions decide a branch or an address",
            "one that does not",
            "divide by constants, or by powers of two: then no division is left",
        )
    return CodeChange(
        text=changes.write_edited_module(),
        table=b"",
        control=b"",
        changed=f"{format_count(replaced, 'function')} replaced by an addition: other code",
        kept=say_unchanged(len(found) - replaced, "that decide a branch or an address"),
        other_code=True,
    )


ABLATION = Ablation(
    id="cheap-functions",
    title="special functions and divisions",
    reachable=False,
    rules=("xu-pipe",),
    probes=("xu-exp", "redundant-exp", "silu-half"),
    keeps="LDG STG LDS STS BAR HMMA",
    make=use_cheaper_functions,
)
