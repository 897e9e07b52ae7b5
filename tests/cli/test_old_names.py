"""A verb's name of before still runs, as what took its place, and says so in one line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profkit.cli.app import GONE, OLD, list_verbs_alphabetically, replace_flag_by_verb
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

GRID = "artifacts/attention/held.jsonl"
# What was typed -> what it is now. OUT is a picture, its picture is compared too.
SAME = {
    "build --variant stage2 --arch banana": "check --build-only --variant stage2 --arch banana",
    "report stage2.B": "decide stage2.B",
    "report stag2 --json": "decide stag2 --json",
    "heatmap artifacts/attention/held.jsonl -o OUT": "roofline artifacts/attention/held.jsonl -o OUT",
    "verify analyses/target_5us.py --quiet": "claims analyses/target_5us.py --quiet",
    "verify none.py": "claims none.py",
}


# What was a flag of another verb -> the verb that it is now.
FLAGS = {
    "compare --ladder --case B": "ladder --case B",
    "compare --case B --ladder --brief": "ladder --case B --brief",
    "compare stage2.B --decide": "decide stage2.B",
    "compare stage3b --decide --against stage2 --case B": "decide stage3b --against stage2 --case B",
    "diagnose stage3b --with header": "whatif stage3b header",
    "diagnose stage2 --with blocks*4 --case B --json": "whatif stage2 --case B --json blocks*4",
    "diagnose stage2 --with=blocks*4 --case B": "whatif stage2 --case B blocks*4",
    "whatif stage2 --with blocks*4 --case B": "whatif stage2 --case B blocks*4",
    "history --sql 'SELECT 1 AS n' --json": "query 'SELECT 1 AS n' --json",
    "history --sql": "query",
}


@pytest.mark.parametrize("before", FLAGS)
def test_a_question_that_was_a_flag_is_its_verb(before: str) -> None:
    old, new = shlex.split(before), shlex.split(FLAGS[before])
    assert replace_flag_by_verb(old) == new
    assert replace_flag_by_verb(new) == new


# A flag beside others, one with a value, and one that took its verb's name.
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (
            "compare stage3b --decide --against stage2 --case B",
            "decide stage3b --against stage2 --case B",
        ),
        ("diagnose stage2 --with=blocks*4 --case B", "whatif stage2 blocks*4 --case B"),
        ("history --sql 'SELECT 1 AS n' --json", "query 'SELECT 1 AS n' --json"),
    ],
)
def test_a_question_that_was_a_flag_runs_as_its_verb(
    run: Callable[..., Any], before: str, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    old, new = (run(*shlex.split(line)) for line in (before, now))
    warning, *rest = old.stderr.splitlines()
    assert warning.endswith(f"is now profkit {now.split(maxsplit=1)[0]}")
    assert rest == new.stderr.splitlines()
    assert (old.stdout, old.exit_code) == (new.stdout, new.exit_code)
    assert old.exit_code == 0


@pytest.mark.parametrize("words", [" ".join(words).strip() for words in GONE])
def test_what_is_gone_is_said_with_what_to_do_instead(run: Callable[..., Any], words: str) -> None:
    done = run(*words.split())
    assert done.exit_code == 2
    assert done.stdout == ""
    problem, hint = done.stderr.splitlines()
    assert words in problem
    assert "profkit " in hint


def test_variants_that_were_a_flag_are_arguments_of_ablate() -> None:
    line = "profile --variant v1 --no-counters --variant=v2 --case B"
    assert replace_flag_by_verb(line.split()) == ["ablate", "v1", "v2", "--case", "B"]


def test_words_behind_two_dashes_are_no_flags_of_ours() -> None:
    words = ["profile", "--", "python", "--ladder"]
    assert replace_flag_by_verb(words) == words
    assert replace_flag_by_verb(["compare", "a", "b"]) == ["compare", "a", "b"]


@pytest.mark.parametrize("before", SAME)
def test_it_runs_as_the_new_verb_and_warns_in_one_line(
    run: Callable[..., Any], before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    out = str(tmp_path / "out.svg")
    old, new = (
        run(*(out if word == "OUT" else word for word in shlex.split(line)))
        for line in (before, SAME[before])
    )
    warning, *rest = old.stderr.splitlines()
    name = before.split(maxsplit=1)[0].replace("report", "report VARIANT")
    assert warning == f"profkit {name} is now profkit {' '.join(OLD[name][:2])}"
    assert rest == new.stderr.splitlines()
    assert (old.stdout, old.exit_code) == (new.stdout, new.exit_code)
    assert Path(out).exists() is ("OUT" in before)


def test_each_has_an_example_and_none_is_listed(run: Callable[..., Any]) -> None:
    assert {line.split()[0] for line in SAME} == {old.split()[0] for old in OLD}
    assert not set(OLD) & set(list_verbs_alphabetically())
    listed = {line.split()[0] for line in run("--help").stdout.splitlines() if line[:2] == "  "}
    assert not set(OLD) & listed


@pytest.mark.parametrize("name", [old for old in OLD if " " not in old])
def test_its_help_is_that_of_the_new_verb(run: Callable[..., Any], name: str) -> None:
    shown = run(name, "--help")
    assert shown.stdout == run(OLD[name][0], "--help").stdout
    assert len(shown.stderr.splitlines()) == 1


def test_a_heatmap_is_called_as_before_where_no_name_is_given(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("heatmap", ROOT / GRID, "-q").exit_code == 0
    assert [file.name for file in tmp_path.iterdir()] == ["heatmap.png"]
    two = run("roofline", ROOT / GRID, ROOT / "artifacts" / "attention" / "grid.jsonl")
    assert two.exit_code == 2
    assert "2 files of times by shape" in two.stderr
