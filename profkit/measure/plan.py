"""One call of a variant or a reference  ->  what a program under a profiler is told to run."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Plan:
    """One call.

    Attributes:
        label: Of its NVTX range.
        support: The library of support.cu.
        library: The variant's library; None of a reference.
        inputs: A file for each input.
        outputs: Bytes of each output.
        begins: (output, input): what is worked on in place holds that input at first.
        values: size, stride, scale and causal for ProfkitArgs.
        reference: The reference's name; None of a variant.
        problem: The problem's folder.
        build: The build folder.
        case: The case.
        profile: Whether there is a profiler: then one call runs outside of its window first.
    """

    label: str
    support: str
    library: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()
    begins: tuple[tuple[int, int], ...] = ()
    values: dict[str, Any] = field(default_factory=dict)  # what problem.py says, as it says it
    reference: str | None = None
    problem: str = ""
    build: str = ""
    case: str = ""
    profile: bool = True

    def write(self, path: Path) -> None:
        """Write the plan for the program."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


def read_plan(path: Path) -> Plan:
    """The plan that `write` wrote."""
    return Plan(**json.loads(path.read_text(encoding="utf-8")))
