"""Probes say what they are, cover the vocabulary, and were recorded with results that agree."""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest
import zstandard

from profkit.diagnosis.rule import Bound
from profkit.diagnosis.rules import BY_ID
from profkit.records.header import choose_compile_target
from profkit.reports.metrics import CATALOGUE
from profkit.reports.reader import read_report_files
from tests.found import find_files
from tests.sweeps import take_part

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kernels" / "probes"
RECORDED = ROOT / "artifacts" / "probes"

LIMITERS = {
    "memory": "dram l2 l1 shared texture constant atomics",
    "compute": "tensor fp32 fp64 fp16 int xu issue",
    "latency": "long_scoreboard short_scoreboard barrier wait membar sleeping no_instruction "
    "mio_throttle lg_throttle tex_throttle math_pipe_throttle branch_resolving dispatch_stall "
    "drain gmma",
    "launch": "grid_too_small tail imbalance too_short",
    "balanced": "dram+fp32",
}
# Rules that no probe is the truth of, and why none can be, or is needed.
NO_PROBE = {
    "operations-mismatch": "compares with what a workload declares; a probe has no workload",
    "clocks-unsteady": "about the state of the GPU, which a kernel does not choose",
    "replay-unsteady": "about passes that disagree; every probe does the same each time",
    "debug-build": "how a kernel was compiled, not what it is: seen on 7.5 and 8.6 (five authors)",
    "nothing-stands-out": "what is said where a basic set has too little; every probe has a full one",
    "partial-warps": "a launch's block size alone: tests/diagnosis has it (one thread, 10, 33)",
    "short-blocks": "seen on a T4 (7.5) and an RTX 4090 (8.9), in others' reports",
    "hidden-tail": "the ladder's wgmma at C (9.0) and a CUTLASS product (8.0) have it",
    "narrow-accesses": "never the cause that leads; ten pairs of others (tools/score.py gains) hold it",
    "constant-miss": "not a limiter of its own; the first instructions of every launch show it",
}
# Limiters that no probe has: three forms were tried, and something else was always waited for longer:
# the fixed interval between loads (one warp per scheduler: mio-burst), the last load's result (the
# same with loads of 16 bytes: a queue holds 14), the barrier (four warps: mio-phases). Rules fire.
NO_LIMITER = {("latency", "mio_throttle"), ("latency", "lg_throttle")}


def _beside_the_probes(name: str) -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


PROBLEM = _beside_the_probes("problem")
PROBES = {name: PROBLEM.header(path) for name, path in PROBLEM.probes().items()}
TIMES = json.loads((RECORDED / "times.json").read_text("utf-8"))["times"]


@pytest.mark.parametrize("name", PROBES)
def test_header_is_whole(name):
    keys = PROBES[name]
    assert keys["bound"] in set(get_args(Bound)) - {"unknown"}
    assert keys["limiter"] in LIMITERS[keys["bound"]].split()
    rules = [keys["cause"], *keys.get("also", "").replace(",", " ").split()]
    assert set(rules) <= set(BY_ID)
    assert keys["twin"] in ("yes", "no")
    assert (keys["twin"] == "yes") == ("relieves" in keys)
    assert keys["output"] in (("same", "close", "finite") if keys["twin"] == "yes" else ("finite",))
    assert choose_compile_target(keys.get("arch"), "90", name)
    for declared in keys.get("declares", "").split():
        metric, _, number = declared.partition("=")
        assert metric in CATALOGUE
        assert float(number) > 0


def test_every_limiter_has_a_probe():
    wanted = {(bound, limiter) for bound, words in LIMITERS.items() for limiter in words.split()}
    assert {(k["bound"], k["limiter"]) for k in PROBES.values()} == wanted - NO_LIMITER


def test_every_rule_has_a_probe_or_a_reason():
    also = {r for k in PROBES.values() for r in k.get("also", "").replace(",", " ").split()}
    covered = {k["cause"] for k in PROBES.values()} | also
    assert covered | set(NO_PROBE) == set(BY_ID)
    assert not covered & set(NO_PROBE)


@pytest.mark.parametrize("name", PROBES)
def test_source_uses_the_common_interface(name):
    source = PROBLEM.probes()[name].read_text("utf-8")
    assert '#include "../probe.cuh"' in source
    assert 'extern "C" int profkit_launch(const ProfkitArgs* args)' in source
    assert ("kTwin" in source) == (PROBES[name]["twin"] == "yes")
    assert len(source.splitlines()) <= 120
    assert max(map(len, source.splitlines())) <= 100


def test_kernel_names_are_unique():
    kernel = re.compile(r"__global__ void(?: __\w+__\([^\n]*\))?\s+(\w+)\(")
    names = [n for p in PROBLEM.probes().values() for n in kernel.findall(p.read_text("utf-8"))]
    assert len(names) == len(set(names)) >= len(PROBES)


