"""What run.py asks of server.py, and what it answers: files beside one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from profkit.records.ablation import AblationRecord


class Task(msgspec.Struct, frozen=True):
    """What to ablate, and how."""

    problem: str  # its folder
    build: str  # the build folder
    support: str  # the library of support.cu
    library: str  # the variant's
    case: str
    grid: str | None  # the header's `inputs:` key
    ptx: str | None  # None: there is none, and only the launch is varied
    fast: str | None  # its PTX with fast math; None: there is no source, or it is fast already
    arch: str  # of its machine code
    flags: tuple[str, ...]  # of ptxas
    rounds: tuple[int, int]
    refused: dict[str, str]  # ablation -> how it lost an earlier process
    beside: dict[str, str] = {}  # name -> the library of what takes turns with it


class Answer(msgspec.Struct, frozen=True):
    """What came of a task: a record, or an error in two lines."""

    record: AblationRecord | None = None
    timing: dict[str, Any] | None = None  # of the call itself, as a run record has it
    message: str = ""
    hint: str = ""


def get_answer_file(task_file: Path) -> Path:
    return task_file.with_suffix(".answer")


def get_log_file(task_file: Path) -> Path:
    return task_file.with_suffix(".log")
