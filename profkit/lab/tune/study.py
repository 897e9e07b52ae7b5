"""The search's memory  ->  what to try next, and what came of everything tried. The only Optuna.

One trial is one configuration. A configuration is never tried twice: the sampler's wish is moved to
the nearest one that can be and was not tried. Everything stands in the storage as soon as it is
known, so that a search goes on where it was killed, and several can share one.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import optuna
from msgspec import structs
from optuna.distributions import IntDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import FrozenTrial, TrialState

from profkit.collect.process import is_alive
from profkit.lab.measure.variants.tunables import Config, Space
from profkit.lab.tune.result import TrialResult
from profkit.lab.tune.storage import (
    explain_unreachable_storage,
    name_this_process,
    open_storage,
)

if TYPE_CHECKING:
    from profkit.units import MacroName, OptunaStudy, OptunaTrial, PlainValues, Seconds, Share


_STALE = timedelta(minutes=15)  # a running trial of another host, older than this, is given up
_SIGNS = 10.0  # seconds within which whoever asks for a trial has put a name to it
SEED = 0  # of the sampler: a search that is run again proposes the same
_ABANDONED = ("interrupted", "repeated")  # outcomes that are no result


@dataclass(frozen=True)
class Trial:
    """One configuration that was tried, and what became of it."""

    number: int
    config: Config
    source: str  # who proposed it: default, random, tpe, or `steer:<rule>`
    outcome: str  # measured, pruned, refused, same, wrong, failed; running; interrupted
    value: float | None = None  # seconds per call, normalised by the anchor; None where it has none
    result: TrialResult = field(default_factory=TrialResult)
    seconds: float | None = None  # from proposal to end
    ended: str | None = None  # when, as ISO text

    @property
    def is_counted(self) -> bool:
        """Return whether it is one of the distinct trials: finished, and no other's double."""
        return self.outcome not in ("running", "same", *_ABANDONED)


