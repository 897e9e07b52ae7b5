"""CONTRIBUTING.md names files and functions that are there, and a walk that the code takes."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.found import find_files

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
LAUNCH, TRACE = (
    re.findall(
        r"^\d\. `(profkit/[\w/]+\.py)` `(\w+)`", TEXT[TEXT.index(head) :].split("\n## ")[1], re.M
    )
    for head in ("\n## One launch", "\n## One trace")
)
FILES = sorted(set(re.findall(r"`((?:profkit|kernels|tests|tools|analyses)/[\w/.]*)`", TEXT)))


@pytest.mark.parametrize("name", FILES)
def test_what_is_named_is_there(name: str) -> None:
    assert (ROOT / name).exists()


def test_a_launch_takes_at_most_eight_steps() -> None:
    assert 6 <= len(LAUNCH) <= 8


def test_a_trace_takes_at_most_six() -> None:
    assert 5 <= len(TRACE) <= 6


@pytest.mark.parametrize(("file", "function"), [*LAUNCH, *TRACE])
def test_each_step_is_a_function_of_its_file(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert function in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "function"), LAUNCH[1:])
def test_each_step_is_called_from_one_before_it_or_from_the_verb_s_inputs(
    file: str, function: str
) -> None:
    before = [ROOT / earlier for earlier, _ in LAUNCH]
    before += find_files(ROOT / "profkit/cli", "*.py")
    called = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for path in before
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
    }
    assert function in called


@pytest.mark.parametrize(
    "room", sorted(p.name for p in (ROOT / "profkit").iterdir() if p.is_dir() and p.name[0] != "_")
)
def test_every_room_has_its_sentence(room: str) -> None:
    assert f"- `profkit/{room}/`:" in TEXT
