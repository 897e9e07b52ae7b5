"""profkit triage, from the command line, without a GPU."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from profkit.program.readers import injected, read_timeline, store
from tests.conftest import ROOT
from tests.program.made import Program, ran
from tests.program.recorded_lines import record_training

pytestmark = pytest.mark.slow

DATA = ROOT / "tests" / "program" / "data"
COPY = str(DATA / "copy_pageable.planted.json.gz")


def test_a_trace_on_the_screen_as_json_and_as_markdown(run) -> None:
    text = run("triage", COPY)
    assert text.exit_code == 0
    assert "1. copy: saves about" in text.stdout
    document = json.loads(run("triage", COPY, "--json").stdout)
    assert document["first"]["category"] == "copy"
    plain = document["step"]["plain_ms"]["expect"]
    assert run("triage", COPY, "--markdown").stdout.startswith(
        f"Without the profiler a step takes about {plain:.2f} ms"
    )


@pytest.mark.parametrize("name", ["trace", "trace.of_monday", "step.txt"])
def test_a_file_that_nobody_can_run_is_a_recording(run, tmp_path: Path, name: str) -> None:
    """Whatever its name: "cannot start trace: Permission denied" was said."""
    odd = tmp_path / name
    odd.write_bytes(Path(COPY).read_bytes())
    assert "1. copy: saves about" in run("triage", str(odd)).stdout
    odd.write_text("no trace")
    refused = run("triage", str(odd))
    assert refused.exit_code == 2
    assert f"{odd}: cannot be read as a trace" in refused.stderr


def test_kept_read_again_and_compared(run, tmp_path: Path) -> None:
    before, after = tmp_path / "before.triage", tmp_path / "after.triage"
    mended = str(DATA / "attention_written_out.mended.json.gz")
    planted = str(DATA / "attention_written_out.planted.json.gz")
    for trace, folder in ((planted, before), (mended, after)):
        assert run("triage", trace, "-o", str(folder), "--quiet").exit_code == 0
    assert sum(f.stat().st_size for f in before.iterdir()) < 1_000_000
    again = json.loads(run("triage", str(before), "--json").stdout)
    assert again["first"] == json.loads((before / "triage.json").read_text())["first"]
    change = run("compare", str(before), str(after))
    assert change.exit_code == 0
    assert "Faster, 3.9" in change.stdout
    assert run("compare", str(after), str(before), "--fail-on", "slower").exit_code == 1
    kept = json.loads(run("compare", str(before), str(after), "--json").stdout)
    (promise,) = [p for p in kept["promises"] if p["state"] == "gone"]
    assert promise["category"] == "attention-unfused"
    assert kept["before_ms"] / kept["after_ms"] == pytest.approx(24.9 / 6.4, rel=0.05)
    saved = kept["before_ms"] - kept["after_ms"]
    expected, low, high = promise["said"]
    assert low < expected < saved < 1.05 * high


@pytest.mark.parametrize("by", ["line", "module", "operator"])
def test_the_table_is_by_what_is_asked_for(run, by: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.triage"
    store.write_timeline(
        injected.read_injected_recording(record_training(tmp_path / "recorded", 12)), kept
    )
    shown = run("triage", str(kept), "--by", by).stdout
    rows = shown[shown.index("Where the GPU's time goes") :].splitlines()
    first = {"line": "model.py:64", "module": "h.*.attn", "operator": "unknown"}[by]
    assert rows[1].split()[0] == by
    assert rows[2].strip().startswith(first)
    assert run("triage", str(kept), "--by", "grid").exit_code == 2


def test_files_for_other_viewers_are_written(run, tmp_path: Path) -> None:
    trace, scope = tmp_path / "t.json", tmp_path / "s.json"
    assert run("triage", COPY, "--trace", str(trace), "--speedscope", str(scope)).exit_code == 0
    assert json.loads(trace.read_text())["traceEvents"]
    assert json.loads(scope.read_text())["profiles"]
    assert run("triage", COPY, "--trace", COPY).exit_code == 2  # what is read is not overwritten


def test_a_plain_run_checks_the_idle_time(run) -> None:
    trace = str(DATA / "host_launch_small_layers.planted.json.gz")
    document = json.loads(run("triage", trace, "--step-ms", "5.83", "--json").stdout)
    assert document["step"]["plain_ms"]["expect"] == pytest.approx(5.83, rel=0.01)
    assert document["findings"][0]["saves_ms"]["low"] > 0
    assert document["findings"][0]["saves_ms"]["expect"] == pytest.approx(4.9, rel=0.1)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["nowhere.json"], "no such file"),
        ([COPY, "--range", "epoch"], "--range epoch: not in the timeline"),
        ([COPY, "--json", "--markdown"], "cannot be combined"),
        ([COPY, str(DATA / "strided.timeline")], "contains no timeline.json"),
        *(
            ([COPY, "--step-ms", ms], f"--step-ms {ms}: not a possible step time")
            for ms in ("nan", "inf", "1e+300", "1e-300", "0")
        ),
        ([COPY, "-o", "t.html"], "for the file: --page t.html"),
        ([COPY, "-o", "/proc/t.triage"], "/proc: cannot be written"),
        ([COPY, str(DATA / "fp32_matmul.planted.json.gz")], "profkit compare A B"),
    ],
)
def test_mistakes_are_two_lines(run, args: list[str], words: str) -> None:
    result = run("triage", *args)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 2
    assert result.stdout == ""


def test_nothing_that_is_there_is_overwritten(run, tmp_path: Path) -> None:
    result = run("triage", COPY, "-o", str(tmp_path))
    assert result.exit_code == 2
    assert "already exists" in result.stderr


needs_cupti = pytest.mark.skipif(
    shutil.which("g++") is None
    or (
        not any(Path(p).is_file() for p in ("/usr/local/cuda/include/cupti.h",))
        and shutil.which("nvcc") is None
    ),
    reason="no CUPTI here",
)


@needs_cupti
@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("pass", "the program did not use a GPU"),
        ("raise SystemExit('broken pipe dream')", "ended with status 1 before any kernel"),
    ],
)
def test_a_command_that_never_gets_to_the_gpu(run, program: str, words: str) -> None:
    result = run("triage", "--", sys.executable, "-c", program)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_command_that_does_not_exist(run) -> None:
    result = run("triage", "--", "no-such-program")
    assert result.exit_code == 2
    assert "profkit: " in result.stderr


def test_a_kept_program_is_a_section_of_a_page(run, tmp_path: Path) -> None:
    folder, page = tmp_path / "<b>.triage", tmp_path / "page.html"
    trace = str(DATA / "attention_written_out.planted.json.gz")
    assert run("triage", trace, "-o", str(folder), "--quiet").exit_code == 0
    content = json.loads((folder / "triage.json").read_text())
    report = str(ROOT / "artifacts" / "stage2.B.ncu-rep")
    kernel = json.loads(run("diagnose", report, "--json").stdout)["launches"][0]
    content["kernels"][0] |= {
        "name": kernel["kernel"],
        "grid": kernel["grid"],
        "block": kernel["block"],
    }
    (folder / "triage.json").write_text(json.dumps(content))
    assert run("report", str(folder), report, "-o", str(page), "--quiet").exit_code == 0
    text = page.read_text()
    section = text[text.index('<section id="program-1"') : text.index('<section id="launches"')]
    assert "attention-unfused: saves about" in section
    assert 'aria-label="The step: computing' in section
    assert 'aria-label="stream ' in section
    assert '<a href="#launch-1">k1</a>' in section
    assert "<b>.triage" not in section
    assert "&lt;b&gt;.triage" in section
    assert "style=" not in section
    assert run("report", str(folder), "-o", str(page), "--quiet").exit_code == 0


def _counted_program(folder: Path) -> Path:
    """A kept folder whose longest kernel is the one of the report beside its timeline."""
    from profkit.reports.reader import load_reports

    report = ROOT / "artifacts" / "scalar.B.ncu-rep"
    launch = load_reports([str(report)]).iloc[0]
    sizes = {k: [int(n) for n in launch[k]] for k in ("grid", "block")}

    def step(p: Program) -> None:
        p.launch(launch["kernel"], 300.0, **sizes)
        p.launch("other_kernel(float*)", 20.0)

    store.write_timeline(read_timeline(ran(step).write(folder.parent / "trace.json")), folder)
    shutil.copy(report, folder / "counters.ncu-rep")
    return folder


def test_counters_that_were_kept_are_read_again(run, tmp_path: Path) -> None:
    kept, copied = _counted_program(tmp_path / "step.triage"), tmp_path / "copied.triage"
    assert run("triage", str(kept), "-o", str(copied), "--quiet").exit_code == 0
    rows = json.loads(run("triage", str(copied), "--json").stdout)["kernels"]
    assert [row["counted"] for row in rows] == [True, False]
    assert rows[0]["bound"]
    rows = json.loads((copied / "triage.json").read_text())["kernels"]
    assert rows[0]["next"].startswith(f"profkit diagnose {copied}/counters.ncu-rep --kernel ")
    assert rows[1]["next"] is None
    words = rows[0]["next"].removeprefix("profkit ").replace("'", "").split()
    assert run(*words).exit_code == 0
    screen = run("triage", str(kept)).stdout
    assert "details of k1: profkit diagnose" in screen.replace("\n  ", " ")


def test_without_permission_for_counters_the_timeline_is_the_answer(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from profkit.cli import watching
    from profkit.collect import timeline as recorder
    from profkit.program.readers import injected

    timeline = injected.read_injected_recording(DATA / "strided.timeline")
    monkeypatch.setattr(watching, "record_program", lambda *_: (timeline, True))
    monkeypatch.setattr(
        recorder.tools, "require_tool", lambda _: ROOT / "tests/measure/standin/ncu"
    )
    monkeypatch.setenv("FAKE_NCU", "permission")
    monkeypatch.setenv("FAKE_NCU_LOG", str(tmp_path / "ncu.log"))
    result = run("triage", "-o", str(tmp_path / "t.triage"), "--json", "--quiet", "--", "./strided")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert any("no counters were collected: this user may not read" in n for n in document["notes"])
    assert {row["counted"] for row in document["kernels"]} == {False}
    assert document["first"]["category"]
    assert (tmp_path / "t.triage" / "timeline.json").is_file()


def test_a_kept_answer_of_the_second_version_is_read_as_one_of_the_first(
    run, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.triage", tmp_path / "second.triage"
    for folder in (first, second):
        assert run("triage", COPY, "-o", str(folder), "--quiet").exit_code == 0
    document = json.loads((second / "triage.2.json").read_text())
    assert document["schema"] == "profkit.triage/2"
    printed = run("triage", COPY, "--json", "--schema", "2", "--quiet")
    assert json.loads(printed.stdout) == document
    assert "add --json" in run("triage", COPY, "--schema", "2").stderr
    assert "--schema 3: no such version" in run("triage", COPY, "--json", "--schema", "3").stderr
    finding = document["findings"][0]
    assert finding["rule"] == document["first"]["rule"] == "copy"
    assert finding["saving"] == document["first"]["saving"]
    assert isinstance(finding["where"], list)
    assert finding["status"] == "fires"
    (second / "triage.2.json").rename(second / "triage.json")
    compared = run("compare", str(first), str(second), "--json")
    assert json.loads(compared.stdout)["answer"] == "same"
    assert len(json.loads(compared.stdout)["promises"]) == len(document["findings"])
    page = tmp_path / "page.html"
    assert run("report", str(second), "-o", str(page), "--quiet").exit_code == 0
    (second / "triage.json").write_text(json.dumps(document | {"schema": "profkit.triage/3"}))
    refused = run("report", str(second), "-o", str(page), "--quiet")
    assert refused.exit_code == 2
    assert "is profkit.triage/3, not profkit.triage/1" in refused.stderr
    assert run("triage", COPY, "-o", str(second), "--quiet").exit_code == 0, "it is profkit's own"


def test_what_a_line_outside_of_modules_launches_has_no_module() -> None:
    from profkit.show.views.triage import sum_rows_by_origin

    def origin(line: str, module: str) -> dict[str, object]:
        row: dict[str, object] = {"line": line, "module": module, "op": "", "function": ""}
        return row | {"part": "", "ms": 1.0, "share": 0.25, "calls": 1, "kernels": ["k1"]}

    kernels = [{"id": "k1", "limiter": None}]
    origins = [origin("a.py:1", "layers.0"), origin("a.py:2", ""), origin("", "")]
    rows = sum_rows_by_origin({"kernels": kernels, "origins": origins}, "module")
    assert sorted(row["name"] for row in rows) == ["layers.*", "no module", "unknown"]
    rows = sum_rows_by_origin({"kernels": kernels, "origins": origins[1:]}, "module")
    assert [row["name"] for row in rows] == ["unknown"]  # no module is known at all
