"""artifacts/<variant>.<case>.json  ->  a run record as compare, claims and the ledger see it.

The record is written by profkit.measure, which nothing here imports: its JSON is the contract and
`parse` the one place that knows its keys. What a record does not say is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError

SCHEMA = "profkit.record/1"


@dataclass(frozen=True)
class Timing:
    """Samples of one kernel in one state of the L2 cache, in the order taken.

    Attributes:
        samples: Seconds.
        interleaved: Sample i of every kernel of the session belongs to the same round.
    """

    samples: tuple[float, ...]
    interleaved: bool = False


@dataclass(frozen=True)
class Resources:
    """What ptxas and the launch say of one thread or block; None where not known."""

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
    ncu: str | None = None


@dataclass(frozen=True)
class Record:
    """One variant at one case.

    Attributes:
        path: The JSON file.
        variant: Its id.
        case: The problem's case.
        title: First line of the variant's header.
        after: The variant that it changes, None for a first one.
        fixes: Rules that its header said it clears.
        fixes_not: Rules that its header said it provably does not clear.
        source: sha256 of the source and its headers.
        sass: Hash of the machine code.
        resources: Registers, shared memory, spills, stack.
        right: Whether the check passed; None when it was not checked.
        max_error: Largest absolute error of the check.
        sanitizers: Tool -> verdict ("clean", ...).
        session: Equal for everything that was timed in one process.
        timings: "warm" and "cold" -> this variant's samples.
        references: Name -> the same for what was timed beside it.
        machine: GPU, clocks, driver, ncu.
        work: Operations, compulsory bytes, ... of the case.
        report: sha256 of the report beside it.
    """

    path: Path
    variant: str
    case: str
    title: str = ""
    after: str | None = None
    fixes: tuple[str, ...] = ()
    fixes_not: tuple[str, ...] = ()
    source: str | None = None
    sass: str | None = None
    resources: Resources = Resources()
    right: bool | None = None
    max_error: float | None = None
    sanitizers: Mapping[str, str] = field(default_factory=dict)
    session: str | None = None
    timings: Mapping[str, Timing] = field(default_factory=dict)
    references: Mapping[str, Mapping[str, Timing]] = field(default_factory=dict)
    machine: Machine = Machine()
    work: Mapping[str, float] = field(default_factory=dict)
    report: str | None = None

    @property
    def dirty(self) -> tuple[str, ...]:
        """The sanitizer tools that found something."""
        return tuple(tool for tool, verdict in self.sanitizers.items() if verdict == "errors")


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
    """A Record of the JSON document; what is absent or of another kind is None."""
    variant, case = _text(data, "variant"), _text(data, "case")
    if variant is None or case is None:
        raise ProfkitError(f"{path}: names no variant and case", "record it again")
    timing = _mapping(data, "timing")
    references = _mapping(timing, "references")
    return Record(
        path=path,
        variant=variant,
        case=case,
        title=_text(data, "title") or "",
        after=_text(data, "after"),
        fixes=_words(data, "fixes"),
        fixes_not=_words(data, "fixes_not"),
        source=_text(data, "source", "sha256"),
        sass=_text(data, "sass"),
        resources=Resources(
            **{name: _number(data, "resources", name) for name in Resources.__annotations__}
        ),
        right=_flag(data, "check", "passed"),
        max_error=_number(data, "check", "max_error"),
        sanitizers={k: v for k, v in _mapping(data, "sanitizers").items() if isinstance(v, str)},
        session=_text(timing, "session"),
        timings=_timings(timing),
        references={name: _timings(value) for name, value in references.items()},
        machine=_machine(data),
        work={k: float(v) for k, v in _mapping(data, "work").items() if _is_number(v)},
        report=_text(data, "report", "sha256"),
    )


def _machine(data: Mapping[str, Any]) -> Machine:
    return Machine(
        gpu=_text(data, "gpu", "name"),
        uuid=_text(data, "gpu", "uuid"),
        sm_clock=_number(data, "clocks", "sm"),
        clock_control=_text(data, "ncu", "clock_control"),
        driver=_text(data, "versions", "driver"),
        ncu=_text(data, "versions", "ncu"),
    )


def _timings(timing: Any) -> dict[str, Timing]:
    found = {}
    for l2 in ("warm", "cold"):
        samples = _at(timing, l2, "samples")
        if isinstance(samples, list) and samples and all(map(_is_number, samples)):
            interleaved = _flag(timing, l2, "interleaved") or False
            found[l2] = Timing(tuple(map(float, samples)), interleaved)
    return found


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _mapping(value: Any, *keys: str) -> Mapping[str, Any]:
    found = _at(value, *keys)
    return found if isinstance(found, Mapping) else {}


def _text(value: Any, *keys: str) -> str | None:
    found = _at(value, *keys)
    return found if isinstance(found, str) and found else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _number(value: Any, *keys: str) -> float | None:
    found = _at(value, *keys)
    return float(found) if _is_number(found) else None


def _flag(value: Any, *keys: str) -> bool | None:
    found = _at(value, *keys)
    return found if isinstance(found, bool) else None


def _words(value: Any, *keys: str) -> tuple[str, ...]:
    found = _at(value, *keys)
    return tuple(w for w in found if isinstance(w, str)) if isinstance(found, list) else ()
