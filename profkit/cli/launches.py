"""Reports, --kernel and --where  ->  the launches that were asked for, judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from profkit.cli.options import COULD_NOT
from profkit.cli.output import progress, say
from profkit.errors import ProfkitError
from profkit.records.paths import FULL, SUFFIXES, wrong_verb

if TYPE_CHECKING:
    from pandas import DataFrame

    from profkit.diagnosis.launches import Judged
    from profkit.reports.reader import ReportFile, Reports


@dataclass(frozen=True)
class Chosen:
    """The launches that were asked for."""

    reports: Reports
    everything: list[Judged]
    kept: list[int]

    @property
    def launches(self) -> list[Judged]:
        """Judged, in the order of the files."""
        return [self.everything[i] for i in self.kept]

    @property
    def frame(self) -> DataFrame:
        """The rows of the frame, with the judgement in it."""
        from profkit.diagnosis.launches import table

        return table(self.reports, self.everything).iloc[self.kept]


def read_patterns(
    patterns: Sequence[str], *, quiet: bool, client: Any = None
) -> tuple[Reports, bool]:
    """Read all that can be read and say on stderr what cannot.

    Returns:
        The reports, and whether every one of them was read whole.
    """
    from profkit.reports.reader import read_report as read_files

    paths, complete = expand_patterns(patterns)
    with progress("reading", quiet=quiet) as step:
        reports = read_files(paths, progress=step, client=client)
    given_up = _given_up(reports)
    for file in reports.files:
        if file.status != "ok":
            say(ProfkitError(f"{file.path}: {file.status}: {file.message}", _mend(file)))
            complete = False
        elif file.path in given_up:
            say(ProfkitError(f"{file.path}: ncu gave up on every launch in it", _FAILED))
    return reports, complete


def expand_patterns(patterns: Sequence[str]) -> tuple[list[str], bool]:
    """The files that patterns name, each once, and whether every pattern named some; leaves if none."""
    from profkit.records.paths import expand

    paths: dict[str, None] = {}
    complete = True
    for pattern in patterns:
        try:
            paths.update(dict.fromkeys(expand(pattern)))
        except ProfkitError as error:
            say(error)
            complete = False
    if not paths:
        raise typer.Exit(COULD_NOT)
    return list(paths), complete


def _mend(file: ReportFile) -> str:
    """What to do about a file; where there is none of that name, which one may be meant."""
    path = Path(file.path)
    if other := wrong_verb(path, "diagnose"):
        return f"it is {other[0]}: {other[1]}"
    if path.exists():
        return _MEND[file.status]
    reports = (other for other in path.parent.glob("*") if other.suffix in SUFFIXES)
    near = get_close_matches(path.name, {other.name: other for other in reports}, 2, 0.6)
    if near:
        return f"did you mean {' or '.join(str(path.with_name(name)) for name in near)}?"
    return f"a report is made by: {FULL}"


_FAILED = "profile again: ncu's own output says why (memory, a time-out, a crash of the kernel)"
_MEND = {
    "empty": "ncu recorded no launch: check its --kernel-name, --launch-skip and NVTX filters",
    "damaged": "copy it again or profile again; what could be read is shown",
    "unreadable": "give a report that Nsight Compute wrote (.ncu-rep, .ncu-repz)",
}


def _given_up(reports: Reports) -> set[str]:
    """The reports in which no launch was measured."""
    from profkit.reports.frame import COLUMNS

    at = COLUMNS.index("status")
    status = {part.file.path: {row[at] for row in part.identity} for part in reports.parts}
    return {path for path, of in status.items() if of == {"failed"}}


def choose_launches(reports: Reports, kernel: str | None, where: str | None) -> Chosen:
    """Judge every launch and keep those that were asked for."""
    from profkit.diagnosis.launches import judged

    launches = judged(reports)
    chosen = Chosen(reports, launches, list(range(len(launches))))
    if kernel is not None:
        from profkit.cli.select import by_kernel

        matches = by_kernel([run.kernel for run in launches], kernel)
        chosen = replace(chosen, kept=[i for i in chosen.kept if matches[i]])
    if where is not None:
        from profkit.cli.select import where as matching

        kept = matching(chosen.frame, where).index
        chosen = replace(chosen, kept=[int(i) for i in kept])
    if launches and not chosen.kept:
        filters = " and ".join(
            f"--{flag} {text}" for flag, text in (("kernel", kernel), ("where", where)) if text
        )
        raise ProfkitError(f"no launch matches {filters}", _names(launches))
    return chosen


def _names(launches: Sequence[Judged]) -> str:
    from profkit.show.text.names import short

    names = dict.fromkeys(short(run.kernel, 40) for run in launches)
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"there are: {', '.join(list(names)[:5])}{more}"
