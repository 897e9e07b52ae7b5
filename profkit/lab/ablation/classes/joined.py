"""Blocks joined: one block does the work of two, a statement of each after the other.

What they have in common is done once: branches, barriers, and what does not follow from the block's
place in the grid. All else is done for each, in registers and shared memory of its own: each access
is made as often as before, and to the same place. Where they would branch apart, the thread ends: if
many do, the counts of instructions say so, and the change is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from profkit.lab.ablation import launches, ptx
from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    Refused,
    make_nothing_to_remove_refusal,
)
from profkit.lab.ablation.ptx import PtxEdits, PtxKernel, PtxStatement

_MOST_STATIC = 48 << 10  # bytes of shared memory that a kernel may declare
_BANKS = 128  # bytes: so far apart, two words are on one bank
_DECLARED = re.compile(
    r"^[ \t]*(\.extern\s+)?\.(shared|local)\s+(?:\.align\s+\d+\s+)?"
    r"\.(\w+)\s+([\w$]+)\s*((?:\[\d*\])*)\s*;",
    re.MULTILINE,
)
_NAME = re.compile(r"%[\w$]+(?:\.[xyz])?|[A-Za-z_$][\w$]*(?:\s*\+\s*\d+)?")
_MEMORY = frozenset("ld ldu st atom red ldmatrix stmatrix wmma tex suld sust".split())
_ALIKE = frozenset("param const".split())  # memory that no block writes
_FLOW = frozenset("bra brx ret exit trap bar barrier nanosleep call".split())
# What belongs to a block as a whole, and cannot be had twice in one.
_WHOLE = (
    "mbarrier.",
    "wgmma.",
    "tcgen05.",
    "cp.async.bulk.",
    "barrier.cluster.",
    "setmaxnreg.",
)
_BLOCK = "%profkit_block"
_BLOCKS = "%profkit_blocks"
_APART = "%profkit_apart"


class BlocksJoined(Ablation):
    id = "joined"
    title = "little work per block"
    reachable = True
    rules = ("short-blocks",)
    probes = ("occupancy-blocks", "barrier-late")  # other code: more is done at once
    together = 2  # blocks

    def make_change(self) -> CodeChange:
        if len(self.code.grids) != 1:
            raise _make_shape_refusal("it launches several kernels", "one kernel")
        (name, grid), *_ = self.code.grids.items()
        axis = launches.rank_axes_longest_first(grid)[0]
        at_once = self.code.blocks_at_once
        if prod(grid) < self.together * at_once or not self.code.find_executed_statements(""):
            seen = f"{prod(grid)} blocks, of which {at_once} are on the GPU at once"
            raise make_nothing_to_remove_refusal(seen)
        if grid[axis] < self.together:
            threshold = f"{self.together} blocks"
            raise _make_shape_refusal("no side of its grid has so many blocks", threshold)
        self.refuse_statements_of_whole_blocks()
        kernel = self.code.module.kernels[name]
        changes = PtxEdits(self.code.module)
        joining = _Joining(kernel, changes, self.together)
        text = joining.write_joined_blocks("xyz"[axis], self.code.dynamic_shared)
        changed = (
            f"1/{self.together} of the blocks, each with the work of {self.together}: other code"
        )
        return CodeChange(
            text,
            changed,
            other_code=True,
            part=self.together,
            axis=axis,
            more_shared=(self.together - 1) * _round_up(self.code.dynamic_shared),
        )

    def refuse_statements_of_whole_blocks(self) -> None:
        if self.code.find_executed_statements("call."):
            raise _make_shape_refusal("functions are called in it", "code without calls")
        whole = self.code.find_executed_statements(*_WHOLE)
        if whole:
            seen = f"{whole[0].opcode} belongs to a block as a whole"
            raise _make_shape_refusal(seen, "none that belongs to a block as a whole")


def _make_shape_refusal(seen: str, threshold: str) -> Refused:
    remedy = "write and time a version in which each thread does more: two elements, or two rows"
    return Refused("other-work", seen, threshold, remedy)


def _round_up(size_bytes: int) -> int:
    return -(-size_bytes // _BANKS) * _BANKS


class _Joining:
    """One kernel whose blocks are joined."""

    def __init__(self, kernel: PtxKernel, changes: PtxEdits, together: int) -> None:
        self.kernel = kernel
        self.changes = changes
        self.together = together
        self.shifts: dict[str, int] = {}  # array of a block or a thread -> bytes to the second one
        self.twice: set[str] = set()  # registers that each of two blocks has

    def write_joined_blocks(self, axis: str, dynamic_shared: int) -> str:
        """Return the module in which blocks that follow one another along an axis are joined."""
        self.place = f"%ctaid.{axis}"
        self.count = f"%nctaid.{axis}"
        self.enlarge_arrays(dynamic_shared)
        doubled = self.find_doubled_statements()
        for name in sorted(self.twice):
            kind = self.kernel.types.get(name)
            if kind is None:
                raise _make_shape_refusal(f"{name} is written in it", "registers only")
            others = [_name_for_block(name, number) for number in range(1, self.together)]
            self.changes.add_registers(kind, *others)
        self.begin_blocks()
        for statement in self.kernel.statements:
            self.rewrite_statement(statement, statement.start in doubled)
        return self.changes.write_edited_module()

    def begin_blocks(self) -> None:
        """Let each thread know the places of its blocks in the grid, and how many there are."""
        self.changes.add_registers("pred", _APART)
        self.changes.add_registers("b32", _BLOCKS)
        begin = [
            f"mov.u32 {_BLOCKS}, {self.count};",
            f"mul.lo.u32 {_BLOCKS}, {_BLOCKS}, {self.together};",
        ]
        for number in range(self.together):
            block = f"{_BLOCK}{number}"
            self.changes.add_registers("b32", block)
            begin += [
                f"mov.u32 {block}, {self.place};",
                f"mul.lo.u32 {block}, {block}, {self.together};",
            ]
            begin.append(f"add.u32 {block}, {block}, {number};")
        self.changes.insert_before(self.kernel.statements[0], "\n".join(begin))

    def enlarge_arrays(self, dynamic_shared: int) -> None:
        """Have room for the other blocks' parts behind each array of a block, and of a thread."""
        total = 0
        for match in _DECLARED.finditer(self.changes.module.text):
            is_dynamic, space, kind, name, sizes = match.groups()
            if is_dynamic:
                self.shifts[name] = _round_up(dynamic_shared)
                continue
            size = ptx.count_bytes_of_type(kind) * prod(map(int, re.findall(r"\d+", sizes)))
            self.shifts[name] = _round_up(size)
            size += (self.together - 1) * _round_up(size)
            declared = f"\t.{space} .align {_BANKS} .b8 {name}[{size}];"
            self.changes.pieces.append((match.start(), match.end(), declared))
            if space == "shared":
                total += size
        if total > _MOST_STATIC:
            seen = f"{self.together} of its blocks have {total} bytes of shared memory"
            raise _make_shape_refusal(seen, f"{_MOST_STATIC} bytes")

    def find_doubled_statements(self) -> set[int]:
        """Return where the statements begin that each of two blocks does for itself."""
        doubled: set[int] = set()
        before = -1
        while before < len(doubled) + len(self.twice):  # until nothing is added
            before = len(doubled) + len(self.twice)
            for statement in self.kernel.statements:
                if self.is_doubled(statement):
                    doubled.add(statement.start)
                    self.twice.update(ptx.list_written_registers(statement))
                    self.twice.discard("_")  # what nobody wants of a result
        return doubled

    def is_doubled(self, statement: PtxStatement) -> bool:
        """Return whether a statement is not the same for two blocks, or is to be done for each."""
        words = statement.words
        named = {match[0].partition("+")[0].strip() for match in _find_names(statement.operands)}
        differs = self.twice | self.shifts.keys() | {self.place}
        if words[0] in _FLOW:
            return words[0] != "bra" and not differs.isdisjoint(named)
        is_copy = statement.opcode.startswith("cp.async.c") and len(statement.list_addresses()) == 2
        if is_copy or (words[0] in _MEMORY and _ALIKE.isdisjoint(words)):
            return True
        written = ptx.list_written_registers(statement)
        return statement.guard in self.twice or not differs.isdisjoint([*named, *written])

    def rewrite_statement(self, statement: PtxStatement, is_doubled: bool) -> None:
        if statement.words[0] in _FLOW and statement.guard in self.twice:
            for number in range(1, self.together):
                both = f"{statement.guard}, {_name_for_block(statement.guard, number)}"
                lines = f"xor.pred {_APART}, {both};\n@{_APART} exit;"
                self.changes.insert_before(statement, lines)
        blocks = range(self.together if is_doubled else 1)
        texts = [self.write_for_block(statement, number) for number in blocks]
        if is_doubled or self.count in "".join(statement.operands):
            self.changes.replace_statement(statement, "\n\t".join(texts))

    def write_for_block(self, statement: PtxStatement, number: int) -> str:
        """Return a statement as one of the joined blocks does it."""

        def name_in_block(match: re.Match[str]) -> str:
            word = match[0]
            if word == self.place:
                return f"{_BLOCK}{number}"
            if word == self.count:
                return _BLOCKS
            if number and word in self.twice:
                return _name_for_block(word, number)
            name, _, offset = word.partition("+")
            shift = number * self.shifts.get(name.strip(), 0)
            return f"{name.strip()}+{int(offset or 0) + shift}" if shift else word

        operands = [_NAME.sub(name_in_block, operand) for operand in statement.operands]
        guard = _NAME.sub(name_in_block, statement.condition)
        return ptx.write_statement(statement, guard, operands)


def _find_names(operands: Sequence[str]) -> list[re.Match[str]]:
    found: list[re.Match[str]] = []
    for operand in operands:
        found += _NAME.finditer(operand)
    return found


def _name_for_block(register: str, number: int) -> str:
    return f"%profkit_j{number}_{register.lstrip('%')}"


ABLATION = BlocksJoined
