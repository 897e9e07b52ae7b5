"""The brief: cause, place, number and next step, in at most 500 tokens."""

from __future__ import annotations

import time

import pytest

from profkit.diagnosis.launches import (
    JudgedLaunch,
    add_source_lines,
    group_and_rank_launches,
    judge_reports,
)
from profkit.reports.reader import read_report_files
from profkit.show.text.words import BRIEF, get_first_clause_of_advice
from profkit.show.views.diagnosis import write_brief_diagnosis
from tests.conftest import ROOT
from tests.found import find_files

from .conftest import HOSTILE, Made

# A probe is made to wait for one thing: which rule has to name it.
PROBES = {
    "conflict32": "shared-bank-conflicts",
    "conflict8": "shared-bank-conflicts",
    "dram-copy": "dram-bandwidth",
    "dram-read": "dram-bandwidth",
    "dram-triad": "dram-bandwidth",
    "dram-write": "dram-bandwidth",
    "l2-read": "l2-bandwidth",
    "chase-dram": "long-scoreboard",
    "chase-l2": "long-scoreboard",
    "chase-shared": "short-scoreboard",
    "fma-chain": "fixed-latency",
    "fp32": "fp32-pipe",
    "fp64": "fp64-pipe",
    "int-alu": "int-pipe",
    "xu-exp": "xu-pipe",
    "tensor-mma": "tensor-pipe",
    "grid-8": "grid-too-small",
    "grid-1": "grid-too-small",
    "barrier": "barrier-wait",
    "membar": "membar",
    "diverge8": "thread-divergence",
    "sector-eighth": "uncoalesced-access",
    "transpose-naive": "uncoalesced-access",
    "atomic-same": "atomics-contention",
    "constant": "constant-divergence",
    "spill": "register-spills",
    "local-array": "local-memory",
    "imbalance": "workload-imbalance",
    "tail": "tail-effect",
    "texture": "texture-bandwidth",
    "icache": "instruction-cache",
    "drain": "uncoalesced-access",
}


@pytest.fixture(scope="module")
def probes() -> dict[str, JudgedLaunch]:
    files = sorted(map(str, find_files(ROOT / "artifacts" / "probes", "*.ncu-rep*")))
    runs = [run for run in judge_reports(read_report_files(files)) if run.variant in PROBES]
    first = {run.variant: run for run in reversed(runs) if run.variant}
    return dict(zip(first, add_source_lines(list(first.values()), None, 0), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_s_brief_names_cause_and_line(probes: dict[str, JudgedLaunch], probe: str) -> None:
    run = probes[probe]
    text = write_brief_diagnosis(group_and_rank_launches([run]))
    assert f"Run: profkit explain {PROBES[probe]}\n" in f"{text}\n"
    assert len(text) <= BRIEF
    if run.diagnosis.bound != "launch":
        assert ".cu" in text


def test_the_brief_of_many_rows_is_cut_to_its_size(made: Made) -> None:
    table = group_and_rank_launches([made(f"{name}_{i}") for i, name in enumerate(HOSTILE * 3)])
    text = write_brief_diagnosis(table)
    assert len(text) <= BRIEF
    assert f"{len(table) - 3} more kernels" in text
    assert write_brief_diagnosis([]) == ""


def test_the_second_row_is_a_line(made: Made) -> None:
    table = group_and_rank_launches([made("slow", 3e-3), made("quick", 1e-3)])
    (line,) = [x for x in write_brief_diagnosis(table).splitlines() if x.startswith("2. ")]
    assert line.startswith(
        "2. quick, 1.00 ms: shared-bank-conflicts, expect 7.70x (3.25 to 7.94), at most 7.94x: "
    )


@pytest.mark.parametrize(
    ("advice", "first"),
    [
        (
            "Compile without -G (CMake: Release. Debug is slow). Then run.",
            "Compile without -G (CMake: Release. Debug is slow)",
        ),
        ("Pad the array; or swizzle it.", "Pad the array"),
        ("an ( that stays open. More", "an ( that stays open"),
        ("no end", "no end"),
    ],
)
def test_advice_ends_at_a_full_stop_outside_of_brackets(advice: str, first: str) -> None:
    assert get_first_clause_of_advice(advice) == first


def test_many_brackets_take_no_time() -> None:
    """Each bracket was matched in two ways: 24 took two seconds, 40 a day."""
    begun = time.process_time()
    assert get_first_clause_of_advice("(a) " * 4_000) == "(a) " * 4_000
    assert get_first_clause_of_advice("(" * 4_000) == "(" * 4_000
    assert time.process_time() - begun < 2
