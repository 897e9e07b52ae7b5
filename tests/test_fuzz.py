"""What make fuzz has found stays answered, and its targets work."""

import random
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools import fuzz

KEPT = sorted((ROOT / "tests" / "data" / "fuzz").iterdir())


@pytest.mark.parametrize("path", KEPT, ids=lambda p: p.name)
def test_what_once_broke_is_answered(path: Path, tmp_path: Path) -> None:
    assert fuzz.fault(path.name.partition("-")[0], path.read_bytes(), tmp_path) == ""


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_random_damage_is_answered(target: str, tmp_path: Path) -> None:
    tried = fuzz.inputs(target, random.Random(target))
    for _ in range(40):
        content = next(tried)
        assert fuzz.fault(target, content, tmp_path) == "", content[:200]


def test_a_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(_: bytes, __: Path) -> None:
        raise IndexError("boom")

    monkeypatch.setitem(fuzz.TARGETS, "where", breaks)
    assert fuzz.fault("where", b"x", tmp_path) == "IndexError: boom"
