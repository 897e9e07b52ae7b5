"""An agent's six questions, answered about one folder and nothing outside of it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.cli.agents import Answers, describe_error_for_agent
from profkit.errors import ProfkitError
from tests.conftest import ROOT
from tests.found import find_files

pytestmark = pytest.mark.slow

REPORT = "artifacts/stage2.B.ncu-rep"
OTHER = "artifacts/attention/B/stage2swizzle.ncu-repz"


@pytest.fixture
def answers() -> Answers:
    return Answers(ROOT)


def test_the_answers_are_the_briefs(answers: Answers, run, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    told = answers.diagnose(REPORT).text
    said = run("diagnose", REPORT, "--brief").stdout.strip().replace("\n  ", " ")
    before_commands = said.partition("\nRun: ")[0]
    assert len(before_commands.splitlines()) >= 3
    assert told.startswith(before_commands)
    assert "bank conflicts" in told
    compared = answers.compare("stage2", "stage2swizzle", "B").text
    asked = run("compare", "stage2", "stage2swizzle", "--case", "B", "--brief").stdout.strip()
    asked = asked.replace("\n  ", " ")
    assert "profkit explain short-scoreboard" in asked
    call = "call explain(name='short-scoreboard')"
    assert compared == asked.replace("profkit explain short-scoreboard", call)
    assert answers.explain("shared-bank-conflicts").text.startswith("shared-bank-conflicts\n")
    assert "ptx.cuh" in answers.lines(REPORT).text


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
    from mcp.server.mcpserver.exceptions import ToolError

    from profkit.cli.protocol import make_mcp_server

    server = make_mcp_server(ROOT)
    tools = asyncio.run(server.list_tools())
    assert sorted(tool.name for tool in tools) == [
        "compare",
        "diagnose",
        "explain",
        "lines",
        "roofline",
        "triage",
    ]
    assert not [tool.name for tool in tools if not tool.description]

    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
    for tool in tools:
        assert "Args" not in (tool.description or "")
        assert all(of.get("description") for of in tool.input_schema["properties"].values())

    def call(name: str, **arguments: Any) -> Any:
        return asyncio.run(server.call_tool(name, arguments)).content[-1]

    assert "bank conflicts" in call("diagnose", reports=REPORT).text
    trace = "tests/program/data/copy_pageable.planted.json.gz"
    assert "1. copy: saves about" in call("triage", recording=trace).text
    picture = call("roofline", reports=REPORT, picture=True)
    assert (picture.type, picture.mime_type) == ("image", "image/png")
    assert "shared-bank-conflicts: " in call("explain").text
    with pytest.raises(ToolError) as refusal:
        call("diagnose", report=REPORT)
    said = "diagnose: reports: field required\narguments: reports, kernel, where, top"
    assert str(refusal.value) == said


def test_roofline_says_each_launch_in_words(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'profkit[plots]'")
    told = Answers(ROOT).roofline(REPORT)
    assert re.search(
        r"^stage2<64>: 55.1 µs, 9.74 TFLOP/s tensor FP16, .* [\d.]+ % of the tensor FP16 roof$",
        told.text,
    )
    assert told.picture is None
    assert Answers(ROOT).roofline(REPORT, picture=True).picture
    with pytest.raises(ProfkitError, match="no launch matches --kernel gemm"):
        Answers(ROOT).roofline(REPORT, kernel="gemm")


def test_globs_are_read_below_the_folder(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    for name in ("runs/x.ncu-rep", "runs/a/y.ncu-rep"):
        (tmp_path / name).write_bytes((ROOT / REPORT).read_bytes())
    answers = Answers(tmp_path.resolve())
    for pattern in ("runs/*.ncu-rep", "*/*.ncu-rep", "runs/**/x.ncu-rep"):
        assert answers.diagnose(pattern).content["kernels"][0]["report"] == "runs/x.ncu-rep"


def test_a_step_is_told_by_line_module_or_operator(answers: Answers) -> None:
    trace = "tests/program/data/attention_written_out.planted.json.gz"
    told = answers.triage(trace, by="operator")
    assert told.content["table"][0]["operator"] == "aten::masked_fill"
    assert "kernels" not in told.content
    assert "of 12.0 ms" in answers.triage(trace, step_ms=12.0).text
    with pytest.raises(ProfkitError, match="by=file: no such table"):
        answers.triage(trace, by="file")


def test_reports_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "cut.ncu-rep").write_bytes((ROOT / REPORT).read_bytes()[:9999])
    with pytest.raises(ProfkitError, match=r"cut\.ncu-rep: "):
        Answers(tmp_path.resolve()).diagnose("cut.ncu-rep")


def talked(root: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[Any], str]:
    """The results of calls of tools, by the official client over stdio, and what stderr got."""
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def talk(errors: Any) -> list[Any]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "profkit", "mcp", "--root", str(root)],
            cwd=root,
            env={"PYTHONPATH": str(ROOT), "FORCE_COLOR": "1"},
        )
        async with stdio_client(server, errors) as pipes, ClientSession(*pipes) as session:
            await session.initialize()
            return [await session.call_tool(name, given) for name, given in calls]

    with (root / "stderr").open("w+") as errors:
        results = asyncio.run(talk(errors))
        errors.seek(0)
        return results, errors.read()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A folder with a report, records, a trace, and what is none of these."""
    root = tmp_path / "root"
    (root / "artifacts" / "attention" / "B").mkdir(parents=True)
    (root / "empty").mkdir()
    for name in (REPORT, OTHER):
        for file in find_files((ROOT / name).parent, f"{Path(name).stem}.*"):
            (root / name).with_name(file.name).write_bytes(file.read_bytes())
    trace = "copy_pageable.planted.json.gz"
    (root / "t.json.gz").write_bytes((ROOT / "tests/program/data" / trace).read_bytes())
    (root / "notes.txt").write_text("no report")
    return root


