"""Answers about the committed records, whole: ladder, gate, history, claims."""

from __future__ import annotations

import pytest

from tests.golden import alike, held

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["B", "16k-8"])
def test_a_ladder_is_what_it_was(case: str) -> None:
    held("ladder", ("forms", ("ladder", "--case", case)))


def test_a_gate_stops_what_it_stopped() -> None:
    held("gate", ("gate", ("slower by a tenth, other code",)))


@pytest.mark.parametrize("words", ["history", "claims analyses/gap_38x.py"])
def test_what_was_recorded_answers_as_it_did(words: str) -> None:
    held("recorded", ("command", tuple(words.split())))


def test_a_word_a_whole_number_or_the_eighth_digit_is_a_difference() -> None:
    assert alike("1.23456789012 of 3", "1.23456789013 of 3")
    for other in ("1.23456799012 of 3", "1.23456789012 of 4", "1.23456789012 in 3"):
        assert not alike("1.23456789012 of 3", other)
