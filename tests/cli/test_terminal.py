"""Every table of every verb in a real terminal: it fits, no number is cut, no row is tall."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from profkit.show.text.table import TALLEST
from tests.conftest import ROOT

DATA = ROOT / "tests" / "program" / "data"
_NUMBER = re.compile(r"[-+~±]?\d(?:[\d.,:]*\d)?%?")
_STYLE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
# Titles of two lines, on each of the lines that a row may have.
_HEADS = 2 * TALLEST


def in_terminal(commands: list[list[str]], width: int, folder: Path) -> tuple[str, list[Any]]:
    """What a terminal shows of some commands, and the tables that they drew.

    Args:
        commands: Each the arguments of profkit.
        width: Columns of the terminal.
        folder: Where the tables are written.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    kept = folder / f"{width}.json"
    script = ROOT / "tests" / "cli" / "in_a_terminal.py"
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "FORCE_COLOR")}
    child = subprocess.Popen(
        [sys.executable, str(script), str(kept), json.dumps(commands)],
        stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL, cwd=ROOT,
        env=env | {"NO_COLOR": "1", "TERM": "xterm", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 1 << 16):
            shown += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert child.wait(60) == 0
    return shown.decode().replace("\r\n", "\n"), json.loads(kept.read_text("utf-8"))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Every verb that prints a table, of what is committed."""
    head = tmp_path_factory.mktemp("head")
    for name in ("stage1", "stage2"):
        record = json.loads((ROOT / "artifacts" / f"{name}.B.json").read_text("utf-8"))
        record["timing"]["l2"]["warm"]["samples"] = [
            1.1 * x for x in record["timing"]["l2"]["warm"]["samples"]
        ]
        record["source"]["sass"] = record["source"]["sha256"]  # other machine code
        (head / f"{name}.B.json").write_text(json.dumps(record), "utf-8")
    before, after = (str(tmp_path_factory.mktemp("kept") / f"{n}.triage") for n in ("a", "b"))
    return [
        ["list"],
        ["doctor"],
        ["diagnose", "artifacts/stage1.B.ncu-rep", "artifacts/matmul.4096.ncu-rep", "--lines", "5"],
        ["diagnose", "artifacts/gqa", "artifacts/decode", "--all"],
        ["compare", "stage1", "stage2", "--case", "B", "--all"],
        ["compare", "--ladder", "--case", "B"],
        ["compare", "--ladder", "--case", "16k-8", "--brief"],
        ["triage", str(DATA / "own" / "kernel_odd_vocabulary.triage")],  # with counters
        ["triage", str(DATA / "slow_rank.triage")],
        ["triage", str(DATA / "optimizer_foreach.planted.json.gz"), "-o", before],
        ["triage", str(DATA / "optimizer_foreach.mended.json.gz"), "-o", after],
        ["compare", before, after],
        ["claims", "--ledger"],
        ["history"],
        ["history", "--sql"],
        ["history", "--sql", "SELECT * FROM launches LIMIT 3"],
        [
            "history",
            "--sql",
            "SELECT variant, median, made FROM runs WHERE median IS NOT NULL LIMIT 9",
        ],
        ["gate", "artifacts", str(head)],
        ["diagnose", "stage3b", "--with", "header"],
        ["compare", "stage2.B", "--decide"],
    ]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_number_is_cut_and_no_row_is_tall(
    commands: list[list[str]], width: int, tmp_path: Path
) -> None:
    shown, found = in_terminal(commands, width, tmp_path)
    assert [one["command"] for one in found] == commands
    for one in found:
        assert one["tables"], one
        for table in one["tables"]:
            faults(table, width, one["command"])
    plain = _STYLE.sub("", shown).splitlines()
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
        if not {*cells} - {"", "-", "not counted"} and command[1:2] != ["--sql"]:
            assert title.strip(">") not in lines[0].split(), (command, title)
            continue
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
