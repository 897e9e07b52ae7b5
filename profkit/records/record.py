"""artifacts/<variant>.<case>.json  ->  a run record as compare, claims and the ledger see it.

The record is written by profkit.measure, which nothing here imports: its JSON is the contract and
`parse` the one place that knows its keys. What a record does not say is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

SCHEMA = "profkit.run/1"


@dataclass(frozen=True)
class Resources:
    """What the kernels of a variant take at most, per thread or block; None where not known.

    Attributes:
        registers: Per thread.
        shared_static: Bytes per block.
        shared_dynamic: Bytes per block.
        spills: Bytes of spill stores and loads.
        stack: Bytes of stack frame per thread.
    """

    registers: float | None = None
    shared_static: float | None = None
    shared_dynamic: float | None = None
    spills: float | None = None
    stack: float | None = None


@dataclass(frozen=True)
class Machine:
    """Where and how it was measured; two runs are only compared when these agree."""

    gpu: str | None = None
    uuid: str | None = None
    sm_clock: float | None = None
    clock_control: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Record:
    """One variant, or one library call, at one case.

    Attributes:
        path: The JSON file.
        variant: Its id.
        case: The problem's case.
        problem: The problem, "" in a record that does not say.
        title: First line of the variant's header.
        after: The variant that it changes, None for a first one.
        fixes: Rules that its header said it clears.
        fixes_not: Rules that its header said it provably does not clear.
        moves: What its header said that the counters will do.
        moves_not: What they were to do and provably do not.
        said_of: The case that its header speaks of; None for every case.
        source: sha256 of the source and its headers; None for a library call.
        sass: Hash of the machine code.
        resources: Registers, shared memory, spills, stack.
        right: Whether the check passed; None when it was not checked.
        max_abs: Largest absolute error of the check.
        max_rel: Largest relative error of the check.
        sanitizers: Tool -> "clean", or what it found; tools that were not run are not there.
        session: Equal for everything that was timed in turns in one process.
        warm: Samples with a warm L2 in the order taken, seconds per call.
        cold: Samples with a cold L2.
        machine: GPU, clocks, driver.
        work: Operations, compulsory bytes, ... of the case.
    """

    path: Path
    variant: str
    case: str
    problem: str = ""
    title: str = ""
    after: str | None = None
    fixes: tuple[str, ...] = ()
    fixes_not: tuple[str, ...] = ()
    moves: tuple[str, ...] = ()
    moves_not: tuple[str, ...] = ()
    said_of: str | None = None
    source: str | None = None
    sass: str | None = None
    resources: Resources = Resources()
    right: bool | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    sanitizers: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None
    warm: tuple[float, ...] = ()
    cold: tuple[float, ...] = ()
    machine: Machine = Machine()
    work: Mapping[str, float] = field(default_factory=dict)

    @property
    def reference(self) -> bool:
        """Whether it is a library call, which has no source."""
        return self.source is None

    @property
    def dirty(self) -> tuple[str, ...]:
        """The sanitizer tools that found something."""
        return tuple(tool for tool, verdict in self.sanitizers.items() if verdict != "clean")


def read_record(path: str | Path) -> Record:
    """Read one run record.

    Raises:
        ProfkitError: It cannot be read, is not a run record, or is of another version.
    """
    file = Path(path)
    try:
        data = json.loads(file.read_bytes())
    except OSError as error:
        raise ProfkitError(f"{file}: {error.strerror}", "profkit profile writes it") from error
    except ValueError as error:
        raise ProfkitError(f"{file}: not JSON ({error})", "record it again") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        said = data.get("schema") if isinstance(data, dict) else None
        raise ProfkitError(
            f"{file}: not a run record of this version ({said!r}, not {SCHEMA!r})",
            "record it again with this profkit",
        )
    return parse(file, data)


def parse(path: Path, data: Mapping[str, Any]) -> Record:
    """A Record of the JSON document; what is absent or of another kind is None.

    Raises:
        ProfkitError: It does not say of which variant and case it is.
    """
    variant, case = _text(data, "variant"), _text(data, "case")
    if variant is None or case is None:
        raise ProfkitError(f"{path}: names no variant and case", "record it again")
    cases = [c for c in _list(data, "check", "cases") if isinstance(c, Mapping)]
    return Record(
        path=path,
        variant=variant,
        case=case,
        problem=_text(data, "problem") or "",
        title=_text(data, "header", "title") or "",
        after=_text(data, "header", "after"),
        fixes=_words(data, "header", "fixes"),
        fixes_not=_words(data, "header", "fixes-not"),
        moves=_words(data, "header", "moves"),
        moves_not=_words(data, "header", "moves-not"),
        said_of=_text(data, "header", "case"),
        source=_text(data, "source", "sha256"),
        sass=_text(data, "source", "sass"),
        resources=_resources(data),
        right=_RIGHT.get(_text(data, "check", "status") or ""),
        max_abs=_most(cases, "max_abs"),
        max_rel=_most(cases, "max_rel"),
        sanitizers={
            tool: verdict
            for tool, verdict in _mapping(data, "check", "sanitizer").items()
            if isinstance(verdict, str)
        },
        session=_text(data, "timing", "session"),
        warm=_samples(data, "warm"),
        cold=_samples(data, "cold"),
        machine=Machine(
            gpu=_text(data, "gpu", "name"),
            uuid=_text(data, "gpu", "uuid"),
            sm_clock=_number(data, "timing", "after", "sm_clock"),
            clock_control=_text(data, "ncu", "clock_control"),
            driver=_text(data, "gpu", "driver"),
        ),
        work={k: float(v) for k, v in _mapping(data, "work").items() if _is_number(v)},
    )


# "not supported" is neither: nothing came out that could be right or wrong.
_RIGHT = {"right": True, "wrong": False, "failed": False}


def _resources(data: Mapping[str, Any]) -> Resources:
    """The most of each over all kernels: the build's for one thread, the launch's for a block."""
    kernels, launches = _list(data, "resources"), _list(data, "launches")
    return Resources(
        registers=_most(launches, "regs") or _most(kernels, "regs"),
        shared_static=_most(launches, "static_smem"),
        shared_dynamic=_most(launches, "dynamic_smem"),
        spills=_most(kernels, "spills"),
        stack=_most(kernels, "stack"),
    )


def _samples(data: Mapping[str, Any], l2: str) -> tuple[float, ...]:
    """As recorded; what is no number is NaN, so that whoever compares says how many there are."""
    found = _list(data, "timing", "l2", l2, "samples")
    return tuple(float(x) if _is_number(x) else nan for x in found)


def _most(rows: Sequence[Any], name: str) -> float | None:
    found = [n for row in rows if (n := _number(row, name)) is not None]
    return max(found, default=None)


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    found = _at(value, *keys)
    return found if isinstance(found, Mapping) else {}


def _list(value: Any, *keys: str) -> list[Any]:
    found = _at(value, *keys)
    return found if isinstance(found, list) else []


def _text(value: Any, *keys: str) -> str | None:
    found = _at(value, *keys)
    return found if isinstance(found, str) and found else None


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < 1e300 and isfinite(value)


def _number(value: Any, *keys: str) -> float | None:
    found = _at(value, *keys)
    return float(found) if _is_number(found) else None


def _words(value: Any, *keys: str) -> tuple[str, ...]:
    return tuple(w for w in _list(value, *keys) if isinstance(w, str))
