"""Diagnoses of the probes, whole and in every form: each rule fires on one of them."""

from __future__ import annotations

import pytest

from tests.golden import held


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_what_is_said_of_the_probes_is_what_was_said(number: int) -> None:
    held("reports", ("forms", ("diagnose", f"artifacts/probes/probes-{number}.ncu-repz")))
