"""The program around the verbs: help, statuses, signals, pipes, and how light it starts."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import profkit
from profkit.cli.app import import_verbs, list_verbs_alphabetically
from profkit.errors import ProfkitError
from profkit.reports import reader
from tests.conftest import ROOT

from .conftest import REPORT

VERBS = list_verbs_alphabetically()


def test_the_verbs_of_reading_are_there() -> None:
    assert {"diagnose", "roofline", "explain"} <= set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_every_flag_has_help(run, verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0
    command = import_verbs()[verb]
    assert command.help
    assert len(command.help.splitlines()[0]) <= 80
    assert not [p.name for p in command.params if not getattr(p, "help", "")]


def test_version(run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"profkit {profkit.__version__}\n")


def test_the_list_of_verbs_fits(shell) -> None:
    found = shell("--help", COLUMNS="80")
    assert found.returncode == 0
    listed = found.stdout.split("Understand a kernel:")[1].split("\nOptions:")[0]
    assert "..." not in listed
    first_lines = [line for line in listed.splitlines() if re.match(r"  \S", line)]
    assert {line.split()[0] for line in first_lines} == set(VERBS)


def test_an_unknown_verb_is_two(run) -> None:
    assert run("diagnos").exit_code == 2


def test_a_mistake_is_two_lines_and_two(run, monkeypatch) -> None:
    def read(*args, **kwargs):
        raise ProfkitError("what \x1b[2J\nis wrong", "what to do")

    monkeypatch.setattr(reader, "read_report_files", read)
    result = run("diagnose", REPORT)
    assert result.exit_code == 2
    assert result.stderr.splitlines() == ["profkit: what \\x1b[2J\\nis wrong", "  what to do"]
    assert result.stdout == ""


def test_interrupted_is_130(run, monkeypatch) -> None:
    def read(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "read_report_files", read)
    result = run("diagnose", REPORT)
    assert (result.exit_code, result.stderr) == (130, "")


def test_a_bug_keeps_its_traceback(run, monkeypatch) -> None:
    def read(*args, **kwargs):
        return 1 / 0

    monkeypatch.setattr(reader, "read_report_files", read)
    assert isinstance(run("diagnose", REPORT).exception, ZeroDivisionError)


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "profkit", "explain", "--markdown"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_completion_is_there(shell) -> None:
    asked = {"COMP_WORDS": "profkit dia", "COMP_CWORD": "1"}
    found = shell(_PROFKIT_COMPLETE="complete_bash", **asked)
    assert (found.returncode, found.stdout) == (0, "diagnose\n")


@pytest.mark.parametrize("module", ["profkit", "profkit.cli.app", "profkit.errors"])
def test_importing_it_is_light(module: str) -> None:
    heavy = ("pandas", "numpy", "ncu_report", "matplotlib", "scipy", "rich", "torch")
    code = f"import {module}, sys; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert found.stdout == "[]\n"


def test_explain_through_the_command_line(run) -> None:
    assert run("explain", "long-scoreboard").stdout.startswith("long-scoreboard\n")
    assert run("explain", "time", "--markdown").stdout.startswith("## time")
    wrong = run("explain", "long-scorebord")
    assert wrong.exit_code == 2
    assert wrong.stderr.splitlines()[1].startswith("  did you mean long-scoreboard")


def test_an_option_that_is_not_there_is_two_lines(run) -> None:
    found = run("diagnose", "--jsn", "x.ncu-rep")
    assert found.exit_code == 2
    first, second = found.stderr.splitlines()
    assert first == "profkit: diagnose: no such option --jsn"
    assert second.startswith("  did you mean --json")
    assert "\x1b" not in found.stderr  # no terminal, no colours
