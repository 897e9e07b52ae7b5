"""Gains, bounds and expectations in diagnoses of real launches, with all counters and with few."""

from __future__ import annotations

import pytest

from tests.golden import held

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [3, 4])
def test_what_the_probes_would_gain_is_what_it_was(number: int) -> None:
    held("reports", ("forms", ("diagnose", f"artifacts/probes/probes-{number}.ncu-repz")))


@pytest.mark.parametrize("number", range(0, 5, 2))
def test_what_they_would_gain_by_basic_s_counters_is_what_it_was(number: int) -> None:
    held("reports", ("basic", (f"artifacts/probes/probes-{number}.ncu-repz",)))
