"""One launch's sampled warp states  ->  the source lines where its warps were found waiting."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError
from profkit.records.run_record import record_beside, recorded_sha256
from profkit.reports.container.container import check
from profkit.reports.isolated import apart, processors
from profkit.reports.launch import clean
from profkit.reports.metrics.warps import SAMPLES
from profkit.reports.reader import one_action, prepare

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("file", "line", "text", "sass", "samples", "share", "stall", "stall_share")
__all__ = ["hot_lines", "hot_lines_each", "prepare"]

# The warp was issuing: a sample like the others, but nothing that it waited for.
_ISSUING = "selected"
_NO_SASS = ("", "???")  # what the library says when it cannot disassemble

# A line is (file, line); an instruction without one stands for itself: (None, address).
_Place = tuple[str | None, int]


def hot_lines(path: str | Path, launch: int, n: int = 10) -> pd.DataFrame:
    """The source lines of a launch with the most stall samples.

    Args:
        path: A report.
        launch: Index of the launch in it.
        n: At most so many lines.

    Returns:
        One row per line, most samples first: file, line, text (the line itself, when the report
        has the source), sass (its instruction with the most samples), samples, share (of all
        samples of the launch), stall (the leading warp state there, in Nsight Compute's words) and
        stall_share (of the line's samples). A warp is sampled at the instruction that it cannot
        issue yet, so long_scoreboard stands at the first use of what was loaded, not at the load.
        Where the report knows no source (no -lineinfo), one row per instruction: file, line and
        text are None. No rows when warp states were not sampled (section SourceCounters).

    Raises:
        ProfkitError: The report cannot be read, or has no such launch.
    """
    return hot_lines_each([(path, launch)], n)[0]


def hot_lines_each(
    launches: Sequence[tuple[str | Path, int]],
    n: int = 10,
    jobs: int | None = None,
    around: int = 0,
) -> list[pd.DataFrame]:
    """As hot_lines, for many launches in less time.

    Args:
        launches: (report, index of the launch in it).
        n: At most so many lines of each.
        jobs: Child processes; the number of processors when None.
        around: Behind them so many lines of code before and after each, where the report has the
            source, in file order; one without samples has 0 of them and no stall. Text is
            indented then.

    Returns:
        One frame per launch, in their order.
    """
    import pandas as pd

    wanted = [(os.path.expanduser(path), launch, n, around) for path, launch in launches]
    # Debug information that was overwritten passes the frame check and crashes the library.
    safe = [item for item in dict.fromkeys(wanted) if _is_recorded(item[0])]
    others = [item for item in dict.fromkeys(wanted) if item not in safe]
    found = {item: rows(item) for item in safe}
    found |= zip(
        others, apart(f"{__name__}:rows", others, jobs or processors(), _died), strict=True
    )
    return [
        pd.DataFrame(found[item], columns=list(COLUMNS), dtype=object).astype(
            {"line": "Int64", "samples": "int64", "share": float, "stall_share": float}
        )
        for item in wanted
    ]


def _is_recorded(path: str) -> bool:
    """Whether the run record beside a report says that it is whole."""
    said = recorded_sha256(record_beside(path))
    return said is not None and said == check(path).sha256


def _died(item: tuple[str, int, int, int], why: str) -> None:
    raise ProfkitError(f"{item[0]}: {why}", "its machine code is damaged: record it again")


def rows(item: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The rows of hot_lines for (report, launch, n, around), read in this process."""
    path, launch, n, around = item
    with one_action(path, launch) as action:
        sampled = _sampled(action)
        lines: dict[_Place, Counter[str]] = defaultdict(Counter)
        hottest: dict[_Place, tuple[int, int]] = {}
        for pc, states in sampled.items():
            place = _place(action, pc)
            lines[place].update(states)
            # Of equals, the first instruction.
            hottest[place] = max(hottest.get(place, (0, 0)), (states.total(), -pc))
        most = sorted(lines, key=lambda place: (-lines[place].total(), place[0] or "", place[1]))
        every = sum(states.total() for states in lines.values())
        # A listing needs its indentation; a line alone does not.
        sources = _sources(action, str.rstrip if around else str.strip)
        return [
            (*_named(place, sources), *_counted(action, -hottest[place][1], lines[place], every))
            if place in lines
            else (*_named(place, sources), None, 0, 0.0, None, 0.0)
            for place in (*most[:n], *_between(most[:n], sources, around))
        ]


def _between(hot: Sequence[_Place], sources: dict[str, list[str]], around: int) -> Iterator[_Place]:
    """The lines of code near hot ones, in order."""
    near = {
        (file, n)
        for file, line in hot
        if file in sources
        for n in range(max(line - around, 1), min(line + around, len(sources[file])) + 1)
    }
    yield from sorted(near - set(hot))


def _sources(action: Any, trimmed: Callable[[str], str]) -> dict[str, list[str]]:
    """The source files that were imported into the report: name -> lines."""
    files = action.source_files().items()
    return {
        clean(name): [trimmed(line) for line in clean(text).splitlines()]
        for name, text in files
        if text
    }


def _sampled(action: Any) -> dict[int, Counter[str]]:
    """Address of each sampled instruction -> samples by warp state."""
    found: dict[int, Counter[str]] = defaultdict(Counter)
    for name, state in SAMPLES.items():
        metric = action.metric_by_name(name)
        if metric is None or not metric.has_correlation_ids():
            continue
        addresses = metric.correlation_ids()
        for i in range(metric.num_instances()):
            if count := metric.as_uint64(i):
                found[addresses.as_uint64(i)][state] += count
    return found


def _place(action: Any, pc: int) -> _Place:
    info = action.source_info(pc)
    if info is None or info.line() <= 0 or not info.file_name():
        return None, pc
    return clean(info.file_name()), info.line()


def _named(place: _Place, sources: dict[str, list[str]]) -> tuple[Any, ...]:
    """File, line and text."""
    file, line = place
    if file is None:
        return None, None, None
    lines = sources.get(file, [])
    return file, line, lines[line - 1] if line <= len(lines) else None


def _counted(action: Any, pc: int, states: Counter[str], every: int) -> tuple[Any, ...]:
    """Instruction, samples, share, stall and its share."""
    sass = clean(action.sass_by_pc(pc) or "").strip()
    waiting = Counter({state: count for state, count in states.items() if state != _ISSUING})
    (stall, count), *_ = (waiting or states).most_common(1)
    total = states.total()
    return None if sass in _NO_SASS else sass, total, total / every, stall, count / total
