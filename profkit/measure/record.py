"""What was done to one variant at one case  ->  artifacts/<id>.<case>.json, and back.

The record stands beside the report and says what the report cannot: which source, was it right,
how fast it was without a profiler, and under which conditions.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

SCHEMA = "profkit.run/1"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: beside it first, then renamed over it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        whole = False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(name, 0o644)
            os.replace(name, path)
            whole = True
        finally:
            if not whole:
                os.unlink(name)
    except OSError as error:
        raise ProfkitError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, content: str) -> None:
    """Write a text file whole or not at all."""
    write_bytes(path, content.encode())


def paths(folder: Path, name: str, case: str) -> tuple[Path, Path]:
    """Where the report and the record of a variant at a case are."""
    return folder / f"{name}.{case}.ncu-rep", folder / f"{name}.{case}.json"


def save(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record; numbers that are no numbers become null."""
    write_text(path, json.dumps(clean({"schema": SCHEMA, **record}), indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        ProfkitError: It cannot be read, or is of another schema.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ProfkitError(
            f"{path} is no run record: {error}", "profile the variant again"
        ) from error
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        said = record.get("schema") if isinstance(record, dict) else None
        raise ProfkitError(
            f"{path}: schema {said!r}, wanted {SCHEMA!r}", "profile the variant again"
        )
    return record


def clean(value: Any) -> Any:
    """The same value with NaN and infinity as None, tuples as lists and paths as text."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def digest(path: Path) -> str:
    """sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def stale(record: Mapping[str, Any], source_hash: str) -> bool:
    """Whether the source has changed since the record was made."""
    source = record.get("source")
    return not isinstance(source, Mapping) or source.get("sha256") != source_hash


def timing(times: Mapping[str, Any]) -> dict[str, Any]:
    """Timing samples with their medians and bootstrap intervals, in seconds per call.

    Args:
        times: bench.Times as JSON.
    """
    from profkit.measure.bench import METHOD, WIDTH

    found = {k: _summary(times[k]) for k in ("warm", "cold")}
    widths = {k: v["width"] for k, v in found.items() if v}
    wide = [k for k, width in widths.items() if width is not None and width > WIDTH]
    reason = times["rounds_short"] or "neighbouring samples hang together"
    short = [f"{' and '.join(wide)}: wider than {WIDTH:.0%}, {reason}"] if wide else []
    none = [k for k, width in widths.items() if width is None]
    why = "; ".join(short + [f"{k}: no interval, {_unusable(times[k])}" for k in none])
    kept = ("session", "per_sample", "eager", "host", "bare", "host_bound", "before", "after")
    return {"method": METHOD, "l2": found, "why_wide": why, **{k: times[k] for k in kept}}


def _unusable(samples: Sequence[float]) -> str:
    from profkit.evidence.samples import THRESHOLDS, as_groups, summarize

    fault = summarize(as_groups(samples, "the samples"), THRESHOLDS).unusable
    return {
        "too-few": f"{len(samples)} samples are too few",
        "constant": "all samples are equal",
        "autocorrelated": "neighbouring samples hang together",
    }.get(str(fault), str(fault))


def _summary(samples: Sequence[float]) -> dict[str, Any] | None:
    if not samples:
        return None
    from profkit.evidence.stats import median_interval

    found = median_interval(list(samples))
    half = (found.high - found.low) / 2
    known = found.median and not isnan(half)
    width = half / found.median if known else None
    return {**found.to_json(), "width": width, "samples": list(samples)}
