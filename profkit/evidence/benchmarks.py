"""Results of other benchmark tools  ->  samples by benchmark, in seconds, and a gate on two of them.

nvbench       --jsonbin FILE: a file of samples per state beside the JSON
pytest        --benchmark-json FILE (pytest-benchmark)
Google        --benchmark_out=FILE --benchmark_repetitions=20: each repetition is a sample
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from sys import byteorder
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence import stats
from profkit.evidence.compare import STRICT, SpreadBetweenProcesses
from profkit.evidence.gate import (
    GateReport,
    GateSubject,
    judge_time_comparison,
    make_gate_report,
    make_unpaired_subject,
)
from profkit.files import (
    TEXT_LIMIT,
    is_path_there,
    read_bytes,
    read_json_or_toml_bytes,
    resolve_path,
)

if TYPE_CHECKING:
    from profkit.units import Seconds


TIMES = "nv/json/bin:nv/cold/sample_times"  # the summary of nvbench that names a file of samples
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TAKES = "give two results of nvbench (--jsonbin), pytest-benchmark or Google Benchmark"
MORE = {
    "nvbench": "run it with --jsonbin FILE",
    "pytest-benchmark": "run it with --benchmark-json FILE",
    "Google Benchmark": "run it with --benchmark_repetitions=20",
}


@dataclass
class BenchmarkRun:
    """One benchmark with one set of parameters: where it ran, and seconds in the order taken."""

    machine: str  # empty where the tool does not say
    samples: Sequence[float] = ()
    failed: int = 0  # how many of its runs ended with an error


@dataclass
class BenchmarkFile:
    """What a tool measured."""

    tool: str
    runs: dict[str, BenchmarkRun] = field(default_factory=dict)


class PytestStats(msgspec.Struct):
    """The times of one test's rounds, in seconds."""

    data: list[float] = []


class PytestBenchmark(msgspec.Struct):
    """One test of a file of pytest-benchmark."""

    fullname: str
    stats: PytestStats


class PytestCpu(msgspec.Struct):
    """The processor's name."""

    brand_raw: str = ""


class PytestMachine(msgspec.Struct):
    """The machine that the tests ran on."""

    cpu: PytestCpu = msgspec.field(default_factory=PytestCpu)
    machine: str = ""


class PytestFile(msgspec.Struct):
    """A file that `pytest --benchmark-json` writes."""

    machine_info: PytestMachine
    benchmarks: list[PytestBenchmark]


class GoogleContext(msgspec.Struct):
    """The machine that the benchmarks ran on."""

    num_cpus: int = 0


class GoogleBenchmark(msgspec.Struct):
    """One repetition, or one statistic of several, in `time_unit`."""

    name: str
    run_name: str = ""
    run_type: str = "iteration"
    real_time: float = nan
    time_unit: str = "ns"
    error_occurred: bool = False


class GoogleFile(msgspec.Struct):
    """A file that `--benchmark_format=json` of Google Benchmark writes."""

    context: GoogleContext
    benchmarks: list[GoogleBenchmark]


class NvbenchValue(msgspec.Struct):
    """A value of a summary; nvbench writes all of them as text."""

    name: str
    value: str | None = None


class NvbenchSummary(msgspec.Struct):
    """One measured quantity of a state, by its tag."""

    tag: str
    data: list[NvbenchValue] = []


class NvbenchState(msgspec.Struct):
    """A benchmark at one point of its axes, on one device."""

    name: str
    device: int | None = None
    summaries: list[NvbenchSummary] | None = None
    is_skipped: bool = False


class NvbenchBenchmark(msgspec.Struct):
    """A benchmark with its states."""

    name: str
    states: list[NvbenchState]


class NvbenchDevice(msgspec.Struct):
    """A GPU of the machine, by its CUDA number."""

    id: int
    name: str


class NvbenchFile(msgspec.Struct):
    """A file that `--json` of nvbench writes."""

    devices: list[NvbenchDevice]
    benchmarks: list[NvbenchBenchmark]


def read_benchmarks(path: Path) -> BenchmarkFile:
    """Read a result of nvbench, pytest-benchmark or Google Benchmark, told by its keys.

    Raises:
        ProfkitError: It is none of these, or has another form: where in it is said.
    """
    try:
        content = msgspec.json.decode(read_json_or_toml_bytes(path))
        keys = set(content) if isinstance(content, dict) else set()
        if {"machine_info", "benchmarks"} <= keys:
            return convert_pytest_benchmarks(msgspec.convert(content, PytestFile))
        if {"context", "benchmarks"} <= keys:
            return convert_google_benchmarks(msgspec.convert(content, GoogleFile))
        if {"devices", "benchmarks"} <= keys:
            return read_nvbench_cold_times(msgspec.convert(content, NvbenchFile), path)
    except FileNotFoundError as error:
        raise ProfkitError(f"{path}: no such file", TAKES) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ProfkitError(f"{path}: not a benchmark's result: {error}", TAKES) from error
    raise ProfkitError(f"{path}: not a benchmark's result", TAKES)


def convert_pytest_benchmarks(content: PytestFile) -> BenchmarkFile:
    """Return the rounds of each test; a round is the mean of its iterations."""
    machine = content.machine_info.cpu.brand_raw or content.machine_info.machine
    found = BenchmarkFile("pytest-benchmark")
    for benchmark in content.benchmarks:
        found.runs[benchmark.fullname] = BenchmarkRun(machine, benchmark.stats.data)
    return found


