"""A file given to a verb that does not read it: the command that does is named, and it is right."""

from __future__ import annotations

import gzip
import shlex
from pathlib import Path

import pytest

from tests.conftest import ROOT

DATA = ROOT / "tests" / "program" / "data"
TRACE = DATA / "copy_pageable.planted.json.gz"
REPORT = ROOT / "artifacts" / "stage1.B.ncu-rep"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """One of each kind, under a name that says it and a name with a blank that says nothing."""
    made = {
        "report": REPORT.read_bytes(),
        "trace": TRACE.read_bytes(),
        "plain trace": gzip.decompress(TRACE.read_bytes()),
        "sqlite": b"SQLite format 3\x00" + bytes(100),
        "grid": (ROOT / "artifacts" / "attention" / "held.jsonl").read_bytes(),
        "record": (ROOT / "artifacts" / "stage1.B.json").read_bytes(),
        "empty": b"",
    }
    paths = {kind: tmp_path / f"{kind} file" for kind in made}
    for kind, path in paths.items():
        path.write_bytes(made[kind])
    for name in ("a.nsys-rep", "a.qdrep", "train.py"):
        (tmp_path / name).write_bytes(b"print(1)")
        paths[name] = tmp_path / name
    return paths


COMMANDS = {
    "report": "profkit diagnose {}",
    "trace": "profkit triage {}",
    "plain trace": "profkit triage {}",
    "sqlite": "profkit triage {}",
    "grid": "profkit roofline {}",
    "record": "profkit compare {} OTHER",
    "empty": "copy it again",
    "a.nsys-rep": "nsys export --type sqlite {}",
    "a.qdrep": "nsys export --type sqlite {}",
    "train.py": "profkit triage -- python {}",
}
READS = {
    "diagnose": {"report"},
    "roofline": {"report", "grid"},
    "report": {"report"},
    "triage": {"trace", "plain trace", "sqlite"},
    "claims": {"train.py"},
    "compare": {"report", "record", "trace", "plain trace", "sqlite"},
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", READS)
@pytest.mark.parametrize("kind", COMMANDS)
def test_the_command_that_works_is_named(run, files, tmp_path: Path, verb: str, kind: str) -> None:
    if kind in READS[verb]:
        return
    path = str(files[kind])
    more = {"compare": [path], "report": ["-o", str(tmp_path / "p.html")]}
    done = run(verb, path, *more.get(verb, []))
    assert done.exit_code == 2
    said = done.stderr.splitlines()
    assert path in said[0]
    command = COMMANDS[kind].format(shlex.quote(path))
    assert command in said[1], said
    assert done.stdout.strip() == ""


def test_two_recordings_are_compared_as_what_triage_keeps_of_them(run, tmp_path: Path) -> None:
    recordings = [DATA / f"elementwise_chain.{state}.json.gz" for state in ("planted", "mended")]
    kept = [tmp_path / name for name in ("before.triage", "after.triage")]
    for recording, folder in zip(recordings, kept, strict=True):
        assert run("triage", recording, "-o", folder, "--quiet").exit_code == 0
    direct = run("compare", *recordings)
    assert direct.exit_code == 0
    assert direct.stdout.startswith("Faster, 1.64x (no interval: fewer than 3 steps on a side): ")
    assert direct.stdout == run("compare", *kept).stdout
    assert run("compare", *reversed(recordings), "--fail-on", "slower").exit_code == 1


def test_a_recording_is_not_compared_with_something_else(run, tmp_path: Path) -> None:
    recording = DATA / "elementwise_chain.planted.json.gz"
    report = ROOT / "artifacts" / "stage2.B.ncu-rep"
    for pair in ((recording, report), (report, recording), ("stage2", recording)):
        found = run("compare", *pair)
        assert found.exit_code == 2
        assert "is a recording of a program" in found.stderr
