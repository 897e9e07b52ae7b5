"""What a line of a model computes, told by the sizes of what it reads: the planted truth."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = ("models.py", "parts.py", "train.py")


@dataclass(frozen=True)
class Mark:
    """One line, and how its kernels are known."""

    line: str  # its name: the comment at its end
    module: str  # that computes it; empty: none, or any
    sizes: frozenset[int]  # all of them are among the sizes of its tensors
    words: str = ""  # a pattern for the names of its operators; empty: any
    phase: str = ""  # forward or backward; empty: both


def mark(line: str, module: str, *sizes: int, words: str = "", phase: str = "") -> Mark:
    """Make a mark."""
    return Mark(line, module, frozenset(sizes), words, phase)


def mark_linear(line: str, module: str, given: int, made: int) -> Iterator[Mark]:
    """Yield the marks of a linear layer: its products, and the sum that is its bias's gradient."""
    yield mark(line, module, given, made)
    yield mark(line, module, made, words="addmm|linear")


def mark_block(marks: Collection[Mark], *sizes: int) -> Iterator[Mark]:
    """Yield marks of sums of gradients of these sizes: they are of any line of a block."""
    for one in {(own.line, own.module) for own in marks}:
        yield mark(*one, *sizes, words=r"evaluate_function|^aten::add_?$", phase="backward")


def find_lines() -> dict[str, str]:
    """Return the place of each line that has a name, as file:line."""
    lines = {}
    for name in PROGRAMS:
        text = (HERE / name).read_text("utf-8")
        for number, line in enumerate(text.split("\n"), 1):
            if found := re.search(r"  # ([a-z][\w ]+)$", line):
                lines[found[1]] = f"{name}:{number}"
    return lines


def tell_marks(
    marks: Collection[Mark], sizes: Collection[int], names: str, phase: str, fused: bool
) -> list[Mark]:
    """Return the marks of a kernel, the ones that ask for most sizes; empty: not told.

    Args:
        marks: Of the model.
        sizes: Of all tensors that the kernel's operators read.
        names: Of these operators.
        phase: In which it was launched.
        fused: Whether a compiler made it of several operators: then any line of these sizes is right.
    """
    own = [one for one in marks if one.sizes <= set(sizes) and one.phase in ("", phase)]
    if fused:
        return [one for one in own if one.sizes]
    named = [one for one in own if not one.words or re.search(one.words, names, re.IGNORECASE)]
    found = named or [one for one in own if one.sizes]
    most = max((len(one.sizes) for one in found), default=0)
    return [one for one in found if len(one.sizes) == most]
