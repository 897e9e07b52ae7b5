"""A task and GPUs  ->  a search: threads propose and build ahead, and take a GPU for each trial.

Each thread does the same: it asks for a configuration, waits for its build, takes a GPU that is free,
measures, and gives the GPU back. There are more threads than GPUs, so that builds are ready when a
GPU is. Whatever ends the search (done, out of time, Ctrl-C, a kill), what is known stands in the
storage.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field

from profkit.collect.process import count_usable_cores, make_thread_pool
from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
from profkit.lab.measure.worker import Setup, Worker, WorkerClosed, WorkerLost
from profkit.lab.tune.result import TrialResult
from profkit.lab.tune.study import Study, Trial
from profkit.lab.tune.task import ReadyBuild, Task
from profkit.lab.tune.trial import Runner

AHEAD = 6  # trials in flight for one GPU: a build takes about four times as long as a trial
STRIKES = 3  # times in a row that a worker may fail to start before its GPU is left alone
_TICK = 0.5  # seconds between two looks at whether the search was stopped


@dataclass
class SearchOutcome:
    """Why a search ended, and what was lost on the way."""

    why: str = "done"  # done, exhausted (nothing left to try), or time
    lost: list[str] = field(default_factory=list)  # what went wrong with GPUs, one line each
    seconds: float = 0.0  # from start to end of the trials
    workers: list[Worker] = field(default_factory=list)  # those that still work


class GpuInDoubt(Exception):
    """A worker went away, and the defaults do not run on its GPU either."""

    def __init__(self, error: ProfkitError) -> None:
        super().__init__(error.message)
        self.error = error


class Search:
    """Trials of one variant, on all GPUs at once."""

    def __init__(
        self,
        task: Task,
        study: Study,
        visible: Sequence[str | None],
        progress: Callable[[str], None],
    ) -> None:
        self.task = task
        self.study = study
        self.progress = progress
        grid = task.variant.header.inputs
        setup = Setup(
            problem=task.problem.path.parent,
            build=task.folder,
            support=task.support,
            checks=task.list_required_checks(),
            grid=grid,
            case=task.case,
            reference=task.reference,
        )
        self.workers = [Worker(setup, task.options.timeout, gpu) for gpu in visible]
        self.outcome = SearchOutcome(workers=list(self.workers))
        self._free: queue.Queue[Runner] = queue.Queue()  # one for each GPU that nobody uses
        self._doing: set[int] = set()  # numbers of the trials that threads are at
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._deadline = float("inf")

    def run_trials(self) -> SearchOutcome:
        """Try what is left to try; ProfkitError if the defaults cannot be measured, or no GPU is left.

        KeyboardInterrupt passes: everything that is known is written down.
        """
        began = time.monotonic()
        if self.task.options.time is not None:
            self._deadline = began + self.task.options.time
        self._resume_study()
        if self._count_trials_left() <= 0:
            return self.outcome
        for worker in self.workers:
            self._free.put(Runner(self.task, self.study, worker, self.progress))
        threads = max(len(self.workers) + 1, min(count_usable_cores(), AHEAD * len(self.workers)))
        pool = make_thread_pool(threads, "trial")
        done = []
        for _ in range(threads):
            done.append(pool.submit(self._do_trials_in_thread))
        interrupted = True
        try:
            wait(done)
            interrupted = False
        finally:
            if interrupted:
                self._tell_trials_to_stop()
            pool.shutdown()
            self.outcome.seconds = time.monotonic() - began
        for thread in done:
            thread.result()  # raises what ended the search
        return self.outcome

    def close(self) -> None:
        """Stop the workers and the compilers."""
        for worker in self.workers:
            worker.close()
        self.task.cancel_builds_not_begun()

    def _tell_trials_to_stop(self) -> None:
        """End what the threads wait for: a worker's answer, a free GPU, the defaults."""
        self._stop.set()
        for worker in self.workers:
            worker.close()

    # --- which trial comes next -------------------------------------------------------------------

    def _resume_study(self) -> None:
        """Propose the defaults first, then what an earlier search did not finish."""
        default = self.task.space.default
        self.study.propose_new_config(default, "default")
        self.study.propose_interrupted_trials()
        for trial in self.study.list_trials_but_waiting():
            code = trial.result.code
            if code and trial.outcome in ("measured", "pruned"):
                self.study.claim_machine_code(code, trial.number)
            if trial.config != default or not trial.is_counted:
                continue
            if trial.outcome != "measured":
                raise self._make_no_defaults_error(trial)
            self.study.based.set()

    def _make_no_defaults_error(self, trial: Trial) -> ProfkitError:
        """Return the error of a search that has nothing to compare with."""
        why = trial.result.reason or ""
        return ProfkitError(f"the defaults of {self.task.variant.id} are {trial.outcome}: {why}")

    def _count_trials_left(self) -> int:
        """Return how many distinct trials are still to be asked for."""
        known = self.study.list_trials_but_waiting()
        return self.task.options.trials - sum(t.is_counted or t.outcome == "running" for t in known)

    def _wait_for_next_trial(self) -> Trial | None:
        """Return the next trial; None when the search is over.

        While others are at their trials it is not over: one may turn out to be another's double.
        """
        with self._changed:
            while not self._stop.is_set():
                if time.monotonic() > self._deadline:
                    self.outcome.why = "time"
                    return None
                left = self._count_trials_left()
                trial = None
                if left > 0:
                    trial = self.study.begin_next_trial()
                if trial is not None:
                    self._doing.add(trial.number)
                    return trial
                if not self._doing:
                    if left > 0:
                        self.outcome.why = "exhausted"
                    else:
                        self.outcome.why = "done"
                    return None
                self._changed.wait(_TICK)
        return None

    # --- a thread ---------------------------------------------------------------------------------

    def _do_trials_in_thread(self) -> None:
        """Do one trial after the other until there are no more."""
        while (trial := self._wait_for_next_trial()) is not None:
            failed = True
            try:
                self._do_trial(trial)
                failed = False
            except WorkerClosed:
                return
            finally:
                if failed:
                    self._tell_trials_to_stop()
                self.study.give_up_unfinished_trial(trial.number)  # unless it has ended
                with self._changed:
                    self._doing.discard(trial.number)
                    self._changed.notify_all()

    def _do_trial(self, trial: Trial) -> None:
        """Build and measure one configuration, on another GPU if one fails."""
        build = self._wait_for_build(trial)
        if build is None:
            return
        if trial.config != self.task.space.default and not self._wait_for_defaults():
            return
        while (runner := self._wait_for_free_gpu()) is not None:
            try:
                self._measure_trial(runner, trial, build)
            except GpuInDoubt as doubt:
                self._go_on_without_gpu(runner.worker, doubt.error)
            else:
                self._free.put(runner)
                return

    def _wait_for_build(self, trial: Trial) -> ReadyBuild | None:
        """Wait for the build of a configuration; None where the search ends before that."""
        ready = self.task.start_build(trial.config)
        while not self._is_search_over():
            try:
                return ready.result(timeout=_TICK)
            except TimeoutError:
                continue
        ready.cancel()
        return None

    def _wait_for_defaults(self) -> bool:
        """Wait until the defaults were measured; False where the search ends before that."""
        while not self.study.based.wait(_TICK):
            if self._is_search_over():
                return False
            if self.study.read_note("basis") is not None:  # another process has measured them
                self.study.based.set()
        return not self._is_search_over()

    def _wait_for_free_gpu(self) -> Runner | None:
        """Wait for a GPU that is free; None where the search ends before that."""
        while not self._is_search_over():
            try:
                return self._free.get(timeout=_TICK)
            except queue.Empty:
                continue
        return None

    def _is_search_over(self) -> bool:
        return self._stop.is_set() or time.monotonic() > self._deadline

    def _go_on_without_gpu(self, worker: Worker, error: ProfkitError) -> None:
        """Go on without a GPU.

        Raises ``error`` if it was the last one.
        """
        if worker.visible is None:
            name = "the GPU"
        else:
            name = f"GPU {worker.visible}"
        self.outcome.lost.append(f"{name}: {error.message}")
        worker.close()
        with self._changed:
            self.outcome.workers.remove(worker)
        if not self.outcome.workers:
            raise error

    def _start_worker_or_doubt_gpu(self, worker: Worker) -> None:
        """Start a worker's process; a process that goes away at its start is started again."""
        for attempt in range(1, STRIKES + 1):
            try:
                worker.start_process()
            except WorkerClosed:
                raise
            except ProfkitError as error:
                if attempt == STRIKES or not isinstance(error, WorkerLost):
                    raise GpuInDoubt(error) from error
            else:
                return

    def _measure_trial(self, runner: Runner, trial: Trial, build: ReadyBuild) -> None:
        """Measure one trial on one GPU, and write down what came of it."""
        name = self.task.make_variant_name_of_config(trial.config)
        number = self.study.count_distinct_ended_trials() + 1
        self.progress(f"trial {number} of {self.task.options.trials}: {name}")
        self._start_worker_or_doubt_gpu(runner.worker)
        is_default = trial.config == self.task.space.default
        try:
            outcome = runner.run_trial(trial, build)
        except WorkerClosed:
            raise
        except WorkerLost as error:
            self._fail_trial_or_doubt_gpu(runner, trial, error)
            return
        if is_default and outcome != "measured":
            raise self._make_no_defaults_error(self.study.get_trial(trial.number))

    def _fail_trial_or_doubt_gpu(self, runner: Runner, trial: Trial, error: WorkerLost) -> None:
        """Find out whose fault it is that a worker went away: the trial's, or the GPU's."""
        worker = runner.worker
        default = self.task.space.default
        self._start_worker_or_doubt_gpu(worker)
        if trial.config == default:
            if len(self.outcome.workers) > 1:
                raise GpuInDoubt(error)
            why = f"the defaults of {self.task.variant.id} failed: {error.message}"
            raise ProfkitError(why, error.hint)
        try:
            runner.time_entries([self.task.make_trial_entry(default)], (3, 3))
        except WorkerClosed:
            raise
        except ProfkitError as doubt:
            raise GpuInDoubt(doubt) from doubt
        result = TrialResult(reason=error.message, kind="failed", gpu=worker.visible)
        self.study.finish_trial(trial.number, "failed", None, result)


def open_study(task: Task, storage_url: str, is_resumed: bool) -> Study:
    """Open the search of a task in its storage; a ProfkitError where another one is there."""
    name = f"{task.problem.name}/{task.subject}"
    study = Study(storage_url, name, task.space, task.possible_configs)
    about = {
        "source": task.variant.source_hash,
        "problem": task.problem.hash,
        "gpu": device.query_first_gpu().name,
        "arch": task.arch,
    }
    trials, was = (
        study.list_trials_but_waiting(),
        study.read_note("about"),
    )  # whoever begins notes this first
    if trials and not is_resumed:
        raise ProfkitError(
            f"there is a search of {name} with {study.count_distinct_ended_trials()} trials already",
            "continue it: --resume; or begin another one: --storage sqlite:///another.db",
        )
    if trials and was != about:
        noted = was or {}
        changed = ", ".join(key for key in about if noted.get(key) != about[key])
        raise ProfkitError(
            f"the search of {name} was made with another {changed}",
            "its times do not compare with new ones: begin another with --storage",
        )
    study.write_note("about", about)
    return study
