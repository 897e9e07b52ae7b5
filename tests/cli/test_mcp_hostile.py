"""What an agent may ask of profkit mcp: nothing outside of its folder, and always an answer in words."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profkit.cli.agents import WIDTH, Answers, describe_error_for_agent
from profkit.errors import ProfkitError
from tests.conftest import ROOT

REPORT = ROOT / "artifacts" / "stage2.B.ncu-rep"
KEPT = ROOT / "tests" / "program" / "data" / "slow_rank.triage"
SECRET = "SECRETCASE"


# The server of an agent reads every report in a fork; so does each question here.
pytestmark = pytest.mark.usefixtures("reads_in_forks")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Records, a report, a kept recording and other JSON, none of which the agent may see."""
    folder = tmp_path / "outside"
    (folder / "p").mkdir(parents=True)
    record = json.loads(REPORT.with_suffix(".json").read_text("utf-8"))
    for name in ("secretone", "secrettwo"):
        record |= {"variant": name, "case": SECRET}
        (folder / f"{name}.{SECRET}.json").write_text(json.dumps(record))
        (folder / "p" / f"{name}.json").write_text(json.dumps(record))
    shutil.copy(REPORT, folder / f"secretone.{SECRET}.ncu-rep")
    shutil.copytree(KEPT, folder / f"{SECRET}.triage")
    (folder / "other.json").write_text(json.dumps({"schema": SECRET, "command": SECRET}))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "artifacts").mkdir(parents=True)
    for suffix in (".json", ".ncu-rep"):
        shutil.copy(REPORT.with_suffix(suffix), folder / "artifacts" / f"stage2.B{suffix}")
    return folder


def link_all(folder: Path, to: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(to.iterdir())):
        name = path.name if to.suffix == ".triage" else f"linked{number}.C{path.suffix}"
        (folder / name).symlink_to(path)


def link(path: Path, to: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)


# Where a link stands in the server's folder, and what is asked.
A = "artifacts"
LINKS: dict[str, Callable[[Path, Path], object]] = {
    "a folder of artifacts": lambda r, o: link(r / A / "out", o),
    "a folder of a folder of artifacts": lambda r, o: link(r / A / "x" / "out", o / "p"),
    "all artifacts": lambda r, o: (shutil.rmtree(r / A), link(r / A, o)),
    "files in artifacts": lambda r, o: link_all(r / A, o),
    "files in a folder of artifacts": lambda r, o: link_all(r / A / "y", o / "p"),
    "a link to a link": lambda r, o: (link(r / "l", o), link(r / A / "out", r / "l")),
    "a relative link": lambda r, _: link(r / A / "out", Path("../../outside")),
    "a record next to a report": lambda r, o: (
        (r / A / "stage2.B.json").unlink(),
        link(r / A / "stage2.B.json", o / f"secretone.{SECRET}.json"),
    ),
    "a kept recording": lambda r, o: link(r / "in.triage", o / f"{SECRET}.triage"),
    "files of a kept recording": lambda r, o: link_all(r / "in.triage", o / f"{SECRET}.triage"),
    "a head that is other JSON": lambda r, o: link(r / "in.triage/timeline.json", o / "other.json"),
    "a report": lambda r, o: link(r / "x.ncu-rep", o / f"secretone.{SECRET}.ncu-rep"),
    "a folder of reports": lambda r, o: link(r / "runs", o),
    "kernels above the artifacts": lambda r, o: link(r / "kernels", o),
}
ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("compare", {"before": "secretone", "after": "secrettwo"}),
    ("compare", {"before": "secretonx", "after": "stage2"}),
    ("compare", {"before": "stage2", "after": "secrettwo", "case": SECRET}),
    ("compare", {"before": "artifacts/out", "after": "artifacts"}),
    ("compare", {"before": "x.ncu-rep", "after": "artifacts/stage2.B.ncu-rep"}),
    ("compare", {"before": "artifacts/stage2.B.json", "after": "artifacts/stage2.B.ncu-rep"}),
    ("diagnose", {"reports": "artifacts"}),
    ("diagnose", {"reports": "artifacts/**/*.ncu-rep"}),
    ("diagnose", {"reports": "*.ncu-rep"}),
    ("diagnose", {"reports": "runs"}),
    ("diagnose", {"reports": "runs/*"}),
    ("lines", {"report": "x.ncu-rep"}),
    ("triage", {"recording": "in.triage"}),
    ("triage", {"recording": "in.triage/timeline.json"}),
)


@pytest.mark.parametrize("where", LINKS)
def test_no_link_leads_out(where: str, root: Path, outside: Path) -> None:
    """14 links x 14 questions: an answer, or a refusal, in which nothing of outside is."""
    LINKS[where](root, outside)
    for tool, given in ASKED:
        try:
            told = getattr(Answers(root), tool)(**given)
            text = f"{told.text} {json.dumps(told.content)}"
        except ProfkitError as error:
            text = describe_error_for_agent(error)
        asked = {str(value) for value in given.values()}
        for secret in {SECRET, "secretone", "secrettwo"} - asked:
            assert secret not in text.replace("/" + SECRET, ""), (tool, given, text)
        assert "0.5" not in text or tool != "triage", text


