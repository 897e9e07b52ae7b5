"""The words of screens that name no rule have a page, and the pages that they lead to are there."""

from __future__ import annotations

from typing import get_args

import pytest

from profkit.errors import ProfkitError
from profkit.evidence.counters import FindingState
from profkit.show.text.glossary import SAME_WORD, SCREEN_WORDS
from profkit.show.views import triage
from profkit.show.views.explain import explain


def test_each_word_is_explained_in_any_spelling() -> None:
    for name in (*SCREEN_WORDS, *SAME_WORD, "Waiting for launches", "NOT-EXPLAINED", " hidden "):
        page = explain(name)
        assert page.kind == "term"
        assert page.title
    assert "hidden-tail" not in str(explain("hidden"))


def test_see_also_leads_to_pages() -> None:
    for name, word in SCREEN_WORDS.items():
        for other in word.see:
            assert explain(other).name == other, name
            assert other in str(explain(name))


def test_every_word_of_the_bar_and_of_a_comparison_is_there() -> None:
    shown = [text for _, text, _ in triage.CAUSES.values()]
    for word in (*shown, *get_args(FindingState)):
        if word != "unknown":  # a verdict's page
            assert word in SCREEN_WORDS


def test_a_word_that_nobody_says_is_unknown() -> None:
    with pytest.raises(ProfkitError, match="unknown rule or metric: shown nowhere"):
        explain("shown nowhere")
