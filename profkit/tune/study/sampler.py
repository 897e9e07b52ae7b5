"""TPE over all macros together, its samples moved to configurations that can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import optuna

STARTUP = 10  # trials that are drawn at random before TPE has something to go by


class NearestSampler(optuna.samplers.TPESampler):  # type: ignore[misc]
    """TPE over all macros together, its samples moved to configurations that can be."""

    def __init__(
        self,
        nearest: Callable[[Mapping[str, int] | None], dict[str, int]],
        space: Mapping[str, Any],
        seed: int,
    ) -> None:
        super().__init__(
            n_startup_trials=STARTUP, multivariate=True, constant_liar=True, seed=seed,
            warn_independent_sampling=False,
        )  # fmt: skip
        self._nearest = nearest
        self._all = dict(space)

    def infer_relative_search_space(self, _study: Any, _trial: Any) -> dict[str, Any]:
        """Every macro, from the first trial on."""
        return {m: d for m, d in self._all.items() if not d.single()}

    def sample_relative(self, study: Any, trial: Any, search_space: Any) -> dict[str, int]:
        """TPE's sample, or a random one at the start, as a configuration that can be."""
        sample = super().sample_relative(study, trial, search_space)
        full = {m: sample.get(m, 0) for m in self._all} if sample else None
        return self._nearest(full)
