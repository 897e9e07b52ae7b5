"""A kernel's basic blocks  ->  where control goes, where the ways of a branch meet, what is between."""

from __future__ import annotations

from collections.abc import Collection

from profkit.lab.ablation import ptx
from profkit.lab.ablation.ptx import Kernel, Module, Statement

_LEAVES = frozenset({"ret", "exit", "trap"})
_LOADS = frozenset("ld ldu ldmatrix atom wmma".split())
_STORES = frozenset("st stmatrix atom red wmma".split())
_SPACES = ("shared", "local", "param", "global")


def list_blocks(kernel: Kernel) -> list[list[Statement]]:
    """The statements of each basic block; a block between two labels has none."""
    blocks: list[list[Statement]] = [[] for _ in range(kernel.blocks)]
    for statement in kernel.statements:
        blocks[statement.block].append(statement)
    return blocks


def list_successors(kernel: Kernel) -> list[set[int]]:
    """The blocks that control can go to from each; the number of blocks stands for the end."""
    end = kernel.blocks
    successors = []
    for number, statements in enumerate(list_blocks(kernel)):
        following = {number + 1}
        if statements:
            last = statements[-1]
            if last.words[0] == "bra":
                target = {kernel.labels.get(last.operands[0], end)}
                following = target | following if last.guard else target
            elif last.words[0] == "brx":
                following = set(kernel.labels.values())
            elif last.words[0] in _LEAVES:
                following = {end, number + 1} if last.guard else {end}
        successors.append(following)
    return successors


def find_meetings(successors: list[set[int]]) -> list[int | None]:
    """For each block the first one that every way from it comes through; None where there is none."""
    end = len(successors)
    every = (1 << (end + 1)) - 1
    through = [every] * end + [1 << end]  # as bits: the blocks that every way comes through
    is_changed = True
    while is_changed:
        is_changed = False
        for number in range(end - 1, -1, -1):
            common = every
            for following in successors[number]:
                common &= through[following]
            common |= 1 << number
            if common != through[number]:
                through[number] = common
                is_changed = True
    meetings: list[int | None] = []
    for number in range(end):
        others = through[number] & ~(1 << number)
        meetings.append(_find_first(others, through))
    return meetings


def _find_first(others: int, through: list[int]) -> int | None:
    """The one of these blocks from which every way comes through all others of them."""
    left = others
    while left:
        number = left.bit_length() - 1
        if through[number] == others:
            return number
        left &= ~(1 << number)
    return None


def find_region(start: int, meeting: int, successors: list[set[int]]) -> set[int]:
    """The blocks on the ways from a branch to where they meet; itself where one comes back to it."""
    region: set[int] = set()
    waiting = list(successors[start])
    while waiting:
        number = waiting.pop()
        if number == meeting or number in region or number >= len(successors):
            continue
        region.add(number)
        waiting += successors[number]
    return region


def follow_values(
    module: Module, reached: set[tuple[str, str]], unread: Collection[int] = ()
) -> None:
    """Add every register that these registers' values reach: through memory and calls too.

    A register is the name of its kernel and its own; of a space of memory the first is empty.
    `unread`: where stores begin that nobody reads again.
    """
    size = -1
    while len(reached) > size:  # until nothing is added
        size = len(reached)
        for kernel in module.kernels.values():
            for statement in kernel.statements:
                _follow_statement(kernel, statement, reached, unread)


def _follow_statement(
    kernel: Kernel, statement: Statement, reached: set[tuple[str, str]], unread: Collection[int]
) -> None:
    sources = [*ptx.find_read(statement), statement.guard]
    is_reached = any((kernel.name, name) in reached for name in sources)
    first = statement.words[0]
    if first in _LOADS and not is_reached:
        spaces = _list_spaces(kernel, statement)
        is_reached = any(("", space) in reached for space in spaces)
    if not is_reached:
        return
    reached.update((kernel.name, name) for name in ptx.find_written(statement))
    if first in _STORES and statement.start not in unread:
        reached.update(("", space) for space in _list_spaces(kernel, statement))


def _list_spaces(kernel: Kernel, statement: Statement) -> list[str]:
    """The spaces that an access may be to; none for what the host passes to a kernel."""
    named = [word.partition("::")[0] for word in statement.words]
    spaces = [space for space in _SPACES if space in named]
    if spaces == ["param"] and kernel.is_entry:
        addresses = statement.list_addresses()
        if addresses and addresses[0].base.startswith(kernel.name):
            return []
    return spaces or ["shared", "local", "global"]
