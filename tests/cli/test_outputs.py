"""An output never takes the place of evidence, nor of another output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

REPORT = ROOT / "artifacts" / "stage2.B.ncu-rep"
TRACE = ROOT / "tests" / "program" / "data" / "copy_pageable.planted.json.gz"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A report with its record, a recording, a table of times, a file of claims."""
    for suffix in (".ncu-rep", ".json"):
        shutil.copy(REPORT.with_suffix(suffix), tmp_path / f"x{suffix}")
    shutil.copy(TRACE, tmp_path / TRACE.name)
    (tmp_path / "times.jsonl").write_text('{"schema": "profkit.grid/1"}\n')
    (tmp_path / "c.py").write_text("mine")
    (tmp_path / "link.json").symlink_to("x.json")
    return tmp_path


EVIDENCE = ("x.ncu-rep", "x.json", TRACE.name, "times.jsonl", "c.py", "link.json")
VERBS: dict[str, tuple[str, ...]] = {
    "a page": ("report", "x.ncu-rep", "-o"),
    "a page of something else": ("report", str(REPORT), "-o"),
    "a table": ("diagnose", "x.ncu-rep", "--csv"),
    "a frame": ("diagnose", "x.ncu-rep", "--parquet"),
    "a picture": ("roofline", "x.ncu-rep", "-o"),
    "a program's page": ("triage", TRACE.name, "--page"),
    "a program": ("triage", TRACE.name, "-o"),
}


@pytest.mark.parametrize("evidence", EVIDENCE)
@pytest.mark.parametrize("words", VERBS.values(), ids=list(VERBS))
def test_evidence_is_never_written_over(
    words: tuple[str, ...],
    evidence: str,
    kept: Path,
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """7 outputs x 6 files."""
    monkeypatch.chdir(kept)
    before = (kept / evidence).read_bytes()
    found = run(*words, evidence)
    assert found.exit_code == 2, found.stderr
    assert len(found.stderr.splitlines()) == 2
    assert (kept / evidence).read_bytes() == before


SAME = [
    ("same", "same"),
    ("same", "./same"),
    ("same", "link"),
    ("link", "same"),
    ("link", "link2"),
    ("sub/../same", "same"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_outputs_are_two_files(
    one: str, other: str, kept: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept)
    (kept / "sub").mkdir()
    for link in ("link", "link2"):
        (kept / link).symlink_to("same")
    found = run("diagnose", "x.ncu-rep", "--csv", one, "--parquet", other)
    assert found.exit_code == 2
    assert "are the same file" in found.stderr
    assert not (kept / "same").exists()


def test_a_page_is_not_lost_with_the_folder_that_it_is_in(
    kept: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept)
    for page in ("out/page.html", "out"):
        found = run("triage", TRACE.name, "-o", "out", "--page", page)
        assert found.exit_code == 2
    assert run("triage", TRACE.name, "-o", "out", "--page", "page.html").exit_code == 0


def test_a_page_opens_in_the_browser_that_there_is(run, tmp_path: Path, monkeypatch) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open_new_tab", lambda url: not opened.append(url))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    page = tmp_path / "page.html"
    words = ("report", ROOT / "artifacts" / "stage2.B.ncu-rep", "-o", page, "--open")
    without = run(*words)
    assert without.exit_code == 0
    assert "no browser was found" in without.stderr
    monkeypatch.setenv("DISPLAY", ":0")
    assert run(*words).exit_code == 0
    assert opened == [page.as_uri()]
    trace = ROOT / "tests" / "program" / "data" / "host_sync_item.planted.json.gz"
    assert run("triage", trace, "--page", page, "--open", "--quiet").exit_code == 0
    assert len(opened) == 2
    assert f"<title>Triage: {trace.name}</title>" in page.read_text("utf-8")
    missing = run("triage", trace, "--open")
    assert missing.exit_code == 2
    assert "--page" in missing.stderr
