"""What is said of a recording, once a worker, and held to what is true of every answer."""

from __future__ import annotations

from functools import cache
from typing import Any

from profkit.program.document import make_triage_document
from tools import programs


@cache
def said(file: str) -> dict[str, Any]:
    """Return the document of a recording in tests/program/data.

    The answer itself, with all that was recorded, takes up to 10 MB: only those stay that the tables of
    tools/programs.py and tools/left_out.py are made of. What holds of every answer is asked of it here.
    """
    from tests.program.test_invariants import holds

    if file.endswith(".planted.json.gz"):
        answer, counts = programs.answer(file)
    else:
        answer, counts = programs.judge_recording(programs.DATA / file)
    if file.endswith(".json.gz"):
        holds(answer)
    return make_triage_document(answer, counts)
