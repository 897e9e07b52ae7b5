"""Sweeps try many inputs of one kind: a part of them in `make test`, all of them in `make fuzz`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def take_part(inputs: Iterable[T], one_of: int, first: int = 0) -> list[T]:
    """Return one of so many inputs, counted from `first`; all of them where PROFKIT_SWEEP_ALL is set."""
    every = list(inputs)
    if "PROFKIT_SWEEP_ALL" in os.environ:
        return every
    return every[first % one_of :: one_of]


def choose_count(every: int, part: int) -> int:
    """Return how many inputs are drawn: `every` where PROFKIT_SWEEP_ALL is set, else `part`."""
    return every if "PROFKIT_SWEEP_ALL" in os.environ else part
