"""One call of a variant or a reference  ->  what a program under a profiler is told to run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Plan:
    """One call."""

    label: str  # of its NVTX range
    support: str  # the library of support.cu
    library: str | None = None  # the variant's library; None of a reference
    inputs: tuple[str, ...] = ()  # a file for each input
    outputs: tuple[int, ...] = ()  # bytes of each output
    # (output, input): what is worked on in place holds that input at first
    begins: tuple[tuple[int, int], ...] = ()
    # size, stride, scale and causal for ProfkitArgs
    values: dict[str, Any] = field(default_factory=dict)  # what problem.py says, as it says it
    reference: str | None = None  # the reference's name; None of a variant
    problem: str = ""
    build: str = ""
    case: str = ""
    # whether there is a profiler: then one call runs outside of its window first
    profile: bool = True

    def write(self, path: Path) -> None:
        """Write the plan for the program."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """The plan that `write` wrote."""
    return Plan(**json.loads(path.read_text(encoding="utf-8")))
