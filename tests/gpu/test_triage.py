"""profkit triage on a GPU: what it costs, what it says of tests/programs, and what stops it."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.gpu.conftest import SharedMachine

pytestmark = pytest.mark.gpu
PROGRAMS = ROOT / "tests" / "programs"
TRUTH = json.loads((ROOT / "tests" / "program" / "data" / "truth.json").read_text())["programs"]
PLANTED = {
    name: row["category"]
    for name, row in TRUTH.items()
    if (PROGRAMS / f"{name}.py").is_file() and row["category"] != "healthy"
}


def _python(name: str, *args: str, **env: str) -> str:
    command = [sys.executable, str(PROGRAMS / f"{name}.py"), *args]
    done = subprocess.run(
        command, env={**os.environ, **env}, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout


def _triage(folder: Path, *command: str, budget: int = 0) -> dict[str, Any]:
    args = ["triage", "-o", str(folder), "--budget", str(budget), "--json", "--quiet", "--"]
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *args, *command],
        capture_output=True,
        text=True,
        check=True,
        timeout=400,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


# What no name, grid or time tells: a sort's kernels are the same whether its end is read or not.
# Other slow kernels show: few blocks, a user's own, a name that says of rows no 16-byte load fits.
COUNTED = {"kernel_full_sort"}
# What is said instead where our own timeline lacks operators and their sizes (an H100): a wide depthwise
# convolution needs its sizes. With them (an H200) the planted problem was first in both.
MISSED = {
    "kernel_wide_depthwise": "healthy",
    "atomics_particle_in_cell": "elementwise-chain",
}
# Their host is slower than the GPU: fewer launches bring about as much as what was planted (16.3 and
# 15.2 ms a step of sync_expert_loop's recording, 2.31 and 2.21 of sync_empty_cache's), so the machine
# says which comes first. Where the host is slower still, the GPU has finished before the host waits: to
# wait costs next to nothing then, and is said of the graph that it prevents (decision 1010).
HOST_BOUND = {
    "sync_empty_cache",
    "sync_accumulation_item",
    "sync_expert_loop",
    "sync_clip_by_hand",
    "optimizer_by_hand",
    "sync_timers",
    "optimizer_for_loop",
    "optimizer_lamb_by_hand",
}
# Which rows an expert has never changes there, so that to look for them in each step is needless, too:
# alone on an H200 that is said first (1.51 ms; host-sync 2.31 ms, but 0 at worst).
NEEDLESS_TOO = {"sync_expert_loop"}


def _planted(name: str) -> Any:
    if name in COUNTED:  # ncu waits for other ncu, and counting has a budget
        return pytest.param(name, marks=pytest.mark.alone)
    return name


@pytest.mark.parametrize("name", [_planted(name) for name in PLANTED])
def test_the_planted_problem_is_first(
    name: str, machine: SharedMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    machine.repeat_alone_if_wrong(
        lambda: _check_what_is_first(name, tmp_path_factory.mktemp(name) / "t")
    )


def _check_what_is_first(name: str, folder: Path) -> None:
    program = str(PROGRAMS / f"{name}.py")
    of = _triage(folder, sys.executable, program, budget=60 if name in COUNTED else 0)
    assert of["program"]["how"] == "cupti"
    if name in HOST_BOUND:
        answers = {PLANTED[name], "host-launch", *({"redundant"} if name in NEEDLESS_TOO else ())}
        assert of["first"]["category"] in answers, (of["first"], _said(of))
        said = {finding["category"] for finding in of["findings"]}
        assert PLANTED[name] in said or _is_wait_named_before_graph(name, of), of["findings"]
        return
    answers = {PLANTED[name], MISSED.get(name, PLANTED[name])}
    assert of["first"]["category"] in answers, (of["first"], _said(of))


def _is_wait_named_before_graph(name: str, of: dict[str, Any]) -> bool:
    """Return whether the planted wait is named, by its line, as what keeps launches out of a graph."""
    if PLANTED[name] != "host-sync":
        return False
    named = re.compile(
        rf"(while the host waits for the GPU|cannot contain a host wait).*\b{name}\.py:\d+"
    )
    launches = [f["say"] for f in of["findings"] if f["category"] == "host-launch"]
    return any(named.search(said) for said in launches)


def _said(of: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(finding["category"], finding["saves_ms"]) for finding in of["findings"]]


def test_the_healthy_program_is_healthy(
    machine: SharedMachine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program = str(PROGRAMS / "healthy_transformer.py")

    def check() -> None:
        of = _triage(tmp_path_factory.mktemp("healthy") / "t", sys.executable, program)
        assert of["first"]["category"] == "healthy", (of["first"], _said(of))

    machine.repeat_alone_if_wrong(check)


@pytest.mark.alone
def test_counters_are_taken_and_little_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    program = str(PROGRAMS / "kernel_triton_small_grid.py")
    of = _triage(folder, sys.executable, program, budget=120)
    counted = [row for row in of["kernels"] if row["counted"]]
    assert {row["limiter"] for row in counted} >= {"grid_too_small"}
    assert sum(f.stat().st_size for f in folder.iterdir()) < 20e6


@pytest.mark.alone
def test_watching_costs_what_was_measured(tmp_path: Path) -> None:
    """In turns, because processes of one launch-bound program differ by a tenth.

    1.15x on an H200; the goal was 1.05x, and is not met.
    """
    from profkit.collect import timeline

    injection = str(timeline.build_injection_library(tmp_path / "lib"))
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(6):
        folder = tmp_path / str(turn)
        folder.mkdir()
        watched = turn % 2 == 1
        env = {"CUDA_INJECTION64_PATH": injection, "PROFKIT_TIMELINE": str(folder)}
        said = _python("host_launch_small_layers", "--seconds", **(env if watched else {}))
        times[watched].append(min(json.loads(said)["of"]))
    plain, watched_time = (statistics.median(times[key]) for key in (False, True))
    assert watched_time < 1.3 * plain
