"""Waits for matrix products of warp groups, left out: the assembler waits where sums are read."""

from __future__ import annotations

from profkit.lab.ablation.change import Ablation, Change, Code, format_count, refuse_absent
from profkit.lab.ablation.ptx import Changes
from profkit.lab.ablation.removal import find_statements


def leave_out_waits(code: Code) -> Change:
    waits = find_statements(code, "wgmma.wait_group.")
    if not waits:
        raise refuse_absent("it waits for no matrix product of a warp group")
    changes = Changes(code.module)
    for statement in waits:
        changes.replace_statement(statement, "")
    return Change(
        text=changes.write_module(),
        table=b"",
        control=b"",
        changed=f"{format_count(len(waits), 'wait')} left out: other code",
        other_code=True,
    )


ABLATION = Ablation(
    id="no-product-waits",
    title="waits for matrix products",
    reachable=False,
    rules=("wgmma-wait",),
    probes=("wgmma-serial",),
    keeps="HGMMA",
    make=leave_out_waits,
)
