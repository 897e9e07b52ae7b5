"""kernels/README.md says what the committed records and headers say, and no less."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

from tests.conftest import ROOT

AGAIN = "the page is old: make ladder"


@pytest.fixture(scope="module")
def made() -> Iterator[ModuleType]:
    """tools/ladder_page.py, which is not in a package."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        yield import_module("ladder_page")
    finally:
        sys.path.remove(str(ROOT / "tools"))


def test_the_page_is_current(made):
    assert made.PAGE.read_text("utf-8") == made.page(), AGAIN


def test_the_picture_is_current(made):
    assert made.drawn_of() == made.digest(), AGAIN
    assert made.PICTURE.stat().st_size < 400_000


def test_the_heat_map_is_current(made):
    assert made.drawn_of(made.HEATMAP) == made.grid_digest(), AGAIN
    assert made.HEATMAP.stat().st_size < 400_000


def test_every_rung_has_its_row_its_prose_and_its_file(made):
    text = made.PAGE.read_text("utf-8")
    for variant, header in made.ladder_headers(made.evidence()).items():
        assert f"### `{variant}`: " in text
        assert (made.KERNELS / header.file).is_file()
    linked = re.findall(r"\]\((attention/[^)]+)\)", text)
    assert len(linked) >= 20
    assert all((made.KERNELS / file).is_file() for file in linked)


def test_no_stub_stands_in_a_cell(made):
    rows = [x for x in made.PAGE.read_text("utf-8").splitlines() if x.startswith("|")]
    assert not [row for row in rows if "nan" in row or "None" in row]


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_what_is_said_of_an_l4_is_what_the_build_gives(made):
    kept = json.loads(made.BUILT.read_text("utf-8"))
    now = json.loads(json.dumps(made.built(made.MAIN)))
    if kept["nvcc"] != now["nvcc"]:
        pytest.skip(f"built with nvcc {kept['nvcc']}, here is {now['nvcc']}")
    assert kept == now, "artifacts/l4.json is old: make ladder-build"