ODD = (
    "a" * 5000,
    "x/" * 5000 + "y",
    "*" * 100_000,
    "a*" * 50_000,
    "[" * 5000,
    "**/" * 2000 + "x",
    "\ud800",
    "\udcff.ncu-rep",
    "\0",
    "a\0/../x",
    "~",
    "~nosuchuser/x",
    "~root/x",
    "..",
    ".",
    "",
    " ",
    "\n",
    "/",
    "//etc/passwd",
    "file:///etc/passwd",
    "\x1b[31m",
    "\u202ex",
    "-o",
    "--help",
    "$(id)",
    "/proc/self/mem",
    "/dev/zero",
    "loop",
    "pipe",
    "artifacts/stage2.B.ncu-rep/x",
)


@pytest.mark.parametrize("tool", ["diagnose", "lines", "triage", "roofline", "compare", "explain"])
def test_whatever_is_asked_is_answered_in_words(tool: str, root: Path) -> None:
    """6 tools x 31 names, each alone: a refusal that says something, of a length that is read."""
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    takes = {"lines": "report", "triage": "recording", "explain": "name"}.get(tool, "reports")
    for name in ODD:
        given = {"before": name, "after": "stage2"} if tool == "compare" else {takes: name}
        try:
            getattr(Answers(root), tool)(**given)
        except ProfkitError as error:
            text = describe_error_for_agent(error)
            assert text.strip(), name[:40]
            assert len(text) < 3 * WIDTH + 200, (name[:40], len(text))
            text.encode()  # a message is UTF-8


LINES = {
    "a lone surrogate": b'{"jsonrpc":"2.0","id":"s","method":"tools/call","params":{"name":"explain",'
    b'"arguments":{"name":"\\ud800"}}}\n',
    "no JSON": b"hello\n",
    "no UTF-8": b"\xff\xfe\n",
    "a number of 5,000 digits": b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b"}\n",
    "100,000 deep": b"[" * 100_000 + b"\n",
    "a long line": b"x" * 40_000_000 + b"\n",
    "empty lines": b"\n" * 1000,
}
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{},"clientInfo":{"name":"x","version":"1"}}}\n'
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
)
PING = b'{"jsonrpc":"2.0","id":"last","method":"ping"}\n'


def start_server(root: Path, **how: Any) -> subprocess.Popen[bytes]:
    pytest.importorskip("mcp", reason="pip install 'profkit[mcp]'")
    command = [sys.executable, "-m", "profkit", "mcp", "--root", str(root)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


@pytest.mark.slow
def test_lines_that_are_no_questions_end_nothing(root: Path) -> None:
    """One server is given all of them, and a ping behind each."""
    server = start_server(root, stdin=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    assert server.stderr
    server.stdin.write(INITIALIZE)
    for line, given in LINES.items():
        server.stdin.write(given + PING)
        server.stdin.flush()
        answers = []
        for said in server.stdout:
            answers.append(json.loads(said))
            if answers[-1].get("id") == "last":
                break
        refused = [answer["error"]["message"] for answer in answers if "error" in answer]
        assert len(refused) == (0 if line == "empty lines" else 1), (line, answers)
        assert all(refused), line
        if line == "a lone surrogate":
            assert "s" in [answer.get("id") for answer in answers]
    _, said = server.communicate(timeout=240)
    assert b"Traceback" not in said


@pytest.mark.slow
def test_without_stdin_it_ends_with_a_reason(root: Path) -> None:
    server = start_server(root, preexec_fn=lambda: os.close(0))
    _, err = server.communicate(timeout=240)
    assert b"Traceback" not in err
    assert server.returncode in (0, 2)


@pytest.mark.slow
def test_the_server_reads_no_report_itself(root: Path) -> None:
    """Nsight Compute's library keeps six times the bytes of what it opens: 28 MB for each question."""
    server = start_server(root, stdin=subprocess.PIPE)
    assert server.stdin
    assert server.stdout
    report = "artifacts/stage2.B.ncu-rep"
    tools = {"diagnose": {"reports": report}, "lines": {"report": report}}
    server.stdin.write(INITIALIZE)
    for number, (name, given) in enumerate(tools.items(), 1):
        asked = {"name": name, "arguments": given}
        question = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": asked}
        server.stdin.write(json.dumps(question).encode() + b"\n")
    server.stdin.flush()
    answers = [json.loads(server.stdout.readline()) for _ in range(1 + len(tools))]
    try:
        assert not [a for a in answers if "error" in a or a["result"].get("isError")]
        assert "ncu_report" not in Path(f"/proc/{server.pid}/maps").read_text()
    finally:
        server.communicate(timeout=240)
