"""Flags of the verbs that measure  ->  what they name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.measure.targets import Places


def target_places(
    kernels: Path | None = None, build_dir: Path | None = None, artifacts: Path | None = None
) -> Places:
    """Where the options say that things are."""
    from profkit.measure.targets import Places

    return Places(kernels, build_dir, artifacts)


def named_or_all(names: Sequence[str] | None, every: bool) -> Sequence[str]:
    """The variants that were named; none with --all, which is the other answer."""
    if bool(names) == every:
        raise ProfkitError(
            "which variants?" if not every else "--all and --variant are two answers",
            "--variant ID (profkit list shows them), or --all",
        )
    return names or ()
