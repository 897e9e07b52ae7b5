"""What asks for as much as it can takes time and memory in proportion to its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import fuzz


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz.BOMBS)
def test_twice_the_bytes_take_twice_the_time_and_memory(name: str, tmp_path: Path) -> None:
    """`make fuzz` holds 2.2 times; a busy machine measures more, and a square is four."""
    seconds, memory = fuzz.doubled(name, tmp_path, times=2)
    assert seconds < 3.3
    assert memory < 2.5
