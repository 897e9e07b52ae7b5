"""A variant with tunables  ->  the fastest choice that passes every gate, or the defaults again."""

from __future__ import annotations

from importlib.util import find_spec

from profkit.errors import ProfkitError, install_extra


def need_optuna() -> None:
    """Raise ProfkitError if Optuna is not installed, before anything here is imported."""
    if find_spec("optuna") is None:
        message = "profkit tune needs optuna, which is not installed"
        raise ProfkitError(message, install_extra("optuna"))
