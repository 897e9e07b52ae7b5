"""Statements that shall not be done  ->  a module in which a table says whether they are.

As with addresses, the same machine code serves both: the statements are issued, and a predicate that no
compiler knows decides whether they do anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from profkit.ablation import ptx
from profkit.ablation.ptx import Changes, Module, Statement
from profkit.ablation.readdress import TABLE

_DONE = struct.Struct("<I")


def write_predicates(module: Module, statements: Sequence[tuple[str, Statement]]) -> str:
    """The module with statements (kernel, statement) that are done where the table says so."""
    changes = Changes(module)
    size = max(16, _DONE.size * len(statements))
    changes.outside[f".visible .const .align 16 .b8 {TABLE}[{size}];"] = None
    for row, (_, statement) in enumerate(statements):
        changes.registers["%profkit_done"] = "pred"
        changes.registers["%profkit_word"] = "b32"
        lines = [
            f"ld.const.u32 %profkit_word, [{TABLE}+{_DONE.size * row}];",
            "setp.ne.u32 %profkit_done, %profkit_word, 0;",
        ]
        if statement.guard and statement.negated:
            changes.registers["%profkit_not"] = "pred"
            lines.append(f"not.pred %profkit_not, {statement.guard};")
            lines.append("and.pred %profkit_done, %profkit_done, %profkit_not;")
        elif statement.guard:
            lines.append(f"and.pred %profkit_done, %profkit_done, {statement.guard};")
        changes.put_before(statement, lines)
        text = ptx.write_statement(statement, "@%profkit_done ", statement.operands)
        changes.replace(statement, text)
    return changes.write()


def fill_predicates(rows: int, left_out: Iterable[int]) -> bytes:
    """The table that leaves out the statements of these rows."""
    gone = set(left_out)
    return b"".join(_DONE.pack(0 if row in gone else 1) for row in range(rows)) or bytes(16)
