"""Real reports read whole, down to the lines and instructions that their warps wait at."""

from __future__ import annotations

import pytest

from tests.golden import held

pytestmark = pytest.mark.forks

REPORTS = (
    "stage2.B.ncu-rep",  # source that is imported
    "sdpa-cudnn.B.ncu-rep",  # no source at all
    "matmul.4096.ncu-rep",
    "attention/B/tritonflash.ncu-repz",  # lines of Python
    "attention/B/v2cv6b.ncu-repz",
    "library/sdpa-math.C.ncu-repz",  # several launches
)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_what_is_read_is_what_was_read(name: str) -> None:
    held("reports", ("forms", ("diagnose", f"artifacts/{name}")))