def convert_google_benchmarks(content: GoogleFile) -> BenchmarkFile:
    """Return the repetitions of each benchmark, without aggregates; runs with errors are counted."""
    machine = ""
    if content.context.num_cpus:
        machine = f"{content.context.num_cpus} processors"
    found = BenchmarkFile("Google Benchmark")
    samples: dict[str, list[float]] = {}
    for row in content.benchmarks:
        if row.run_type != "iteration":
            continue
        name = row.run_name or row.name
        run = found.runs.setdefault(name, BenchmarkRun(machine))
        if row.error_occurred:
            run.failed += 1
        elif row.time_unit in SECONDS:
            samples.setdefault(name, []).append(row.real_time * SECONDS[row.time_unit])
        else:
            raise ValueError(f"{row.name}: no such time_unit: {row.time_unit}")
    for name, taken in samples.items():
        found.runs[name].samples = taken
    return found


def read_nvbench_cold_times(content: NvbenchFile, path: Path) -> BenchmarkFile:
    """Return the cold times of each state; they lie in files beside the JSON."""
    devices: dict[int | None, str] = {device.id: device.name for device in content.devices}
    found = BenchmarkFile("nvbench")
    read: set[Path] = set()
    for benchmark in content.benchmarks:
        for state in benchmark.states:
            if state.is_skipped:
                continue
            run = BenchmarkRun(devices.get(state.device, ""))
            for summary in state.summaries or ():
                if summary.tag == TIMES:
                    run.samples = read_nvbench_sample_file(summary, path, read)
            found.runs[f"{benchmark.name} [{state.name}]"] = run
    return found


def read_nvbench_sample_file(
    summary: NvbenchSummary, path: Path, files_already_read: set[Path]
) -> array[Seconds]:
    """Return the samples of a file of nvbench: 32-bit floats, seconds, little endian.

    Its name is relative to the JSON, or to where an older nvbench ran: the folder of that name beside
    the JSON is meant. Nothing outside of the JSON's folder is read, and no file twice:
    `files_already_read` are those of the states before.
    """
    values = {}
    for value in summary.data:
        values[value.name] = value.value or ""
    named = Path(values.get("filename", ""))
    folder = resolve_path(path.parent)
    for place in (folder / named, folder / f"{path.name}-bin" / named.name):
        file = resolve_path(place)
        if file.is_relative_to(folder) and named.name and is_path_there(file):
            if file in files_already_read:
                raise ValueError(f"{named}: the samples of more than one state")
            files_already_read.add(file)
            samples = array("f", read_bytes(file, TEXT_LIMIT))
            if byteorder == "big":
                samples.byteswap()
            if str(len(samples)) != values.get("size"):
                raise ValueError(f"{named}: {len(samples)} samples, not {values.get('size')}")
            return samples
    raise ValueError(f"{named}: no such file of samples next to it")


def judge_benchmarks(base_file: Path, head_file: Path, strict: bool = False) -> GateReport:
    """Return what moved from one result to another.

    Raises:
        ProfkitError: One cannot be read, or they are of two tools.
    """
    before = read_benchmarks(base_file)
    after = read_benchmarks(head_file)
    if before.tool != after.tool:
        raise ProfkitError(f"{base_file} is of {before.tool}, {head_file} of {after.tool}", TAKES)
    if not before.runs and not after.runs:
        raise ProfkitError(f"{base_file} and {head_file}: no benchmark in either", TAKES)
    subjects = []
    for name in sorted({*before.runs, *after.runs}):
        subjects.append(judge_benchmark(name, before.runs, after.runs, before.tool))
    return make_gate_report(subjects, strict=strict)


def judge_benchmark(
    name: str,
    base_run_by_name: Mapping[str, BenchmarkRun],
    head_run_by_name: Mapping[str, BenchmarkRun],
    tool: str,
) -> GateSubject:
    """Return the answer on one benchmark, as on a variant whose code has changed."""
    if name not in base_run_by_name or name not in head_run_by_name:
        return make_unpaired_subject(name, is_in_base=name in base_run_by_name)
    before = base_run_by_name[name]
    after = head_run_by_name[name]
    unjudged = _make_unjudged_subject(name, before, after, tool)
    if unjudged:
        return unjudged
    try:
        time = stats.compare_samples(
            before.samples, after.samples, taken="apart", thresholds=STRICT.thresholds
        )
    except ProfkitError as error:
        return GateSubject(name=name, answer="no time", because=error.message)
    judged = judge_time_comparison(name, time, min(len(before.samples), len(after.samples)), STRICT)
    assumed = SpreadBetweenProcesses(sigma=STRICT.thresholds.process_spread)
    return structs.replace(judged, between_processes=assumed)


def _make_unjudged_subject(
    name: str, before: BenchmarkRun, after: BenchmarkRun, tool: str
) -> GateSubject | None:
    """Return why two runs do not compare: machines, failures, no samples; None where they do."""
    if before.machine != after.machine:
        unknown = "an unknown machine"
        because = f"measured on {before.machine or unknown}, then on {after.machine or unknown}"
        return GateSubject(name=name, answer="cannot tell", because=because, cause="machine")
    for side, run in (("BASE", before), ("HEAD", after)):
        if run.failed:
            because = f"{run.failed} of its runs failed in {side}"
            return GateSubject(name=name, answer="no time", because=because)
    if not before.samples or not after.samples:
        because = f"no samples of {'HEAD' if before.samples else 'BASE'}: {MORE[tool]}"
        return GateSubject(name=name, answer="no time", because=because)
    return None
