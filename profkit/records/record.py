"""<variant>.json, a run record (profkit.run/1)  <->  Record: one reader and one writer.

What was done to one variant, or one library call, at one case: which source, was it right, how
fast without a profiler, and under which conditions. It is beside the report and says what the
report cannot. A field more is one line here, or in parts.py. What a record does not say is None,
never 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.files import read_json, write_text
from profkit.records import parts
from profkit.records.header import VariantHeader
from profkit.records.store import (
    Document,
    Unprinted,
    WhereKnown,
    amend_document,
    convert_struct_to_json,
    get_schema_name,
    read_struct,
)

if TYPE_CHECKING:
    from profkit.units import (
        CommandText,
        Hertz,
        MetricName,
        RecordJson,
        Seconds,
        Sha256,
        VariantName,
    )


SCHEMA = "profkit.run/1"


@dataclass(frozen=True)
class CodeIdentity:
    """The code of one measurement at one case, as hashes.

    Equal kernels are not enough to have run the same: a launcher that hands them another number, or
    starts them over another grid, is other code with the same SASS. So its own code has to be
    known to be the same: by its source, or by its hash. The source is asked first, because two
    versions of a host compiler make two hashes of one source.
    """

    sources: frozenset[str]  # hashes of its source: today's, and the one that it was measured with
    flags: tuple[str, ...]  # what the compiler was given
    sass: str | None  # hash of the kernels' machine code; None: not known
    host: str | None  # hash of the launcher's; None: not known
    launches: tuple[str, ...]  # what was started, a line each; empty: not known

    def is_surely_same(self, other: CodeIdentity) -> bool:
        """Return whether both are known to have run the same instructions on the same numbers.

        Not known is not the same: then times have to tell.
        """
        if self.sass is None or self.sass != other.sass:
            return False
        if self.launches and other.launches and self.launches != other.launches:
            return False
        if self.sources & other.sources and self.flags == other.flags:
            return True
        return self.host is not None and self.host == other.host


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag=SCHEMA):
    """One variant, or one library call, at one case. Seconds, bytes, Hz."""

    variant: str
    case: str  # the problem's case
    problem: str = ""  # the problem, "" in a record that does not say
    # what the variant's header says; empty for a library call
    header: VariantHeader = msgspec.field(default_factory=VariantHeader)
    made: str | None = None  # when, ISO 8601
    source: parts.RecordedSource | None = None  # what was built; None for a library call
    resources: tuple[parts.BuiltKernel, ...] = ()  # what ptxas says of each kernel
    launches: tuple[parts.RecordedLaunch, ...] = ()  # the kernel launches of one call
    check: parts.CheckResult | None = None  # whether it is right; None when it was not checked
    timing: parts.Timing | None = None  # None when it was not timed
    gpu: parts.RecordedGpu | None = None
    versions: parts.Versions = parts.Versions()  # with which programs
    work: parts.CaseWork = msgspec.field(default_factory=parts.CaseWork)  # what the case needs
    shape: tuple[parts.LaunchShape, ...] = ()  # how the launches fill the GPU
    report: parts.RecordedReport | None = None  # the report beside it, None without one
    backend: WhereKnown[str] = None  # what a library call really ran
    git: parts.Commit | None = None  # the commit, None where it is not known
    ncu: WhereKnown[parts.NcuRun] = None  # how the report was made
    assembled: WhereKnown[str] = None  # what was joined by hand
    # what each cause costs, by taking it away; None where that was not measured
    ablation: WhereKnown[Mapping[str, Any]] = None
    tune: WhereKnown[Mapping[str, Any]] = None  # the search that this is the champion of
    # the JSON file, as far as there is one
    path: Unprinted[Path] = msgspec.field(default_factory=Path)
    damaged: Unprinted[tuple[str, ...]] = ()  # paths in the file that hold no value of their kind

    @property
    def known_source(self) -> parts.RecordedSource:
        """Return what was built; with nothing in it where that is not known."""
        return self.source or parts.RecordedSource()

    @property
    def known_timing(self) -> parts.Timing:
        """Return how it was timed; with nothing in it where it was not."""
        return self.timing or parts.Timing()

    @property
    def known_gpu(self) -> parts.RecordedGpu:
        """Return the GPU; with nothing in it where that is not known."""
        return self.gpu or parts.RecordedGpu()

    @property
    def source_hash(self) -> Sha256 | None:
        """Return the hash of the code and its headers."""
        return self.known_source.sha256

    @property
    def sass_hash(self) -> Sha256 | None:
        """Return the hash of the machine code; None where it is not known."""
        return self.known_source.sass

    @property
    def timing_session(self) -> str | None:
        """Return the id that runs share which were timed in turns in one process."""
        return self.known_timing.session

    @property
    def warm_samples(self) -> tuple[Seconds, ...]:
        """Return seconds per call with a warm L2, in the order taken."""
        warm = self.known_timing.l2.warm or parts.TimedSide()
        return warm.samples

    @property
    def cold_samples(self) -> tuple[Seconds, ...]:
        """Return seconds per call with a cold L2, in the order taken."""
        cold = self.known_timing.l2.cold or parts.TimedSide()
        return cold.samples

    @property
    def sm_clock(self) -> Hertz | None:
        """Return the SM clock after the timing, in Hz."""
        after = self.known_timing.after or parts.GpuState()
        return after.sm_clock

    @property
    def clock_control(self) -> str | None:
        """Return whether ncu held the clocks."""
        ncu = self.ncu or parts.NcuRun()
        return ncu.clock_control

    @property
    def sanitizers(self) -> Mapping[str, str]:
        """Return tool -> "clean", or its findings; a tool that was not run is absent."""
        check = self.check or parts.CheckResult()
        return check.sanitizer

    @property
    def is_reference(self) -> bool:
        """Return whether it is a library call, which has no source."""
        return self.source is None

    @property
    def code_identity(self) -> CodeIdentity:
        """Return the hashes of what ran, by which two records are compared."""
        source = self.known_source
        launches = tuple(launch.describe_in_one_line() for launch in self.launches)
        if not all(launches):
            launches = ()
        return CodeIdentity(
            sources=frozenset(filter(None, (source.sha256, source.made_from))),
            flags=source.flags,
            sass=source.sass,
            host=source.host,
            launches=launches,
        )

    @property
    def correct(self) -> bool | None:
        """Return whether the check passed; None if unchecked, or if the case is not supported.

        One case that is wrong makes the check wrong, whatever its summary says.
        """
        if self.check is None:
            return None
        cases = self.check.cases
        said = {self.check.status, *(case.status for case in cases)}
        if not said.isdisjoint(("wrong", "failed")) or any(case.faults for case in cases):
            return False
        # "not supported" is neither
        if self.check.status == "right":
            return True
        return None

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the reasons to reject it whatever its time: wrong results, sanitizer findings."""
        faults = []
        if self.correct is False:
            faults.append("wrong results")
        for tool in self.sanitizer_errors:
            faults.append(f"{tool}: {self.sanitizers[tool]}")
        return tuple(faults)

    @property
    def max_abs(self) -> float | None:
        """Return the largest absolute error over all cases; None without a check."""
        if self.check:
            return find_largest_known(c.max_abs for c in self.check.cases)
        return None

    @property
    def max_rel(self) -> float | None:
        """Return the largest relative error over all cases; None without a check."""
        if self.check:
            return find_largest_known(c.max_rel for c in self.check.cases)
        return None

    @property
    def sanitizer_errors(self) -> tuple[str, ...]:
        """Return the sanitizer tools that found something."""
        return tuple(tool for tool, verdict in self.sanitizers.items() if verdict != "clean")

    @property
    def largest_resources(self) -> parts.Resources:
        """Return the most over all kernels: per thread by the build, per block by the launch."""
        launches = self.launches
        kernels = self.resources
        registers = find_largest_known(x.regs for x in launches)
        if not registers:
            registers = find_largest_known(k.regs for k in kernels)
        return parts.Resources(
            registers=registers,
            shared_static=find_largest_known(x.static_smem for x in launches),
            shared_dynamic=find_largest_known(x.dynamic_smem for x in launches),
            spills=find_largest_known(k.spills for k in kernels),
            stack=find_largest_known(k.stack for k in kernels),
        )

    def is_stale(self, source_hash: Sha256) -> bool:
        """Return whether the source has changed since it was measured."""
        return self.source_hash != source_hash

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        return convert_struct_to_json(self)


