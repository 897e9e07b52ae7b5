"""Special functions and divisions that cost as much as an addition."""

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    Refused,
    format_count,
    make_nothing_to_remove_refusal,
    say_unchanged,
)
from profkit.lab.ablation.ptx import PtxEdits
from profkit.lab.ablation.steering import find_what_steers_control_flow

_FUNCTIONS = "ex2. lg2. rcp. rsqrt. sqrt. sin. cos. tanh. div. rem.".split()
_TYPES = frozenset({"f32", "s32", "u32", "s64", "u64"})


class FunctionsCheap(Ablation):
    id = "cheap-functions"
    title = "special functions and divisions"
    rules = ("xu-pipe",)
    probes = ("xu-exp", "redundant-exp", "silu-half")
    keeps = "LDG STG LDS STS BAR HMMA"

    def make_change(self) -> CodeChange:
        found = self.code.find_executed_statements(*_FUNCTIONS)
        found = [statement for statement in found if statement.words[-1] in _TYPES]
        if not found:
            raise make_nothing_to_remove_refusal("it has no special function and no division")
        deciding: set[int] = set()
        for kernel in self.code.module.kernels.values():
            deciding |= find_what_steers_control_flow(kernel).statements
        free = [statement for statement in found if statement.start not in deciding]
        if not free:
            raise Refused(
                "steers",
                f"all {len(found)} special functions and divisions decide a branch or an address",
                "one that does not",
                "divide by constants, or by powers of two: then no division is left",
            )
        changes = PtxEdits(self.code.module)
        for statement in free:
            to, *values = statement.operands
            add = f"{statement.condition}add.{statement.words[-1]}"
            changes.replace_statement(statement, f"{add} {to}, {values[0]}, {values[-1]};")
        changed = f"{format_count(len(free), 'function')} replaced by an addition: other code"
        kept = say_unchanged(len(found) - len(free), "that decide a branch or an address")
        return CodeChange(changes.write_edited_module(), changed, kept, other_code=True)


ABLATION = FunctionsCheap
