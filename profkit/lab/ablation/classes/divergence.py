"""Branches that part the lanes of a warp, which all of them take as one lane does.

Which lane decides differs from warp to warp, so of all warps as large a part takes a side as of all
lanes did before: full warps execute nearly as many instructions in sum. What lies between such a branch
and the place where its sides meet touches no memory, and nothing that it computes decides an address or
a branch behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from profkit.lab.ablation import ptx
from profkit.lab.ablation.accesses import find_deciding
from profkit.lab.ablation.change import (
    Ablation,
    Change,
    Code,
    Refused,
    count_words,
    refuse_nothing,
    say_how_many_stay,
)
from profkit.lab.ablation.flow import (
    find_meetings,
    find_region,
    follow_values,
    list_blocks,
    list_successors,
)
from profkit.lab.ablation.ptx import Changes, Kernel, Module, Statement
from profkit.lab.ablation.readdress import TABLE, add_table

_FLAG = struct.Struct("<I")
_FEWER = 0.95  # of the lanes that come to a branch: where fewer go on, it has parted them
_TOUCHES = frozenset(
    "ld ldu st atom red ldmatrix stmatrix wmma wgmma mma cp mbarrier prefetch tex suld sust bar barrier "
    "shfl vote match redux activemask brx trap nanosleep fence membar".split()
)
# Which lane decides: another one from warp to warp, and from block to block.
_BEGINNING = f"""
mov.u32 %profkit_lane, %tid.y;
mov.u32 %profkit_side, %ntid.x;
mul.lo.u32 %profkit_lane, %profkit_lane, %profkit_side;
mov.u32 %profkit_side, %tid.x;
add.u32 %profkit_lane, %profkit_lane, %profkit_side;
shr.u32 %profkit_lane, %profkit_lane, 5;
mov.u32 %profkit_side, %ctaid.x;
add.u32 %profkit_lane, %profkit_lane, %profkit_side;
mov.u32 %profkit_side, %ctaid.y;
add.u32 %profkit_lane, %profkit_lane, %profkit_side;
and.b32 %profkit_lane, %profkit_lane, 31;
ld.const.u32 %profkit_side, [{TABLE}];
setp.ne.u32 %profkit_joined, %profkit_side, 0;
"""
# That lane, or the next one that has come here, says which way all go; with the control each its own.
_DECIDE = """
selp.u32 %profkit_side, 1, 0, {guard};
activemask.b32 %profkit_here;
shf.r.wrap.b32 %profkit_next, %profkit_here, %profkit_here, %profkit_lane;
brev.b32 %profkit_next, %profkit_next;
clz.b32 %profkit_next, %profkit_next;
add.u32 %profkit_next, %profkit_next, %profkit_lane;
and.b32 %profkit_next, %profkit_next, 31;
shfl.sync.idx.b32 %profkit_next, %profkit_side, %profkit_next, 31, %profkit_here;
selp.b32 %profkit_next, %profkit_next, %profkit_side, %profkit_joined;
setp.ne.u32 %profkit_goes, %profkit_next, 0;
"""


def join_lanes(code: Code) -> Change:
    parting = list(find_parting(code))
    if not parting:
        raise refuse_nothing("no branch parts the lanes of a warp")
    free = [branch for branch, is_free in parting if is_free]
    if not free:
        raise Refused(
            "steers",
            f"all {len(parting)} branches that part a warp lead to memory, or to what decides more",
            "one with nothing but arithmetic between its sides and where they meet",
            "counted instructions say how many lanes work: sort the work, so that warps are alike",
        )
    return Change(
        text=_write_joined(code.module, free),
        table=_FLAG.pack(1),
        control=_FLAG.pack(0),
        changed=f"{count_words(len(free), 'branch', 'branches')} taken by whole warps, as one lane does",
        kept=say_how_many_stay(len(parting) - len(free), "that lead to memory"),
    )


def find_parting(code: Code) -> Iterator[tuple[Statement, bool]]:
    """Branches behind which fewer lanes of a warp go on, and whether they can be taken together.

    So are those that lanes of other kinds come to then: all between one that is and where it meets.
    """
    first, unread = 0, find_unread(code)
    for kernel in code.module.kernels.values():
        successors, blocks = list_successors(kernel), list_blocks(kernel)
        meetings = find_meetings(successors)
        regions: dict[int, set[int]] = {}
        for number, statements in enumerate(blocks):
            meeting = meetings[number]
            if statements and meeting is not None and _is_branch(statements[-1]):
                regions[number] = find_region(number, meeting, successors)
        inside: set[int] = set()
        for number, region in regions.items():
            if number in inside or not _has_parted(code, first, number, region):
                continue
            is_free = _is_alone(code.module, kernel, region, unread)
            yield blocks[number][-1], is_free
            if is_free:
                within = sorted(region & regions.keys() - inside - {number})
                inside.update(within)
                for other in within:
                    yield blocks[other][-1], True
        first += kernel.blocks


def _is_branch(statement: Statement) -> bool:
    return statement.words[0] == "bra" and bool(statement.guard) and "uni" not in statement.words


def _has_parted(code: Code, first: int, number: int, region: Iterable[int]) -> bool:
    """Whether fewer lanes of each warp were in a block between than at the branch."""
    before = _count_lanes(code, first + number)
    for block in region:
        lanes = _count_lanes(code, first + block)
        if block != number and 0 < lanes < _FEWER * before:
            return True
    return False


def _count_lanes(code: Code, block: int) -> float:
    """How many lanes of a warp came to a basic block, in the mean."""
    warps = sum(code.survey.entries[block])
    if not warps:
        return 0.0
    return code.survey.blocks[block] / warps


def find_unread(code: Code) -> set[int]:
    """Where stores begin that no load of the call reads again."""
    stores, read = set(), set()
    for access in code.accesses:
        if access.kind == "load":
            continue
        stores.add(access.statement.start)
        if access.kind == "atomic" or code.is_read_again(access):
            read.add(access.statement.start)
    return stores - read


def _is_alone(module: Module, kernel: Kernel, region: set[int], unread: set[int]) -> bool:
    """Whether a region touches no memory, and nothing that it computes decides anything outside."""
    within = [statement for statement in kernel.statements if statement.block in region]
    if any(_touches_memory(module, statement) for statement in within):
        return False
    reached: set[tuple[str, str]] = set()
    for statement in within:
        reached.update((kernel.name, name) for name in ptx.find_written(statement))
    follow_values(module, reached, unread)
    for other in module.kernels.values():
        for statement in other.statements:
            is_within = other is kernel and statement.block in region
            is_passing = statement.words[0] == "call" or "param" in statement.words
            if is_within or is_passing:  # what is passed on is followed
                continue
            if any((other.name, name) in reached for name in find_deciding(statement)):
                return False
    return True


def _touches_memory(module: Module, statement: Statement, depth: int = 4) -> bool:
    """Whether a statement needs others, or may touch memory that is not its thread's arguments."""
    words = statement.words
    if words[0] == "call":
        called = [module.kernels[name] for name in statement.operands if name in module.kernels]
        if len(called) != 1 or not depth:
            return True
        return any(_touches_memory(module, inner, depth - 1) for inner in called[0].statements)
    return words[0] in _TOUCHES and "param" not in words


def _write_joined(module: Module, branches: Iterable[Statement]) -> str:
    changes = Changes(module)
    add_table(changes, _FLAG.size)
    changes.add_registers("b32", "%profkit_lane", "%profkit_side", "%profkit_here", "%profkit_next")
    changes.add_registers("pred", "%profkit_joined", "%profkit_goes")
    starts = {branch.start for branch in branches}
    for kernel in module.kernels.values():
        own = [statement for statement in kernel.statements if statement.start in starts]
        if own:
            changes.add_beginning(kernel, _BEGINNING.strip().split("\n"))
        for branch in own:
            _join_branch(changes, branch)
    return changes.write_module()


def _join_branch(changes: Changes, branch: Statement) -> None:
    lines = _DECIDE.strip().format(guard=branch.guard)
    changes.put_before(branch, lines.split("\n"))
    guard = "@!%profkit_goes " if branch.negated else "@%profkit_goes "
    changes.replace_statement(branch, ptx.write_statement(branch, guard, branch.operands))


ABLATION = Ablation(
    id="no-divergence",
    title="lanes that part",
    reachable=False,
    rules=("thread-divergence",),
    probes=("diverge2", "diverge8"),
    keeps="",  # which sides are executed is what changes; they are counted
    make=join_lanes,
)