class ProfiledRun(Record, frozen=True, kw_only=True):
    """A run record, and what hindered the profile."""

    problem_message: str | None = None


class ProfileDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.profile/1"
):
    """What `profkit profile --variant NAME --json` prints: run records, with problem_message each."""

    runs: tuple[ProfiledRun, ...] = ()


def find_largest_known(values: Iterable[float | None]) -> float | None:
    """Return the largest of what is known; None where nothing is."""
    return max((float(v) for v in values if v is not None), default=None)


def read_record(path: str | Path) -> Record:
    """Read a run record; a ProfkitError where it is none, or none of this version."""
    file = Path(path)
    try:
        document = read_json(file)
    except OSError as error:
        raise ProfkitError(f"{file}: {error.strerror}", "profkit profile writes it") from error
    except ValueError as error:
        raise ProfkitError(f"{file}: not JSON ({error})", "record it again") from error
    schema = None
    if isinstance(document, dict):
        schema = document.get("schema")
    if schema != SCHEMA:
        why = f"{file}: not a run record of this version ({get_schema_name(schema)}, not {SCHEMA})"
        raise ProfkitError(why, "record it again with this profkit")
    return parse_record(document, file)


def parse_record(document: RecordJson, path: Path = Path()) -> Record:
    """Return a Record of the JSON document; what is absent or of another kind is not known.

    A ProfkitError where it does not say of which variant and case it is.
    """
    if not all(isinstance(document.get(k), str) and document[k] for k in ("variant", "case")):
        raise ProfkitError(f"{path}: names no variant and case", "record it again")
    damaged: list[str] = []
    record = read_struct(Record, document, damaged)
    return structs.replace(record, path=path, damaged=tuple(damaged))


