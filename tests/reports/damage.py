"""Damage to a real report, made and read in a child process: called there by name."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from profkit.reports import frame, reader


@cache
def _whole(path: str) -> list[dict[str, Any]]:
    return [frame.read_scalar_metrics(action) for action in reader.iterate_actions(path)]


def verdict(item: tuple[str, str, int]) -> tuple[str, str, list[str]]:
    """Damage a copy of a report, with a seed, and say its status and what it lost while "ok".

    Args:
        item: (path, "cut" or "overwritten", seed).
    """
    path, how, seed = item
    chance, data = random.Random(seed), bytearray(Path(path).read_bytes())
    if how == "cut":
        at = chance.randrange(1, len(data))
        del data[at:]
    else:
        size = chance.randint(1, 4096)
        at = chance.randrange(len(data) - size)
        data[at : at + size] = chance.randbytes(size)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / Path(path).name
        copy.write_bytes(data)
        part = reader.read_report_unless_large(str(copy))
        if part.file.status != "ok":
            return part.file.status, part.file.message, []
        return (
            "ok",
            "",
            _lost(
                _whole(path),
                [frame.read_scalar_metrics(a) for a in reader.iterate_actions(str(copy))],
            ),
        )


def _lost(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[str]:
    if len(after) < len(before):
        return [f"{len(before) - len(after)} launches"]
    return [name for b, a in zip(before, after, strict=True) for name in b if name not in a]
