"""The memory of a search: Optuna's study, its storage and its sampler."""