REFUSED = [
    ("explain", {"name": "shared-bank-conflit"}, "did you mean shared-bank-conflicts"),
    ("diagnose", {"reports": "/etc/passwd"}, "outside of the folder"),
    ("diagnose", {"reports": ["artifacts", "../x.ncu-rep"]}, "outside of the folder"),
    ("diagnose", {"reports": "nosuch.ncu-rep"}, "no such file"),
    ("diagnose", {"reports": "notes.txt"}, "not an Nsight Compute report"),
    ("diagnose", {"reports": "empty"}, "no reports in this folder"),
    ("diagnose", {"reports": []}, "give a .ncu-rep file, a folder or a glob"),
    ("diagnose", {"reports": 5}, "string"),
    ("roofline", {"reports": "nosuch.ncu-rep"}, "no such file"),
    ("lines", {"report": REPORT, "launch": 7}, "launches are counted from 0"),
    ("lines", {"report": REPORT, "launch": "first"}, "integer"),
    ("lines", {"report": "artifacts"}, "for example artifacts/attention"),
    ("lines", {}, "lines: report: field required"),
    ("compare", {"before": "stage2", "after": "stage2swizle"}, "did you mean stage2swizzle"),
    ("compare", {"before": "stage2.B", "after": "x/y.ncu-rep"}, "no such report in the folder"),
    ("compare", {"before": REPORT[:-1], "after": REPORT}, f"did you mean {REPORT}?"),
    ("compare", {"before": "", "after": REPORT}, "no file was named"),
    ("diagnose", {"reports": ""}, "no file was named"),
    ("lines", {"report": "t.json.gz"}, "call triage(recording='t.json.gz')"),
    ("roofline", {"reports": "t.json.gz"}, "call triage(recording='t.json.gz')"),
    ("triage", {"recording": "t.json.gz", "step_ms": "two"}, "number"),
    ("triage", {"recording": "nosuch.json.gz"}, "no such file"),
    ("triage", {"recording": "empty"}, "name a .triage folder or a trace"),
    ("triage", {"recording": "notes.txt"}, "export_chrome_trace"),
    ("triage", {"recording": "t.jsn.gz"}, "did you mean t.json.gz?"),
    ("triage", {"recording": REPORT}, f"call diagnose(reports={REPORT!r})"),
    ("diagnose", {"reports": "t.json.gz"}, "call triage(recording='t.json.gz')"),
    ("diagnose", {"reports": f"{REPORT[:-1]}"}, "did you mean artifacts/stage2.B.ncu-rep"),
    ("diagnose", {"reports": REPORT, "kernel": "gemm"}, "kernels here: stage2<64>"),
    ("diagnose", {"reports": REPORT, "where": "tme > 1"}, "did you mean time?"),
    ("diagnose", {"reports": REPORT, "where": "open('x')"}, "only comparisons of columns"),
    ("compare", {"before": "t.json.gz", "after": REPORT}, "is a recording of a program"),
]


def test_a_refusal_tells_the_agent_what_to_do(served: Path) -> None:
    results, stderr = talked(served, [(name, given) for name, given, _ in REFUSED])
    for (name, given, words), result in zip(REFUSED, results, strict=True):
        (content,) = result.content
        assert result.is_error, (name, given)
        assert words in content.text, (name, given, content.text)
        assert "http" not in content.text
        assert str(served) not in content.text
        assert "--kernel" not in content.text
        assert not re.search(r"profkit (diagnose|explain|compare|roofline)", content.text)
    assert stderr == ""


