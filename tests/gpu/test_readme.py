"""The commands of README.md that need a GPU, run for real and in its order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import readme
from tests.test_readme import NEEDS_GPU, prepare

pytestmark = pytest.mark.gpu
FOUND = [c for c in readme.commands() if c.split()[1] in NEEDS_GPU and c.startswith("profkit")]
# What stands again with an option more (a search, with its default of trials) runs once, so.
COMMANDS = [c for c in FOUND if not any(other.startswith(f"{c} ") for other in FOUND)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    prepare(folder)
    return folder


def test_there_are_some() -> None:
    assert {command.split()[1] for command in COMMANDS} == NEEDS_GPU


@pytest.mark.parametrize("command", COMMANDS)
def test_it_runs(command: str, place: Path) -> None:
    done = readme.run(command, place)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_doctor_finds_nothing_missing(place: Path) -> None:
    done = readme.run("profkit doctor --json", place)
    assert done.returncode == 0
    assert "missing" not in {f["status"] for f in json.loads(done.stdout)["findings"]}