def read_record_beside(report: str | Path) -> Record | None:
    """Return the run record of the same name beside a report; None without one that can be read."""
    path = Path(report)
    try:
        return read_record(path.parent / f"{path.stem}.json")
    except ProfkitError:
        return None


def get_report_sha256(record: Record | None) -> Sha256 | None:
    """Return the report's sha256 as a run record says it, None when it says none."""
    if record and record.report:
        sha256 = record.report.sha256
    else:
        sha256 = None
    if sha256 and re.fullmatch("[0-9a-f]{64}", sha256):
        return sha256
    return None


def get_declared_work(record: Record | None, launch_count: int) -> dict[MetricName, float]:
    """Return what the workload needs by its problem.py, as catalogue metrics.

    Only where one launch is the whole workload: of several, none answers for all of it.
    """
    if launch_count != 1 or record is None:
        return {}
    work = record.work
    needs = {
        "declared_operations": work.operations,
        "declared_bytes": work.compulsory_bytes,
        "declared_exps": work.exponentials,
    }
    declared_work = {}
    for metric, number in needs.items():
        if number is not None:
            declared_work[metric] = float(number)
    return declared_work


def write_record(path: Path, record: Record) -> None:
    """Write a record whole or not at all; numbers that are no numbers become null."""
    write_text(path, json.dumps(record.to_json(), indent=1) + "\n")


def amend_record(record: Record) -> None:
    """Write a record over the file it was read from: only what was changed since is other there."""
    before = read_record(record.path)
    document = amend_document(read_json(record.path), before.to_json(), record.to_json())
    write_text(record.path, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True)
class SourceFile:
    """One variant's file as it is today."""

    header: VariantHeader  # what its header says
    sha256: str  # hash of the code under it, as in the record
    file: str = ""  # problem/name.cu


class RefreshedRecord(NamedTuple):
    """A record with today's header, and whether its code has changed since it was made."""

    record: Record
    is_stale: bool


def refresh_header_from_source(record: Record, files: Mapping[str, SourceFile]) -> RefreshedRecord:
    """Return the record with what its file (of problem/variant) says today, and whether it is stale.

    A record keeps what the header said when it was made. Prose and predictions are corrected after
    the counters have spoken, and then what the file says counts; with other code, the run is stale.
    """
    today = files.get(f"{record.problem}/{record.variant}")
    if today is None or record.source_hash is None:
        return RefreshedRecord(record, is_stale=False)
    if record.is_stale(today.sha256):
        return RefreshedRecord(record, is_stale=True)
    return RefreshedRecord(structs.replace(record, header=today.header), is_stale=False)


def suggest_run_command(
    variant: VariantName, case: str | None = None, verb: str = "profile"
) -> CommandText:
    """Return the command that records a variant again."""
    return f"profkit {verb} --variant {variant}" + (f" --case {case}" if case else "")