def test_constants_stand_the_same_in_c_and_python():
    text = (ROOT / "kernels" / "probes" / "probe.cuh").read_text("utf-8")
    said = dict(re.findall(r"constexpr \w+(?: \w+)* (k\w+) = ([^;]+);", text))
    sizes = {
        name: int(base) << int(shift)
        for name in ("kBufferBytes", "kBufferWords")
        for base, shift in re.findall(r"^(\d+)[uL]* << (\d+)$", said[name])
    }
    assert sizes == {"kBufferBytes": PROBLEM.BYTES, "kBufferWords": PROBLEM.WORDS}
    assert int(said["kChaseA"].rstrip("u")) == PROBLEM.CHASE_A
    assert int(said["kChaseC"].rstrip("u")) == PROBLEM.CHASE_C


def test_the_chase_visits_everything_once():
    words = 1 << 12
    step = PROBLEM.cycle(0, words) & (words - 1)  # a smaller cycle by masking, as probes do
    seen, at = set(), 0
    for _ in range(words):
        seen.add(at)
        at = int(step[at])
    assert len(seen) == words
    assert at == 0


def test_recorded_probes_gave_results_that_agree():
    assert set(TIMES) == set(PROBES)
    for name, took in TIMES.items():
        assert took["fault"] == "", name
        assert ("twin" in took) == (PROBES[name]["twin"] == "yes")
        assert took["main"] > 0


def test_relief_relieves():
    """A twin is faster, or the label would be a guess; two show that something is no cause."""
    nearly_same = {"dram-write", "atomic-coalesced"}
    for name, took in TIMES.items():
        if "twin" in took:
            gain = took["main"] / took["twin"]
            assert gain > (1.05 if name in nearly_same else 1.15), (name, gain)


@pytest.mark.slow
def test_reports_hold_every_probe_and_twin():
    reports = read_report_files(find_files(RECORDED, "probes-*.ncu-repz"))
    assert {f.status for f in reports.files} == {"ok"}
    launches = reports.launches
    assert set(launches["status"]) == {"ok"}
    wanted = {(n, w) for n, took in TIMES.items() for w in ("main", "twin") if w in took}
    assert set(zip(launches["variant"], launches["case"], strict=True)) == wanted
    assert sum(f.stat().st_size for f in RECORDED.iterdir()) < 12e6


def test_a_recording_is_added_to_those_kept(tmp_path):
    record, kept = _beside_the_probes("record"), tmp_path / "kept"
    for number, (gpu, name) in enumerate((("A, 1", "one"), ("A, 2", "two"))):
        new = tmp_path / str(number)
        new.mkdir()
        (new / "probes-0.ncu-rep").write_bytes(name.encode())
        record.keep_times(new / "times.json", {name: {"main": 1.0}}, gpu)
        assert [f.name for f in record.keep(new, kept)] == [f"probes-{number}.ncu-repz"]
    times = json.loads((kept / "times.json").read_text())
    assert times["times"] == {"one": {"main": 1.0}, "two": {"main": 1.0}}
    packed = (kept / "probes-1.ncu-repz").read_bytes()
    assert zstandard.ZstdDecompressor().decompress(packed) == b"two"
    record.keep_times(new / "times.json", {}, "B, 1")
    with pytest.raises(SystemExit, match="another GPU"):
        record.keep(new, kept)


def test_faults_are_seen():
    import numpy as np

    good = np.full(8, PROBLEM.POISON, dtype=np.uint32)
    assert "wrote nothing" in PROBLEM.faults(good, None, {})
    good[:4] = np.float32([1, 2, 3, 4]).view(np.uint32)
    assert PROBLEM.faults(good, None, {}) == ""
    off = good.copy()
    off[1] = np.float32([2.5]).view(np.uint32)[0]
    assert "differ" in PROBLEM.faults(good, off, {"output": "same"})
    assert "differ" in PROBLEM.faults(good, off, {"output": "close"})
    assert PROBLEM.faults(good, off, {"output": "close", "tolerance": "0.2"}) == ""
    assert PROBLEM.faults(good, off, {"output": "finite"}) == ""
    off[1] = np.float32([np.inf]).view(np.uint32)[0]
    assert "non-finite" in PROBLEM.faults(off, None, {})
    off[5] = 0
    assert "places" in PROBLEM.faults(good, np.where(off == off[1], 0, off), {"output": "same"})


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("name", "twin"),
    take_part(
        [
            ("dram-read", False),
            ("tensor-wgmma", False),
            ("spill", True),
            ("spill", False),
            ("icache", True),
        ],
        one_of=3,
        first=2,
    ),
)
def test_probes_build_into_launchers(name, twin, tmp_path):
    keys, path = PROBES[name], PROBLEM.probes()[name]
    assert not twin or keys["twin"] == "yes"
    code, library = choose_compile_target(keys.get("arch"), "90", name), tmp_path / "probe.so"
    done = subprocess.run(
        [
            "nvcc",
            "-std=c++17",
            "-shared",
            f"-gencode=arch=compute_{code},code=sm_{code}",
            "-Xcompiler",
            "-fPIC",
            *(["-DPROFKIT_TWIN"] if twin else []),
            "-o",
            library,
            path,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert ctypes.CDLL(str(library)).profkit_launch