def test_a_hint_names_the_tool_where_there_is_one() -> None:
    told = describe_error_for_agent(ProfkitError("t.json: is a trace", "profkit triage t.json"))
    assert told == "t.json: is a trace\ncall triage(recording='t.json')"
    run_it = ProfkitError("not recorded", "profkit profile --variant stage2")
    assert describe_error_for_agent(run_it).endswith(
        "\nask the user: profkit profile --variant stage2"
    )
    a_case = ProfkitError("--case Z: not recorded", "profkit profile --case Z")
    assert (
        describe_error_for_agent(a_case)
        == "case=Z: not recorded\nask the user: profkit profile --case Z"
    )
    written = ProfkitError("t.json: no report", "give a .ncu-rep file that ncu wrote")
    assert describe_error_for_agent(written).endswith("\ngive a .ncu-rep file that ncu wrote")
    record = ProfkitError("a.json: is a run record", "profkit compare a.json OTHER")
    assert describe_error_for_agent(record).endswith("\ncall compare(before='a.json', after=...)")


def test_an_answer_is_plain_text_with_the_data_beside_it(served: Path) -> None:
    asked = [
        ("diagnose", {"reports": [REPORT, OTHER]}),
        ("compare", {"before": "stage2", "after": "stage2swizzle"}),
        ("triage", {"recording": "t.json.gz"}),
        ("lines", {"report": REPORT}),
        ("explain", {"name": "shared-bank-conflicts"}),
    ]
    results, stderr = talked(served, asked)
    for (name, _), result in zip(asked, results, strict=True):
        (content,) = result.content
        assert not result.is_error, content.text
        assert not re.search(r"\\[_*<x]|&lt;|\*\*|\x1b|^Run: |  \n", content.text, re.MULTILINE), (
            name
        )
        assert "      " not in content.text or name in ("triage", "explain"), name
        if result.structured_content:
            # Keys and braces are what it may be longer: it was up to 47 times the text.
            assert len(json.dumps(result.structured_content)) <= 1.5 * len(content.text), name
        assert str(served) not in f"{content.text} {result.structured_content}"
        assert (result.structured_content is None) == (name == "explain")
    diagnosed, compared, triaged, lined, _ = (r.structured_content for r in results)
    assert [kernel["report"] for kernel in diagnosed["kernels"]] == [REPORT, OTHER]
    top = diagnosed["kernels"][0]["findings"][0]
    assert top["rule"] == "shared-bank-conflicts"
    assert f"Call: lines(report='{REPORT}', launch=0)" in results[0].content[0].text
    assert compared["changes"][0]["time"]["answer"] == "faster"
    assert triaged["schema"] == "profkit.triage/2"
    assert triaged["first"]["rule"] == "copy"
    assert {"rule", "cause", "saving", "advice"} <= triaged["findings"][0].keys()
    assert {line["rule"] for line in lined["lines"]} >= {"shared-bank-conflicts"}
    assert stderr == ""


def test_an_agent_asks_for_other_kernels(tmp_path: Path) -> None:
    from tests.reports import made

    names = list(made.METRICS)
    results = [made.result(names, kernel=f"void k{n}(int)") for n in range(9)]
    (tmp_path / "x.ncu-rep").write_bytes(made.report(results, names))
    answers = Answers(tmp_path.resolve())

    def ask(**how: Any) -> list[str]:
        content = answers.diagnose("x.ncu-rep", **how).content
        return [kernel["kernel"] for kernel in content["kernels"]]

    assert ask(kernel="K7") == ["k7"]
    assert ask(where="launch == 8") == ["k8"]
    assert ask(kernel="k8", where="launch == 8") == ["k8"]
    assert len(ask(top=5)) == 5
    assert len(ask(top=0)) == 1


def test_two_recordings_are_compared(answers: Answers) -> None:
    data = "tests/program/data"
    sides = [f"{data}/{name}.planted.json.gz" for name in ("copy_pageable", "healthy_transformer")]
    told = answers.compare(*sides)
    assert "copy" in told.text
    assert told.content
    assert told.content["answer"] in ("faster", "slower", "same")
    assert told.content["promises"][0]["category"] == "copy"


def test_data_is_as_short_as_text_and_shows_what_would_act(tmp_path: Path) -> None:
    from tests.reports import made

    names = list(made.METRICS)
    odd = ["k\x1b[31m\u202e" + str(n) + "x" * 5_000 for n in range(9)]
    results = [made.result(names, kernel=name) for name in odd]
    (tmp_path / "x.ncu-rep").write_bytes(made.report(results, names))
    content = Answers(tmp_path.resolve()).diagnose("x.ncu-rep").content
    assert content
    assert content["more_kernels"] == 6
    assert len(json.dumps(content)) <= 20_000
    assert max(len(kernel["kernel"]) for kernel in content["kernels"]) <= 300
    assert not {"\x1b", "\u202e"} & set(json.dumps(content, ensure_ascii=False))


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
    told = Answers(tmp_path.resolve()).diagnose("x.ncu-rep").text
    assert max(map(len, told.splitlines())) <= 300
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_the_server_speaks_the_protocol_alone_on_stdout(tmp_path: Path) -> None:
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    code = (
        "import os, sys; from profkit.cli import protocol; protocol.reserve_stdout_for_protocol(); "
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
        assert server.wait(300) == 130
    finally:
        server.kill()
        server.communicate()
