"""--brief, as text and as data: what an agent pays for is what it reads."""

from __future__ import annotations

import json

import pytest

from tests.conftest import ROOT

ARTIFACTS = ROOT / "artifacts"
TRACES = ROOT / "tests" / "program" / "data"
FIVE = ("stage1.B", "stage2.B", "scalar.B", "copy.1GiB", "sdpa-cudnn.B")
CHARACTERS = 4_000  # 1,000 tokens: keys and quotes cost about as much as the text
TEXT = 2_000


def test_brief_data_of_reports_has_the_answer_and_what_fires_only(run) -> None:
    paths = [ARTIFACTS / f"{name}.ncu-rep" for name in FIVE]
    told = run("diagnose", *paths, "--json", "--brief").stdout
    assert len(told) <= CHARACTERS
    document = json.loads(told)
    assert document["answer"].startswith("attention_scalar is limited by")
    assert document["kernels"][0]["kernel"] == "attention_scalar"
    assert document["kernels"][0]["findings"][0]["rule"] == "grid-too-small"
    assert '"clear"' not in told
    assert document["notes"][0].startswith("clocks: ")
    assert document["next"][0] == "profkit explain grid-too-small"


def test_brief_data_of_a_comparison_is_short(run) -> None:
    told = run("compare", "stage1", "stage2", "--case", "B", "--json", "--brief").stdout
    assert len(told) <= CHARACTERS
    assert json.loads(told)["changes"][0]["time"]["answer"] == "faster"


@pytest.mark.parametrize("name", ["slow_rank.triage", "copy_pageable.planted.json.gz"])
def test_a_brief_of_a_program_says_what_to_do_first(run, name: str) -> None:
    text = run("triage", TRACES / name, "--brief").stdout
    assert len(text) <= TEXT
    assert text.startswith(("A step takes ", "Without the profiler a step takes "))
    data = run("triage", TRACES / name, "--brief", "--json").stdout
    assert len(data) <= CHARACTERS
    first = json.loads(data)["findings"][0]["rule"]
    assert f"\n1. {first}: saves about " in text
