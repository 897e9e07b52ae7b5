"""A command and the kernels that matter  ->  one report with an instance of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from profkit.files import open_log, part_of
from profkit.measure import process
from profkit.measure.build.toolchain import Tool, need_tool
from profkit.measure.profile import collect

BUDGET = 180.0  # seconds; --budget changes it
SPECIAL = re.compile(r"([.^$*+?()\[\]{}|\\/])")


def count_kernels(
    command: Sequence[str],
    kernels: Sequence[str],
    report: Path,
    budget: float = BUDGET,
    echo: process.Sink | None = None,
    device: int | None = None,
) -> collect.Collected:
    """Profile the second launch of each kernel in each grid and block, all counters.

    `kernels`: names of functions without template arguments; others run without a replay. `device`: the
    one GPU whose kernels are replayed, None takes all; ranks on others go on, and wait in their
    collectives for the one that is replayed.

    Raises:
        ProfkitError: As profkit.measure.profile.collect.wrap: no permission for counters, time-out.
    """
    names = "|".join(sorted({SPECIAL.sub(r"\\\1", name) for name in kernels}))
    filters = (
        "--filter-mode", "per-launch-config", "--launch-skip", "1", "--launch-count", "1",
        "--kernel-name-base", "function", "--kernel-name", f"regex:^({names})$",
        *(("--devices", str(device)) if device is not None else ()),
    )  # fmt: skip
    options = collect.CollectOptions("full", "all", budget, filters)
    return collect.wrap(command, report, Tool(need_tool("ncu"), None), options, echo)


def packed_report(report: Path) -> Path:
    """The report as .ncu-repz in its place: machine code that launches share is in it each time.

    The .ncu-rep goes.
    """
    import zstandard

    target = report.with_suffix(".ncu-repz")
    with report.open("rb") as raw, part_of(target) as part, open_log(part) as out:
        zstandard.ZstdCompressor(level=6).copy_stream(raw, out)
    report.unlink()
    return target
