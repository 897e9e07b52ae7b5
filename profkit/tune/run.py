"""A task and a storage  ->  a whole search: opened or resumed, run, concluded, written down."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure import runs
from profkit.measure.build import toolchain
from profkit.measure.build.build import Build
from profkit.measure.cuda import device
from profkit.measure.runs import Made
from profkit.measure.workers.session import Outcome as Measured
from profkit.records import store as record
from profkit.tune import history
from profkit.tune.final import Final, conclude, known
from profkit.tune.profiles import known_metrics
from profkit.tune.search import Outcome, Search
from profkit.tune.steer import wishes
from profkit.tune.study.storage import studies
from profkit.tune.study.study import Study
from profkit.tune.task import Task

PLAIN = "/plain"  # how the study of a search without steering ends


@dataclass(frozen=True)
class Result:
    """A finished search.

    Attributes:
        task: What it was about.
        study: Its memory.
        outcome: How it ended.
        final: The champion, and the decision.
        plain: The study of a search without steering in the same storage, if there is one.
    """

    task: Task
    study: Study
    outcome: Outcome
    final: Final
    plain: Study | None

    def to_json(self) -> dict[str, Any]:
        """Everything about it but the trials."""
        of, final, space = self.study, self.final, self.task.space
        others = self.plain.trials() if self.plain else None
        said: dict[str, Any] = record.clean({
            "schema": "profkit.tune/1",
            "variant": self.task.variant.id,
            "problem": self.task.problem.name,
            "case": self.task.case,
            "gpu": final.said["gpu"],
            "space": {m: list(v) for m, v in space.values.items()},
            "possible": len(self.task.possible),
            "refused_by_arithmetic": dict(self.task.refused),
            **history.counts(of),
            "ended": self.outcome.why,
            "lost": self.outcome.lost,
            "seconds": self.outcome.seconds,
            "seed": self.task.options.seed,
            "champion": {
                "config": space.named(final.champion.config),
                "flags": [f"-D{m}={v}" for m, v in space.named(final.champion.config).items()],
                "number": final.champion.number,
                "source": final.champion.source,
                "name": self.task.name(final.champion.config),
                "said": {k: v for k, v in final.champion.said.items() if k != "launches"},
            },
            "default": {
                "config": space.named(final.default.config),
                "number": final.default.number,
                "name": self.task.name(final.default.config),
                "said": {k: v for k, v in final.default.said.items() if k != "launches"},
            },
            "anchor": of.noted("basis")["anchor"],
            "no_anchor": of.noted("no_anchor"),
            "no_counters": of.noted("no_counters"),
            "comparison": final.said["comparison"],
            "times": {name: _brief(t) for name, t in final.said["times"].items()},
            "keep": final.keep,
            "because": final.because,
            "importances": of.importances(),
            "steered": self.task.options.steer,
            "steering": history.steering(of.trials(), others) if self.task.options.steer else None,
        })  # fmt: skip
        return said


def _brief(times: dict[str, Any]) -> dict[str, Any]:
    from profkit.evidence.timing.stats import median_interval

    return {k: median_interval(times[k]).to_json() for k in ("warm", "cold") if times[k]}


def default_storage(task: Task) -> str:
    """A SQLite file beside the builds."""
    folder = task.folder / "tune"
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / f'{task.problem.name}.{task.variant.id}.{task.case}.db'}"


def tune(
    task: Task,
    url: str,
    resume: bool,
    visible: Sequence[str | None],
    progress: Callable[[str], None],
) -> Result:
    """Search, or go on with a search.

    Args:
        task: What to search.
        url: Of the storage.
        resume: Whether a search that is there is gone on with.
        visible: CUDA_VISIBLE_DEVICES of each lane.
        progress: Told what is being done.

    Raises:
        ProfkitError: The header is wrong, the storage has another search, nothing can be measured.
    """
    wishes(task.space)
    known_metrics(task)
    study = _opened(task, url, resume)
    search = Search(task, study, visible, progress)
    try:
        outcome = search.run()
        final = known(study)
        if study.noted("basis") is None:
            raise ProfkitError(
                "time was up before the defaults were measured",
                "go on with --resume and a longer --time",
            )
        if final is None:
            lane = outcome.lanes[0]
            lane.start()
            final = conclude(task, study, lane, search.board)
    finally:
        search.close()
    return Result(task, study, outcome, final, _plain(task, url))


def _name(task: Task, plain: bool) -> str:
    return f"{task.problem.name}/{task.variant.id}.{task.case}{PLAIN if plain else ''}"


def _opened(task: Task, url: str, resume: bool) -> Study:
    name = _name(task, not task.options.steer)
    study = Study(url, name, task.space, task.possible, task.options.seed)
    about = {
        "source": task.variant.source_hash,
        "problem": task.problem.hash,
        "gpu": device.gpu().name,
        "arch": task.arch,
    }
    trials, was = study.trials(), study.noted("about")  # whoever begins notes this first
    if trials and not resume:
        raise ProfkitError(
            f"there is a search of {name} with {sum(t.counts for t in trials)} trials already",
            "go on with it: --resume; or begin another one: --storage sqlite:///another.db",
        )
    if trials and was != about:
        changed = ", ".join(k for k in about if (was or {}).get(k) != about[k])
        raise ProfkitError(
            f"the search of {name} was made with another {changed}",
            "its times do not compare with new ones: begin another with --storage",
        )
    study.note("about", about)
    return study


def _plain(task: Task, url: str) -> Study | None:
    """The search without steering in the same storage."""
    name = _name(task, True)
    if not task.options.steer or name not in studies(url):
        return None
    other = Study(url, name, task.space, task.possible, task.options.seed)
    return other if other.noted("about") is not None else None


def champion_record(result: Result, folder: Path) -> Path:
    """Write the champion's run record, and its report beside it if there is one.

    Returns:
        The record's path: <variant>-tuned.<case>.json.
    """
    task, final = result.task, result.final
    name, of = f"{task.variant.id}-tuned", task.name(final.champion.config)
    built: Build = task.built(final.champion.config).built
    said = final.said
    made = Made(
        task.target(built.variant),
        {name: built},
        task.support,
        Measured(
            gpu=said["gpu"],
            checks={name: {**(said["checks"][of] or {}), "variant": name}},
            times={(name, task.case): said["times"][of]},
            launches={(name, task.case): said["launches"][of] or []},
        ),
    )
    kept = runs.record_of(made, name, task.case)
    kept["timing"] = runs.timing_of(made, name, task.case)
    kept["git"] = runs.git_commit(task.problem.path.parent)
    # It changes the variant that was tuned, and promises no rule.
    kept["header"] = {"title": task.variant.title, "after": task.variant.id}
    kept["tune"] = {
        "variant": task.variant.id,
        "config": task.space.named(final.champion.config),
        "keep": final.keep,
        "because": final.because,
        "trials": sum(t.counts for t in result.study.trials()),
    }
    report, path = record.paths(folder, name, task.case)
    verdict = final.champion.said.get("verdict") or {}
    source = Path(verdict.get("report") or os.devnull)
    if source.is_file():
        shutil.copyfile(source, report)
        kept["report"] = {"file": report.name, "sha256": record.digest(report)}
        kept["versions"]["ncu"] = toolchain.tool("ncu", task.folder).version
    record.save(path, kept)
    return path