class Study:
    """A search in its storage. Every method may be called by any thread."""

    def __init__(self, url: str, name: str, space: Space, possible: Iterable[Config]) -> None:
        """Open or begin a study; `possible`: the configurations that arithmetic does not refuse."""
        self.space = space
        self.possible = tuple(possible)
        self._lock = threading.RLock()
        self._live: dict[int, optuna.Trial] = {}
        self._free: list[Config] = []
        self.based = threading.Event()  # set when the defaults have been measured
        self._codes: dict[str, int] = {}  # identity of a build -> the trial that measured it
        self._ordered = space.ordered_values
        self._dists = {m: IntDistribution(0, len(v) - 1) for m, v in self._ordered.items()}
        self._random = random.Random(SEED)  # noqa: S311 - chooses tiles, keeps no secret
        logging.getLogger("optuna").setLevel(logging.ERROR)
        with warnings.catch_warnings(action="ignore"), explain_unreachable_storage(url):
            sampler = NearestSampler(self._find_nearest_untried_ranks, self._dists)
            pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0)
            how = {"direction": "minimize", "sampler": sampler, "pruner": pruner}
            how |= {"study_name": name, "load_if_exists": True}
            self._study = optuna.create_study(storage=open_storage(url), **how)

    def list_trials_but_waiting(self) -> list[Trial]:
        """Return all trials in the storage, in order, without proposals that wait."""
        with self._lock:
            known = self._study.get_trials(deepcopy=False)
        trials = []
        for t in known:
            if t.state != TrialState.WAITING and self._has_all_parameters(t):
                trials.append(self._read_trial(t))
        return trials

    def get_trial(self, trial_number: int) -> Trial:
        """Return the trial of a number."""
        return {trial.number: trial for trial in self.list_trials_but_waiting()}[trial_number]

    def count_distinct_ended_trials(self) -> int:
        """Return how many distinct trials have ended."""
        return sum(trial.is_counted for trial in self.list_trials_but_waiting())

    def write_note(self, key: str, value: PlainValues) -> None:
        """Keep a value with the study."""
        with self._lock:
            self._study.set_user_attr(key, value)

    def read_note(self, key: str) -> PlainValues:
        """Return a value that was kept with the study; None where there is none."""
        with self._lock:
            return self._study.user_attrs.get(key)

    def claim_machine_code(self, machine_code_key: str, trial_number: int) -> int:
        """Return the trial of this process that measures this machine code: this one, if none did."""
        with self._lock:
            return self._codes.setdefault(machine_code_key, trial_number)

    def replace_incumbent(self, expected_number: int, new_number: int) -> bool:
        """Make a trial the incumbent, if the one that it beat still is."""
        with self._lock:
            if self.read_note("incumbent") != expected_number:
                return False
            self.write_note("incumbent", new_number)
            return True

    def begin_next_trial(self) -> Trial | None:
        """Return the next configuration; None if nothing is left to try."""
        with self._lock:
            while True:
                known = self._study.get_trials(deepcopy=False)
                self._free = self._list_unclaimed_configs(known)
                if not self._free and all(t.state != TrialState.WAITING for t in known):
                    return None
                live = self._study.ask(self._dists)
                self._live[live.number] = live
                config = self._get_config_of_ranks(live.params)
                source = live.user_attrs.get("source")
                if source is None:
                    done = (TrialState.COMPLETE, TrialState.PRUNED)
                    begun = sum(t.state in done for t in known)
                    source = "random" if begun < STARTUP else "tpe"
                live.set_user_attr("by", [source, name_this_process()])
                # Two searches in one storage may want the same: the first to write has it.
                if config in self.possible and config not in self._list_claimed_configs(
                    live.number
                ):
                    return Trial(live.number, config, source, "running")
                self.finish_trial(live.number, "repeated")

    def propose_new_config(self, config: Config, proposed_by: str) -> bool:
        """Have a configuration tried next; return whether it was new."""
        with self._lock:
            if config not in set(self.list_untried_configs()):
                return False
            self._study.enqueue_trial(
                self._get_value_ranks_of_config(config), user_attrs={"source": proposed_by}
            )
            return True

    def report_value_and_ask_to_prune(
        self, trial_number: int, seconds_so_far: Seconds, step: int
    ) -> bool:
        """Tell an intermediate value; whether the trial is not worth going on with."""
        with self._lock, contextlib.suppress(UpdateFinishedTrialError):
            self._live[trial_number].report(seconds_so_far, step)
            return bool(self._live[trial_number].should_prune())
        return True  # another search gave this one up, and has it again

    def finish_trial(
        self,
        trial_number: int,
        outcome: str,
        seconds_per_call: Seconds | None = None,
        result: TrialResult | None = None,
    ) -> None:
        """Write down what came of a trial; a refusal is pruned, so that TPE keeps away from it."""
        if outcome in ("failed", *_ABANDONED):
            state = TrialState.FAIL
        elif seconds_per_call is None or outcome == "pruned":
            state = TrialState.PRUNED
        else:
            state = TrialState.COMPLETE
        with self._lock, contextlib.suppress(UpdateFinishedTrialError):  # as in report
            live = self._live.pop(trial_number)
            kept = structs.replace(result or TrialResult(), outcome=outcome)
            live.set_user_attr("said", kept.to_json())
            done = seconds_per_call if state == TrialState.COMPLETE else None
            self._study.tell(live, done, state, skip_if_finished=True)

    def give_up_unfinished_trial(self, trial_number: int) -> None:
        """Give a trial up that has not ended: whoever resumes tries its configuration again."""
        with self._lock:
            if trial_number in self._live:
                self.finish_trial(trial_number, "interrupted")

    def propose_interrupted_trials(self) -> int:
        """Take up what a killed search left: its running trials are proposed again; how many."""
        with self._lock:
            again = {}
            for t in self._wait_for_earlier_trials():
                if not self._is_abandoned(t):
                    continue
                if t.state == TrialState.RUNNING:
                    self._study.tell(t.number, state=TrialState.FAIL, skip_if_finished=True)
                if self._has_all_parameters(t):
                    again[self._get_config_of_ranks(t.params)] = t
            for config, t in again.items():
                self.propose_new_config(config, _read_source_and_owner(t)[0])
            return len(again)

    def list_untried_configs(self) -> list[Config]:
        """Return the configurations that were not tried and do not wait for it."""
        with self._lock:
            return self._list_unclaimed_configs(self._study.get_trials(deepcopy=False))

    def _list_unclaimed_configs(self, known: Sequence[FrozenTrial]) -> list[Config]:
        claimed = set(map(self._find_claimed_config, known))
        return [config for config in self.possible if config not in claimed]

    def estimate_importance_by_macro(self) -> dict[MacroName, Share]:
        """Return macro -> its share in what makes a configuration one of the fastest (PED-ANOVA)."""
        done = sum(t.outcome in ("measured", "pruned") for t in self.list_trials_but_waiting())
        if done < 2 * STARTUP:
            return {}
        ignored = warnings.catch_warnings(action="ignore")
        with self._lock, ignored, contextlib.suppress(RuntimeError, ValueError):
            evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.25)
            shares = optuna.importance.get_param_importances(self._study, evaluator=evaluator)
            return {m: float(shares.get(m, 0.0)) for m in self.space.macros}
        return {}

    # --- from Optuna's trials to ours ------------------------------------------------------------

    def _has_all_parameters(self, trial: FrozenTrial) -> bool:
        return set(trial.params) == set(self._ordered)

    def _get_config_of_ranks(self, ranks: Mapping[str, Any]) -> Config:
        return self.space.get_config_at([ranks[m] for m in self.space.macros])

    def _get_value_ranks_of_config(self, config: Config) -> dict[MacroName, int]:
        return dict(zip(self.space.macros, config.ranks, strict=True))

    def _read_trial(self, trial: FrozenTrial) -> Trial:
        """Return one of Optuna's trials as ours."""
        result = msgspec.convert(trial.user_attrs.get("said", {}), TrialResult)
        source, _ = _read_source_and_owner(trial)
        value = result.value
        if trial.state == TrialState.COMPLETE:
            value = trial.value
        seconds = ended = None
        if trial.duration:
            seconds = trial.duration.total_seconds()
        if trial.datetime_complete:
            ended = trial.datetime_complete.isoformat(timespec="seconds")
        return Trial(
            number=trial.number,
            config=self._get_config_of_ranks(trial.params),
            source=source,
            outcome=_read_outcome(trial),
            value=value,
            result=result,
            seconds=seconds,
            ended=ended,
        )

    def _wait_for_earlier_trials(self, before_number: float = math.inf) -> list[FrozenTrial]:
        """Return the trials before one, waiting for what another process is just asking for."""
        until = time.monotonic() + _SIGNS
        while True:
            known = []
            for t in self._study.get_trials(deepcopy=False):
                if t.number < before_number:
                    known.append(t)
            running = (t for t in known if t.state == TrialState.RUNNING)
            if all(_read_source_and_owner(t)[1] for t in running) or time.monotonic() > until:
                return known
            time.sleep(0.1)

    def _is_abandoned(self, trial: FrozenTrial) -> bool:
        if trial.state != TrialState.RUNNING:
            return trial.state == TrialState.FAIL and _read_outcome(trial) == "interrupted"
        if trial.number in self._live:
            return False
        host, _, pid = _read_source_and_owner(trial)[1].rpartition(":")
        if host in ("", socket.gethostname()):
            return not pid.isdecimal() or not is_alive(int(pid))
        return datetime.now() - (trial.datetime_start or datetime.now()) > _STALE

    def _find_claimed_config(self, trial: FrozenTrial) -> Config | None:
        """Return the configuration that a trial has a result of, or will have."""
        if trial.state == TrialState.FAIL and _read_outcome(trial) in _ABANDONED:
            return None
        waits = None
        if trial.state == TrialState.WAITING:
            waits = trial.system_attrs.get("fixed_params")
        ranks = waits or trial.params
        if set(ranks) == set(self._ordered):
            return self._get_config_of_ranks(ranks)
        return None

    def _list_claimed_configs(self, before_number: int) -> set[Config | None]:
        """Return what earlier trials have claimed, also those of other processes."""
        earlier = self._wait_for_earlier_trials(before_number)
        return {self._find_claimed_config(t) for t in earlier if t.state != TrialState.WAITING}

    def _find_nearest_untried_ranks(
        self, sample: Mapping[MacroName, int] | None
    ) -> dict[MacroName, int]:
        """Return the untried configuration nearest to the sampler's; any, without a sample."""
        free = self._free
        macros = self.space.macros
        if not free:  # another process has just taken the last one: ask() finds that out
            return self._get_value_ranks_of_config(self.space.default)
        if not sample:
            return self._get_value_ranks_of_config(self._random.choice(free))

        def measure_distance(config: Config) -> tuple[float, float]:
            """Return how far a configuration is, in widths of macros, and a random number for ties."""
            far = 0.0
            for macro, rank in zip(macros, config.ranks, strict=True):
                far += abs(rank - sample[macro]) / max(1, len(self._ordered[macro]) - 1)
            return round(far, 9), self._random.random()

        return self._get_value_ranks_of_config(min(free, key=measure_distance))


