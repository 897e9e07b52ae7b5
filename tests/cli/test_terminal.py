"""Every table of every verb in a real terminal: it fits, no number is cut, no row is tall."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from profkit.show.text.terminal import TALLEST
from tests.cli.in_a_terminal import END
from tests.conftest import ROOT
from tests.sweeps import take_part

DATA = ROOT / "tests" / "program" / "data"
_NUMBER = re.compile(r"[-+~±]?\d(?:[\d.,:]*\d)?%?")
_STYLE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
# Titles of two lines, on each of the lines that a row may have.
_HEADS = 2 * TALLEST


WIDTHS = take_part((80, 160), one_of=2)
Shown = dict[int, tuple[str, list[Any]]]


def in_terminal(commands: dict[int, list[list[str]]], kept: Path) -> Shown:
    """Width -> what a terminal shows of some commands, and the tables that they drew.

    Args:
        commands: Columns of the terminal -> the arguments of profkit, of each command.
        kept: Where the tables are written.
    """
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.in_a_terminal", str(kept), json.dumps(commands)],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=env | {"NO_COLOR": "1", "TERM": "xterm", "PYTHONPATH": str(ROOT)},
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait(300) == 0
    parts = shown.decode().replace("\r\n", "\n").split(f"{END}\n")
    found = json.loads(kept.read_text("utf-8"))
    return {w: (part, found[str(w)]) for w, part in zip(commands, parts[:-1], strict=True)}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Every verb that prints a table, of what is committed, at each width."""
    head = tmp_path_factory.mktemp("head")
    for name in ("stage1", "stage2"):
        record = json.loads((ROOT / "artifacts" / f"{name}.B.json").read_text("utf-8"))
        record["timing"]["l2"]["warm"]["samples"] = [
            1.1 * x for x in record["timing"]["l2"]["warm"]["samples"]
        ]
        record["source"]["sass"] = record["source"]["sha256"]  # other machine code
        (head / f"{name}.B.json").write_text(json.dumps(record), "utf-8")
    kept = tmp_path_factory.mktemp("kept")
    commands = {
        width: take_part(
            _commands(head, kept / f"{width}a.triage", kept / f"{width}b.triage"), 2, 1
        )
        for width in WIDTHS
    }
    return in_terminal(commands, kept / "tables.json")


def _commands(head: Path, before: Path, after: Path) -> list[list[str]]:
    """Every second of them is a part: what one of these needs of another is in it too."""
    return [
        ["list"],
        ["doctor"],
        ["diagnose", "artifacts/stage1.B.ncu-rep", "artifacts/matmul.4096.ncu-rep", "--lines", "5"],
        ["diagnose", "artifacts/gqa", "artifacts/decode", "--all"],
        ["compare", "stage1", "stage2", "--case", "B", "--all"],
        ["ladder", "--case", "B"],
        ["ladder", "--case", "16k-8", "--brief"],
        ["triage", str(DATA / "own" / "kernel_odd_vocabulary.triage")],  # with counters
        ["triage", str(DATA / "slow_rank.triage")],
        ["triage", str(DATA / "optimizer_foreach.planted.json.gz"), "-o", str(before)],
        ["history"],
        ["triage", str(DATA / "optimizer_foreach.mended.json.gz"), "-o", str(after)],
        ["query"],
        ["compare", str(before), str(after)],
        ["query", "SELECT * FROM launches LIMIT 3"],
        [
            "query",
            "SELECT variant, median, made FROM runs WHERE median IS NOT NULL LIMIT 9",
        ],
        ["gate", "artifacts", str(head)],
        ["whatif", "stage3b"],
        ["decide", "stage2.B"],
    ]


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_number_is_cut_and_no_row_is_tall(shown: Shown, width: int) -> None:
    text, found = shown[width]
    assert len(found) >= (19 if "PROFKIT_SWEEP_ALL" in os.environ else 9)
    for one in found:
        assert one["tables"], one
        for table in one["tables"]:
            faults(table, width, one["command"])
    plain = _STYLE.sub("", text).splitlines()
    commands_told = ("  profkit ", "  ncu ")  # are one line, for whoever copies them
    assert not [x for x in plain if len(x) > width and not x.startswith(commands_told)]


def faults(table: dict[str, Any], width: int, command: list[str]) -> None:
    """Assert that a drawn table fits, says every number and wastes no column and no line."""
    told = _STYLE.sub("", table["drawn"])
    lines = told.splitlines()
    assert max(map(len, lines)) <= width, (command, table["head"])
    if not table["bands"]:
        assert len(lines) <= TALLEST * len(table["rows"]) + _HEADS, (command, table["head"])
    numbers = set(_NUMBER.findall(told))
    for i, title in enumerate(table["head"]):
        cells = [row[i] for row in table["rows"]]
        if not {*cells} - {"", "-", "not counted"} and command[0] != "query":
            assert title.strip(">") not in lines[0].split(), (command, title)
            continue
        if title in table["spare"] and title.strip(">") not in lines[0].split():
            continue  # it gave way
        for row, cell in enumerate(cells):
            if table["right"][i]:
                for part in cell.split("\n"):
                    whole = r"(?<![\w.…])" + re.escape(part) + r"(?![\w.…])"
                    assert not part or re.search(whole, told), (command, title, part)
            elif not table["names"][row][i] and i != table["wraps"]:
                said = " ".join(word for word in cell.split() if len(word) <= width / 2)
                assert {*_NUMBER.findall(said)} <= numbers, (command, title, cell)
                last = cell.split()[-1:]
                assert all(len(word) > width / 2 or word in told for word in last), (command, cell)
