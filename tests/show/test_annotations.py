"""Findings as lines for editors and CI: what problem matchers, GitHub and code scanning read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.cli.options import FORMATS
from profkit.show.annotations import (
    WRITERS,
    Annotation,
    find_local_path,
    format_gcc_warnings,
    format_github_commands,
    format_sarif_log,
)
from tests.conftest import ROOT

from .sarif import LOG

REPORT = ROOT / "artifacts" / "stage2.B.ncu-rep"
TRACE = ROOT / "tests" / "program" / "data" / "attention_with_bias.planted.json.gz"
# Of the problem matcher that editors have for gcc: file, line, column, severity, message.
MATCHER = re.compile(r"^(.*?):(\d+):(\d*):?\s+(?:fatal\s+)?(warning|error):\s+(.*)$")


def test_each_form_has_its_writer() -> None:
    assert set(FORMATS) == set(WRITERS)


def show(*args: object) -> str:
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_an_editor_finds_each_line_in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    lines = show("diagnose", REPORT, "--format", "gcc").splitlines()
    found = [MATCHER.match(line) for line in lines]
    assert all(found), lines
    assert found[0][1] == "kernels/common/ptx.cuh"
    assert found[0][2] == "57"
    assert found[0][5].startswith("shared-bank-conflicts: stage2<64>: 73.1 %")
    assert found[0][5].endswith("; expect 1.87x (1.27 to 3.21), at most 3.38x")
    assert all((ROOT / match[1]).is_file() for match in found)


def test_a_trace_without_lines_names_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (line,) = show("triage", TRACE, "--format", "gcc").splitlines()
    assert line.startswith(f"{TRACE.relative_to(ROOT)}: warning: attention-unfused: ")
    assert re.search(r"; saves about [\d.]+ of [\d.]+ ms \([\d.]+ to [\d.]+\)$", line)


def test_sarif_has_what_its_schema_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    jsonschema.validate(json.loads(show("triage", TRACE, "--format", "sarif")), LOG)
    log = json.loads(show("diagnose", REPORT, "--format", "sarif"))
    jsonschema.validate(log, LOG)
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert run["tool"]["driver"]["name"] == "profkit"
    assert len({rule["id"] for rule in rules}) == len(rules)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert (ROOT / place["artifactLocation"]["uri"]).is_file()


def make_annotation(**changes: object) -> Annotation:
    known = {
        "file": "a,b:c.cu",
        "line": 7,
        "rule": "tail",
        "cause": "50 % idle\n::error::planted",
        "gain": "expect 2x",
        "advice": "Do less.",
        "matters": True,
    }
    return Annotation(**(known | changes))


def test_a_hostile_name_is_one_line_and_no_command() -> None:
    hostile = make_annotation()
    for written in (format_gcc_warnings([hostile]), format_github_commands([hostile])):
        assert written.count("\n") == 1
    line = format_github_commands([hostile]).rstrip("\n")
    head, _, text = line.removeprefix("::").partition("::")
    assert head == "warning file=a%2Cb%3Ac.cu,line=7,title=profkit%3A tail"
    assert text == "tail: 50 %25 idle%0A::error::planted; expect 2x%0ADo less."
    log = json.loads(format_sarif_log([hostile]))
    assert log["runs"][0]["results"]
    jsonschema.validate(log, LOG)


def test_what_saves_nothing_is_a_note() -> None:
    limit = make_annotation(matters=False, line=None)
    assert format_gcc_warnings([limit]).startswith("a,b:c.cu: note: tail: ")
    assert format_github_commands([limit]).startswith("::notice file=a%2Cb%3Ac.cu,title=")
    (result,) = json.loads(format_sarif_log([limit]))["runs"][0]["results"]
    assert result["level"] == "note"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 1


def test_a_file_is_found_by_the_end_of_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "nanoGPT"
    (checkout / "src").mkdir(parents=True)
    (checkout / "src" / "utils.py").write_text("")
    (checkout / "model.py").write_text("")
    monkeypatch.chdir(checkout)
    assert find_local_path("/build/x/src/utils.py") == "src/utils.py"
    assert find_local_path("model.py") == "model.py"
    assert find_local_path("/home2/me/nanoGPT/model.py") == "model.py"
    assert find_local_path("/usr/lib/torch/model.py") == "/usr/lib/torch/model.py"
    assert find_local_path("/x/../model.py") == "/x/../model.py"
    assert find_local_path("\0") == "\0"


@pytest.mark.parametrize("verb", ["diagnose", "triage"])
def test_a_form_that_there_is_not(verb: str) -> None:
    path = REPORT if verb == "diagnose" else TRACE
    for flags in (["--format", "xml"], ["--format", "gcc", "--json"]):
        result = CliRunner().invoke(app, [verb, str(path), *flags])
        assert result.exit_code == 2
        assert "--format" in result.stderr
