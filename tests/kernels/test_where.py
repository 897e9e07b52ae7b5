"""tools/where.py: the lines of findings on kernels that were built round one access each."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest

from tests.conftest import ROOT
from tests.forks import compute_in_fork

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def where() -> ModuleType:
    spec = importlib.util.spec_from_file_location("where", ROOT / "tools" / "where.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["where"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(where: ModuleType, reads_in_forks: None) -> dict[str, object]:
    return {row.probe: row for row in compute_in_fork(where.rows)}


# What the samples cannot show, and why.
MISSES = {
    "gmma": "the line table puts wgmma at the head of its loop",
    "tex-burst": "the line table puts the fetches at the arithmetic behind them",
    "atomic-bins": "loads wait behind the atomics: samples are the loads'",
    "atomic-same": "loads wait behind the atomics: samples are the loads'",
    "transpose-conflict": "a third of the short waits are for S2R, in the first instructions",
    "low-l2-hit": "the second of its loads has a line of its own in the source as recorded",
}


def test_nine_of_ten_samples_lead_to_what_the_probe_was_built_round(where, rows) -> None:
    assert len(rows) == 56
    missed = {row.probe for row in rows.values() if row.part < where.BAR}
    assert missed == set(MISSES)
    assert sum(row.part for row in rows.values()) / len(rows) == pytest.approx(0.913, abs=0.002)


def test_shown_lines_are_those_too(where, rows) -> None:
    missed = {row.probe for row in rows.values() if (row.own or 0) < where.BAR}
    assert missed <= set(MISSES)


SOURCE = """/* atomicAdd(here) is a comment
*/
__global__ void k(const float* in, float* out, unsigned* bins) {
  __shared__ float tile[32];
  const float* at = in + threadIdx.x;  // at[0]
  tile[0] = at[1];
  __syncthreads();
  float x = __ldcg(in + 3) + tile[1];
  asm volatile(
      "ld.global.f32 %0, [%1];"
      : "=f"(x) : "l"(at));
  atomicAdd(bins + 4, 1u);
  out[0] = x;
}
"""


@pytest.mark.parametrize(
    ("mechanism", "lines"),
    [
        ("load", {6, 8, 9, 10, 11, 12, 13}),
        ("store", {13}),
        ("shared", {4, 6, 8}),
        ("barrier", {7}),
        ("atomic", {12}),
        ("fence", set()),
    ],
)
def test_sites(where, mechanism: str, lines: set[int]) -> None:
    assert where.sites(SOURCE, mechanism) == lines


def test_a_grown_header_comment_is_found(where) -> None:
    lines = SOURCE.split("\n")
    table = {6, 7, 8, 12, 13, 14}
    assert where._moved(lines, table, exits=True) == 0
    assert where._moved(["//"] * 5 + lines, table, exits=True) == 5
