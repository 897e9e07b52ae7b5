"""A part of what `make goldens` holds, for the tests of each room: an answer whole, as a user has it."""

from __future__ import annotations

import os
from math import isclose

import pytest

from tests.conftest import ROOT
from tools import goldens


def held(group: str, *tasks: goldens.Task) -> None:
    """Hold what some tasks of a group answer to what was accepted (`make goldens` shows and accepts)."""
    kept = goldens.read(group)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        patched.setenv("PROFKIT_BUILD", os.devnull + "/none")
        made = {name: text for task in tasks for name, text in goldens.make(task).items()}
    assert made
    for name, text in made.items():
        assert name in kept, f"no golden of this name: {name}"
        if not alike(kept[name], text):
            assert text == kept[name], f"{name}: make goldens"


def alike(before: str, after: str) -> bool:
    """Whether texts are equal but for the last digits of floats: each processor has its own."""
    if goldens.FLOAT.sub("#", before) != goldens.FLOAT.sub("#", after):
        return False
    pairs = zip(goldens.FLOAT.findall(before), goldens.FLOAT.findall(after), strict=True)
    return all(a == b or isclose(float(a), float(b), rel_tol=1e-8) for a, b in pairs)