def _read_outcome(trial: FrozenTrial) -> str:
    known = {TrialState.RUNNING: "running", TrialState.WAITING: "waiting"}
    kept = trial.user_attrs.get("said", {}).get("outcome")
    return str(kept or known.get(trial.state, "interrupted"))


def _read_source_and_owner(trial: FrozenTrial) -> tuple[str, str]:
    source, owner = trial.user_attrs.get("by") or (trial.user_attrs.get("source", "random"), "")
    return source, owner


STARTUP = 10  # trials that are drawn at random before TPE has something to go by


class NearestSampler(optuna.samplers.TPESampler):  # type: ignore[misc]
    """TPE over all macros together, its samples moved to configurations that can be."""

    def __init__(
        self,
        nearest: Callable[[Mapping[str, int] | None], dict[str, int]],
        space: Mapping[str, Any],
    ) -> None:
        how = {"multivariate": True, "constant_liar": True, "warn_independent_sampling": False}
        super().__init__(n_startup_trials=STARTUP, seed=SEED, **how)
        self._find_nearest_untried_ranks = nearest
        self._all = dict(space)

    def infer_relative_search_space(
        self, _study: OptunaStudy, _trial: OptunaTrial
    ) -> dict[str, Any]:
        """Return the macros that have more than one value."""
        relative_search_space = {}
        for m, d in self._all.items():
            if not d.single():
                relative_search_space[m] = d
        return relative_search_space

    def sample_relative(
        self, study: OptunaStudy, trial: OptunaTrial, search_space: Any
    ) -> dict[str, int]:
        """Return TPE's sample, or a random one at the start, as a configuration that can be."""
        sample = super().sample_relative(study, trial, search_space)
        if sample:
            sample = {**dict.fromkeys(self._all, 0), **sample}
        return self._find_nearest_untried_ranks(sample)
