"""The trials of a search  ->  its champion, measured against the defaults, and keep or fall back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.workers.lane import Lane
from profkit.records.store import clean
from profkit.tune.study.study import Study, Trial
from profkit.tune.task import Task
from profkit.tune.trial import CONFIRM, Board, Runner

FINALISTS = 3  # quicker than the champion in their quick round, by less than is promoted


@dataclass(frozen=True)
class Final:
    """How the champion does against the defaults.

    Attributes:
        champion: The fastest confirmed configuration; the defaults' trial if none was faster.
        default: The defaults' trial.
        keep: Whether the champion passes the gate.
        because: One sentence.
        said: comparison, times (name -> bench.Times as JSON), checks, launches and gpu.
    """

    champion: Trial
    default: Trial
    keep: bool
    because: str
    said: Mapping[str, Any]


def conclude(task: Task, study: Study, lane: Lane, board: Board) -> Final:
    """Confirm what is nearly as fast as the incumbent, then measure the champion to the end."""
    runner = Runner(task, study, lane, board)
    board.progress("finalists")
    _finalists(runner)
    champion, default = runner.incumbent(), _default(study)
    said = _measured(runner, champion, default)
    study.note("final", said)
    return read(study, said, champion, default)


def known(study: Study) -> Final | None:
    """The end of an earlier run of this search; None if there is none, or trials came after it."""
    said = study.noted("final")
    if said is None or said["trials"] != sum(t.counts for t in study.trials()):
        return None
    by_number = {t.number: t for t in study.trials()}
    return read(study, said, by_number[said["champion"]], by_number[said["default"]])


def read(study: Study, said: Mapping[str, Any], champion: Trial, default: Trial) -> Final:
    """The decision, from what was measured."""
    found = said["comparison"]
    if champion.number == default.number:
        tried = sum(t.outcome in ("measured", "pruned") for t in study.trials())
        because = f"of {tried} configurations that ran, none was confirmed faster than the defaults"
        return Final(champion, default, False, because, said)
    apart = not _overlap(found["before"], found["after"])
    keep = found["answer"] == "faster" and apart
    because = f"{found['sentence']} than the defaults" if keep else found["sentence"]
    if found["answer"] == "faster" and not apart:
        because += ", but the two intervals overlap"
    return Final(champion, default, keep, because, said)


def _overlap(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    ends = one["low"], one["high"], other["low"], other["high"]
    if None in ends:
        return True
    return not (one["low"] > other["high"] or other["low"] > one["high"])


def _default(study: Study) -> Trial:
    number = study.noted("basis")["number"]
    return next(t for t in study.trials() if t.number == number)


def _finalists(runner: Runner) -> None:
    """Give the next best a hundred samples too: small gains are never promoted on the way."""
    held = runner.incumbent()
    better = [
        t
        for t in runner.study.trials()
        if t.outcome == "measured" and t.value is not None and t.value < (held.value or 0)
    ]
    for trial in sorted(better, key=lambda t: t.value or 0)[:FINALISTS]:
        try:
            found = runner.confirm(trial, held)
        except ProfkitError as error:
            runner.study.note(f"finalist {trial.number}", {"reason": error.message})
            continue
        runner.study.note(f"finalist {trial.number}", clean(found))
        if found["answer"] == "faster":
            runner.study.note("incumbent", trial.number)
            held = trial


def _measured(runner: Runner, champion: Trial, default: Trial) -> dict[str, Any]:
    """Check and time champion and defaults beside the anchor, L2 warm and cold."""
    from profkit.evidence.timing.stats import compare_samples

    task, lane = runner.task, runner.lane
    runner.board.progress(f"champion {task.name(champion.config)}")
    anchor, _ = runner.anchor(runner.basis())
    own, held = runner.library(champion), runner.library(default)
    checks, launches = {}, {}
    for name, library in {**own, **held}.items():
        found = lane.check(name, library, task.case)
        checks[name], launches[name] = found.check, found.launches
    subjects = {**anchor, **held, **own}
    times = lane.time(subjects, task.case, (CONFIRM[0], 2 * CONFIRM[0]), cold=True).times
    (mine,), (theirs,) = own, held
    compared = compare_samples(times[theirs]["warm"], times[mine]["warm"], taken="interleaved")
    return dict(
        clean(
            {
                "champion": champion.number,
                "default": default.number,
                "trials": sum(t.counts for t in runner.study.trials()),
                "comparison": compared.to_json(),
                "times": times,
                "checks": checks,
                "launches": launches,
                "gpu": lane.gpu,
            }
        )
    )
