"""A task and GPUs  ->  a search: builds run ahead on the cores while each GPU does trials.

The main thread proposes and builds; one thread for each GPU talks to its worker process.
Whatever ends it (done, out of time, Ctrl-C, a kill), what is known stands in the storage.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from profkit.errors import ProfkitError
from profkit.measure.cuda import device
from profkit.measure.process import cores
from profkit.measure.worker import Setup, Worker, WorkerClosed, WorkerLost
from profkit.tune.result import TrialResult
from profkit.tune.storage import studies
from profkit.tune.study import Study, Trial
from profkit.tune.task import ReadyBuild, Task
from profkit.tune.trial import Runner

AHEAD = 6  # builds in flight for one GPU: a build takes about four times as long as a trial
STRIKES = 3  # times in a row that a worker may fail to start before its GPU is left alone
_TICK = 0.5  # seconds between two looks at what has become ready


@dataclass
class SearchOutcome:
    why: str = "done"  # done, exhausted (nothing left to try), or time
    lost: list[str] = field(default_factory=list)  # what went wrong with GPUs, one line each
    seconds: float = 0.0  # from start to end of the trials
    workers: list[Worker] = field(default_factory=list)  # those that still work


@dataclass(frozen=True)
class _Item:
    trial: Trial
    ready: Future[ReadyBuild]


class _NoBasis(ProfkitError):
    """The defaults do not pass the gates: there is nothing to compare with."""


class Search:
    def __init__(
        self,
        task: Task,
        study: Study,
        visible: Sequence[str | None],
        progress: Callable[[str], None],
    ) -> None:
        self.task, self.study, self.progress = task, study, progress
        grid, places = task.variant.header.inputs, (task.problem.path.parent, task.folder)
        setup = Setup(*places, task.support, task.checks(), grid, task.case, task.reference)
        self.workers = [Worker(setup, task.options.timeout, v) for v in visible]
        self.outcome = SearchOutcome(workers=list(self.workers))
        self._queue: deque[_Item] = deque()
        self._doing: list[Trial] = []
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._failed: list[BaseException] = []

    def run(self) -> SearchOutcome:
        """Try what is left to try; ProfkitError if the defaults cannot be measured, or no GPU is left.

        KeyboardInterrupt passes: everything that is known is written down.
        """
        began = time.monotonic()
        self._take_up()
        if self._left() <= 0:
            return self.outcome
        threads = [threading.Thread(target=self._serve, args=(w,)) for w in self.workers]
        for thread in threads:
            thread.start()
        whole = False
        try:
            self._feed(began)
            whole = True
        finally:
            self._stop.set()
            for worker in () if whole else self.workers:
                worker.close()  # what waits for it hears of it
            self.study.based.set()
            self._wake()
            for thread in threads:
                thread.join()
            self._give_up_queue()
            self.outcome.seconds = time.monotonic() - began
        if self._failed:
            raise self._failed[0]
        return self.outcome

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        self.task.stop()

    # --- the main thread -------------------------------------------------------------------------

    def _take_up(self) -> None:
        default = self.task.space.default
        self.study.propose(default, "default")  # unless it was tried, before what was lost
        self.study.resume()
        for trial in self.study.trials():
            code = trial.result.code
            if code and trial.outcome in ("measured", "pruned"):
                self.study.claim(code, trial.number)
            if trial.config == default and trial.outcome == "measured":
                self.study.based.set()

    def _left(self) -> int:
        """How many distinct trials are still to be asked for: not done, and nobody is at them."""
        known = self.study.trials()
        return self.task.options.trials - sum(t.counts or t.outcome == "running" for t in known)

    def _feed(self, began: float) -> None:
        """Keep builds ahead of the GPUs until the search is over."""
        depth = min(max(2, cores()), AHEAD * len(self.workers))
        exhausted, limit = False, self.task.options.time
        while not self._failed and self.outcome.workers:
            late = limit is not None and time.monotonic() - began > limit
            if late:
                self._give_up_queue()
            left = 0 if late else self._left()
            with self._changed:
                queued, idle = len(self._queue), not self._doing and not self._queue
            more = left > 0 and queued < depth
            if not late and not exhausted and (more or self._needs_defaults()):
                exhausted = not self._ask()
                continue
            if idle and (late or exhausted or left <= 0):
                self.outcome.why = "time" if late else "exhausted" if left > 0 else "done"
                if not (exhausted and self.study.free()):
                    return
                exhausted = False  # what a failed GPU gave back
            with self._changed:
                self._changed.wait(_TICK)

    def _ask(self) -> bool:
        """Take up the next configuration and start its build; whether there was one."""
        trial = self.study.ask()
        if trial is None:
            return False
        ready = self.task.start(trial.config)
        ready.add_done_callback(lambda _: self._wake())
        with self._changed:
            self._queue.append(_Item(trial, ready))
            self._changed.notify_all()
        return True

    def _needs_defaults(self) -> bool:
        """Whether everything waits for the defaults, which came back from a GPU that failed."""
        if self.study.based.is_set():
            return False
        if self.study.noted("basis") is not None:  # another process has measured them
            self.study.based.set()
        default = self.task.space.default
        return default in self.study.waiting()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _give_up_queue(self) -> None:
        """What was proposed and not begun is proposed again by whoever resumes."""
        with self._changed:
            items, self._queue = list(self._queue), deque()
        for item in items:
            item.ready.cancel()
            self.study.finish(item.trial.number, "interrupted")

    # --- the workers' threads --------------------------------------------------------------------

    def _serve(self, worker: Worker) -> None:
        """Do trials until there are no more, or this GPU fails."""
        runner = Runner(self.task, self.study, worker, self.progress)
        try:
            self._start(worker)
            while (item := self._next()) is not None:
                try:
                    self._do(runner, item)
                finally:
                    with self._changed:
                        self._doing.remove(item.trial)
                        self._changed.notify_all()
        except WorkerClosed:
            pass
        except _NoBasis as error:
            self._failed.append(error)
        except ProfkitError as error:
            self._leave(worker, error)
        except BaseException as error:  # noqa: BLE001 - carried to the main thread
            self._failed.append(error)
        self._wake()

    def _leave(self, worker: Worker, error: ProfkitError) -> None:
        """Go on without a GPU; an error if it was the last one."""
        name = "the GPU" if worker.visible is None else f"GPU {worker.visible}"
        self.outcome.lost.append(f"{name}: {error.message}")
        worker.close()
        with self._changed:
            self.outcome.workers.remove(worker)
        if not self.outcome.workers:
            self._failed.append(error)

    def _start(self, worker: Worker) -> None:
        for attempt in range(STRIKES):
            try:
                return worker.start()
            except WorkerClosed:
                raise
            except WorkerLost:
                if attempt == STRIKES - 1:
                    raise
        return None

    def _next(self) -> _Item | None:
        """The first trial that is built; the defaults go before all others."""
        with self._changed:
            while not self._stop.is_set():
                for item in self._queue:
                    first = item.trial.config == self.task.space.default
                    if item.ready.done() and (first or self.study.based.is_set()):
                        self._queue.remove(item)
                        self._doing.append(item.trial)
                        return item
                self._changed.wait(_TICK)
        return None

    def _do(self, runner: Runner, item: _Item) -> None:
        """One trial; a worker that went away is the configuration's fault if the next one works."""
        trial, worker = item.trial, runner.worker
        number = sum(t.counts for t in self.study.trials()) + 1
        name = self.task.name(trial.config)
        self.progress(f"trial {number} of {self.task.options.trials}: {name}")
        default = self.task.space.default
        is_default = trial.config == default
        try:
            outcome = runner.run(trial, item.ready.result())
        except WorkerClosed:
            self.study.finish(trial.number, "interrupted")
            raise
        except WorkerLost as error:
            try:
                self._start(worker)
                if is_default:
                    what = f"the defaults of {self.task.variant.id} failed: {error.message}"
                    raise ProfkitError(what, error.hint)
                # Whether the defaults still run on a GPU that lost its worker.
                runner.time([self.task.entry(default)], (3, 3))
            except ProfkitError:
                # This GPU is in doubt, not the configuration: another one may try it.
                self.study.forget(trial.number)
                self.study.finish(trial.number, "interrupted")
                self.study.propose(trial.config, trial.source)
                raise
            result = TrialResult(reason=error.message, kind="failed", gpu=worker.visible)
            self.study.finish(trial.number, "failed", None, result)
        else:
            if is_default and outcome != "measured":
                why = self.study.trial(trial.number).result.reason or ""
                raise _NoBasis(f"the defaults of {self.task.variant.id} are {outcome}: {why}")


def _name(task: Task, plain: bool) -> str:
    return f"{task.problem.name}/{task.subject}{'/plain' if plain else ''}"  # without steering


def open_study(task: Task, url: str, resume: bool) -> Study:
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


def plain_study(task: Task, url: str) -> Study | None:
    name = _name(task, True)
    if not task.options.steer or name not in studies(url):
        return None
    plain = Study(url, name, task.space, task.possible, task.options.seed)
    return plain if plain.noted("about") is not None else None
