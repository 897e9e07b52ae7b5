"""What is typed so far  ->  how it could go on, for the shell. Never an error: no names then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from profkit.errors import ProfkitError

Described = list[tuple[str, str]]
_SIDES = {".json", ".ncu-rep", ".ncu-repz"}


def variants(ctx: typer.Context, incomplete: str) -> Described:
    """Variants in the folder of problems, and whatever was recorded (references too)."""
    from profkit.measure.variants.variants import kernels_dir, survey

    try:
        known, _ = survey(kernels_dir(ctx.params.get("kernels")))
        titles = {v.id: v.title for v in known}
    except ProfkitError:
        titles = {}
    return _begin(incomplete, (dict.fromkeys(_recorded(ctx, 0), "recorded") | titles).items())


def sides(ctx: typer.Context, incomplete: str) -> list[str]:
    folder = Path(incomplete if incomplete.endswith("/") else Path(incomplete).parent)
    paths = [str(p) for p in sorted(folder.glob("*")) if p.is_dir() or p.suffix in _SIDES]
    return [name for name in (*_recorded(ctx, 0), *paths) if name.startswith(incomplete)]


def recorded(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in _recorded(ctx, 0) if name.startswith(incomplete)]


def cases(ctx: typer.Context, incomplete: str) -> list[str]:
    return [name for name in sorted(_recorded(ctx, 1)) if name.startswith(incomplete)]


def pages(incomplete: str) -> Described:
    from profkit.diagnosis.rules import ALL
    from profkit.reports.metrics import CATALOGUE

    rules = [(rule.id, rule.title) for rule in ALL]
    return _begin(incomplete, [*rules, *((m.name, m.meaning) for m in CATALOGUE.values())])


def one_of(*words: str) -> Callable[[str], list[str]]:
    def begin(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return begin


def _begin(incomplete: str, known: Iterable[tuple[str, str]]) -> Described:
    return [(name, about) for name, about in known if name.startswith(incomplete)]


def _recorded(ctx: typer.Context, part: int) -> list[str]:
    """The variants (part 0) or cases (1) of the records in the folder of artifacts."""
    from profkit.records.paths import run_files

    folder = Path(ctx.params.get("artifacts") or "artifacts")
    return list(dict.fromkeys(name[part] for name in run_files(folder)))
