"""kernels/README.md says what the committed records and headers say, and no less."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from types import ModuleType
from typing import Any

import pytest

from profkit.collect import tools
from profkit.lab.measure.targets import LabFolders
from profkit.lab.measure.variants import build
from tests.conftest import ROOT
from tests.kernels.resources import LADDER
from tests.sweeps import take_part

pytestmark = pytest.mark.slow

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
    assert made.same(json.loads(made.drawn_of()), made.shown()), AGAIN
    assert made.PICTURE.stat().st_size < 400_000


def moved(value: Any, by: Callable[[float], float]) -> Any:
    """The same with each float moved."""
    if isinstance(value, dict):
        return {k: moved(v, by) for k, v in value.items()}
    if isinstance(value, list):
        return [moved(v, by) for v in value]
    return by(value) if isinstance(value, float) else value


def test_a_float_s_last_bits_make_no_other_picture_and_its_ninth_digit_does(made):
    """The last bits depend on which of OpenBLAS's kernels the processor takes."""
    shown, random = made.shown(), Random(0)
    for _ in range(20):
        assert made.same(moved(shown, lambda x: x * (1 + random.choice((-1e-12, 1e-12)))), shown)
    floats: list[float] = []
    moved(shown, lambda x: floats.append(x) or x)
    assert len(floats) > 100
    for i in range(len(floats)):
        count = itertools.count()
        other = moved(shown, lambda x, i=i, n=count: x * (1 + 1e-8) if next(n) == i else x)
        assert not made.same(other, shown)
    assert not made.same(shown[:1], shown)


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
    folder = LabFolders(made.KERNELS).build_dir()
    if kept["nvcc"] != (here := tools.require_tool_with_version("nvcc", folder).version):
        pytest.skip(f"built with nvcc {kept['nvcc']}, here is {here}")
    # Of the same code the same nvcc makes the same: one shows that, three with PROFKIT_SWEEP_ALL.
    again = {*take_part(["stage2fp8", "stage2", "async2"], one_of=3)}
    old = {v.id for v in LADDER if kept["rungs"].get(v.id, {}).get("source") != v.source_hash}
    some = [v for v in LADDER if v.id in old | again]
    now = json.loads(
        json.dumps(
            made.built(made.MAIN, build.compile_variants_not_built_yet(some, ["89"], folder))
        )
    )
    again = {v.id: now["rungs"][v.id] for v in some}
    assert {name: kept["rungs"].get(name) for name in again} == again, AGAIN + "-build"
    assert kept["rungs"].keys() == now["rungs"].keys(), AGAIN + "-build"
