"""An agent's six questions, answered about one folder and nothing outside of it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.cli.inputs.agent import Answers
from profkit.errors import ProfkitError
from tests.conftest import ROOT

REPORT = "artifacts/stage2.B.ncu-rep"


@pytest.fixture
def answers() -> Answers:
    return Answers(ROOT)


def test_the_answers_are_the_briefs(answers: Answers, run, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    told = answers.diagnose(REPORT)
    said = run("diagnose", REPORT, "--brief").stdout.strip()
    assert told.splitlines()[:5] == said.splitlines()[:5]
    assert "bank conflicts" in told
    assert (
        answers.compare("stage2", "stage2swizzle", "B").splitlines()
        == run("compare", "stage2", "stage2swizzle", "--case", "B", "--brief").stdout.splitlines()
    )
    assert answers.explain("shared-bank-conflicts").startswith("shared-bank-conflicts\n")
    assert "ptx.cuh" in answers.lines(REPORT)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../x.ncu-rep", "artifacts/../../x", "/etc/*", "link/x.ncu-rep"]
)
def test_nothing_outside_of_the_folder_is_read(tmp_path: Path, path: str) -> None:
    (tmp_path / "link").symlink_to("/etc")
    answers = Answers(tmp_path.resolve())
    for ask in (answers.diagnose, answers.lines, answers.roofline, answers.triage):
        with pytest.raises(ProfkitError, match="outside of the folder"):
            ask(path)
    with pytest.raises(ProfkitError, match="outside of the folder"):
        answers.compare(path, path)


def test_a_link_in_a_folder_does_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "x.ncu-rep").symlink_to(ROOT / REPORT)
    with pytest.raises(ProfkitError, match="outside of the folder"):
        Answers(tmp_path.resolve()).diagnose("runs")


def test_the_server_has_six_tools_and_none_runs_a_command() -> None:
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    from profkit.cli.serving.mcp import server_of

    server = server_of(ROOT)
    tools = asyncio.run(server.list_tools())
    assert sorted(tool.name for tool in tools) == [
        "compare", "diagnose", "explain", "lines", "roofline", "triage",
    ]  # fmt: skip
    assert not [tool.name for tool in tools if not tool.description]

    def call(name: str, **arguments: Any) -> Any:
        return asyncio.run(server.call_tool(name, arguments)).content[0]

    assert "bank conflicts" in call("diagnose", reports=REPORT).text
    trace = "tests/program/data/copy_pageable.planted.json.gz"
    assert "1. copy: saves about" in call("triage", recording=trace).text
    picture = call("roofline", reports=REPORT)
    assert (picture.type, picture.mime_type) == ("image", "image/png")


def test_without_the_extra_it_is_named(run, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    asked = run("mcp")
    assert asked.exit_code == 2
    assert "pip install 'profkit[mcp]'" in asked.stderr


def test_a_side_is_never_looked_up_outside(tmp_path: Path, monkeypatch) -> None:
    """A name that the folder does not hold was a path of where the server was started."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    for folder in (outside, root):
        folder.mkdir()
    for name in ("x.ncu-rep", "stage1"):
        (outside / name).write_bytes((ROOT / REPORT).read_bytes())
    monkeypatch.chdir(outside)
    monkeypatch.setenv("HOME", str(outside))
    answers = Answers(root.resolve())
    for name in ("x.ncu-rep", "~/x.ncu-rep", "*.ncu-rep", "stage1", "x\0y"):
        with pytest.raises(ProfkitError, match=r"no such report in the folder|cannot be a path"):
            answers.compare(name, name)


def test_answers_are_short_and_show_what_would_act(tmp_path: Path) -> None:
    from tests.reports import made

    names = list(made.METRICS)
    odd = "k\x1b[31m\u202e" + "x" * 50_000
    (tmp_path / "x.ncu-rep").write_bytes(made.report([made.result(names, kernel=odd)] * 3, names))
    told = Answers(tmp_path.resolve()).diagnose("x.ncu-rep")
    assert max(map(len, told.splitlines())) <= 300
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_the_server_speaks_the_protocol_alone_on_stdout(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    code = (
        "import os, sys; from profkit.cli.serving import mcp; mcp._own_stdout(); "
        "os.write(1, b'noise'); print('spoken', flush=True)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == (b"spoken\n", b"noise")


def test_a_server_that_waits_ends_when_it_is_told() -> None:
    """Its library reads stdin in a thread, which nothing but a line or its end wakes."""
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, "-m", "profkit", "mcp"], cwd=ROOT, **pipes)
    assert server.stdin
    assert server.stdout
    who = {"name": "x", "version": "1"}
    hello = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": who}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    server.stdin.write(json.dumps(asked).encode() + b"\n")
    server.stdin.flush()
    assert b"result" in server.stdout.readline()
    server.terminate()
    try:
        assert server.wait(10) == 130
    finally:
        server.kill()
        server.communicate()
