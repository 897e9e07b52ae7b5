"""A variant with tunables  ->  the fastest choice that passes every gate, or the defaults again."""

from __future__ import annotations

from importlib.util import find_spec

from profkit.errors import ProfkitError, install_extra


def need_optuna() -> None:
    """Say what is missing before anything here is imported.

    Raises:
        ProfkitError: Optuna is not installed.
    """
    if find_spec("optuna") is None:
        message = "profkit tune needs optuna, which is not installed"
        raise ProfkitError(message, install_extra("optuna"))
