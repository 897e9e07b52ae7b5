"""What asks for as much as it can takes time and memory in proportion to its bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sweeps import take_part
from tools import bombs, fuzz


@pytest.mark.slow
@pytest.mark.parametrize("name", take_part(fuzz.BOMBS, one_of=2))
def test_twice_the_bytes_take_twice_the_time_and_memory(name: str, tmp_path: Path) -> None:
    """Seconds are of a processor; what else a machine does may slow one measurement, not all three."""
    seconds, memory = measure_doubling(name, tmp_path)
    assert seconds <= fuzz.LINEAR
    assert memory <= fuzz.LINEAR


def measure_doubling(name: str, folder: Path, tries: int = 3) -> tuple[float, float]:
    """Return the times that twice the bytes take, measured again where they are too many."""
    seconds, memory = fuzz.doubled(name, folder, times=2)
    while seconds > fuzz.LINEAR and tries > 1:
        tries -= 1
        seconds = min(seconds, fuzz.doubled(name, folder, times=4)[0])
    return seconds, memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    take_part(
        ["section-names", "folder-names", "line-rows", "nsys-pages", "benchmark-samples"],
        one_of=2,
        first=1,
    ),
)
def test_all_processes_together_take_what_the_bytes_may_need(name: str, tmp_path: Path) -> None:
    """`python tools/bombs.py` holds it of all of them; other systems' large pages may add a quarter."""
    cost = bombs.measure(bombs.BOMBS[name], tmp_path)
    assert cost.answer[:2] in ("0:", "2:"), cost.answer
    assert cost.memory < 1.25 * (bombs.TIMES * cost.size + bombs.SPARE)
