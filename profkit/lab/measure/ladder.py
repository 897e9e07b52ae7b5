"""The variants on disk  ->  rows for list and build: what is compiled, recorded, stale, too big."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from profkit.collect.process import make_thread_pool
from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.lab.measure.cuda.resources import KernelResources
from profkit.lab.measure.targets import LabFolders
from profkit.lab.measure.variants import build, dry, variants
from profkit.lab.measure.variants.build import Build
from profkit.lab.measure.variants.variants import Variant
from profkit.records.parts import RecordedSource
from profkit.records.paths import find_all_run_files
from profkit.records.record import Record, amend_record, read_record
from profkit.records.store import Document, JsonObject, Read
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import CaseName, KernelName, SmArch, VariantName


class BuildEntry(Document, frozen=True, kw_only=True):
    """One build and what its launcher would start; null where not known."""

    variant: str = ""
    arch: str = ""
    seconds: float = 0.0
    kernels: tuple[KernelResources, ...] = ()
    # case -> launches; None where that is not known
    launches: Mapping[str, Sequence[GraphLaunch]] | None = None
    flags: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    source: str = ""
    sass: str | None = None
    host: str | None = None
    error: str | None = None
    over_budget: tuple[str, ...] = ()  # what it takes over its header's budget


class BuildDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.build/1"):
    """What `profkit check --build-only --json` prints."""

    builds: tuple[BuildEntry, ...] = ()


@dataclass(frozen=True)
class CompiledVariant:
    """One build and what its launcher would start."""

    build: Build
    # case -> launches; None where that is not known
    launches: Mapping[str, Sequence[GraphLaunch]] | None
    over_budget: tuple[str, ...]  # what it takes over its header's budget

    @property
    def variant(self) -> str:
        """Return the id of the variant."""
        return self.build.variant.id

    def describe_build(self) -> BuildEntry:
        """Return the build as an entry of a document."""
        build = self.build
        return BuildEntry(
            variant=build.variant.id,
            arch=build.arch,
            seconds=build.seconds,
            kernels=build.kernels,
            launches=self.launches,
            flags=build.flags,
            warnings=build.warnings,
            source=build.source,
            sass=build.sass,
            host=build.host,
            error=build.error or None,
            over_budget=self.over_budget,
        )

    def list_kernel_rows(self) -> list[JsonObject]:
        """Return one row per kernel function, for a table."""
        largest = _find_most_dynamic_shared(self.launches)
        same = {"variant": self.variant, "arch": self.build.arch, "seconds": self.build.seconds}
        rows = []
        for kernel in self.build.kernels:
            launch = largest.get(kernel.name)
            taken = {
                "dynamic": launch.dynamic_smem if launch else None,
                "blocks_per_sm": launch.blocks_per_sm if launch else None,
            }
            rows.append(
                {**asdict(kernel), "kernel": get_base_name_of_kernel(kernel.name), **same, **taken}
            )
        return rows


@dataclass(frozen=True)
class ListedVariant:
    """A variant of the ladder."""

    variant: str
    problem: str
    after: str | None  # the id of the variant that it changes
    title: str
    file: str
    built: bool  # whether this text is compiled for any architecture
    recorded: Mapping[str, str]  # case -> ok, stale or unreadable
    missing: str = ""  # what this machine lacks to compile and run it; empty: nothing


class ListDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.list/1"):
    """What `profkit list --json` prints."""

    variants: tuple[ListedVariant, ...] = ()


def list_variant_states(
    places: LabFolders, problem: str | None = None
) -> Read[list[ListedVariant]]:
    """Return every variant in ladder order, problem by problem; and what cannot be read."""
    records = _find_records_by_variant(places.artifacts_dir())
    found, problems = variants.read_valid_variants(places.kernels_dir(), problem)
    rows = []
    for variant in found:
        rows.append(
            ListedVariant(
                variant=variant.id,
                problem=variant.problem,
                after=variant.header.after,
                title=variant.header.title,
                file=str(variant.path),
                built=build.has_build_of_current_source(variant, places.build_dir()),
                recorded=_list_record_states(variant, records.get(variant.id, ())),
                missing=variant.language.lacking(),
            )
        )
    return Read(rows, problems)


def _list_record_states(
    variant: Variant, records: Iterable[tuple[Path, CaseName]]
) -> dict[CaseName, str]:
    """Return case -> how its record stands to today's source."""
    states: dict[str, str] = {}
    for path, case in records:
        try:
            record = read_record(path)
        except ProfkitError:
            states[case] = "unreadable"
            continue
        if record.problem == variant.problem:
            if record.is_stale(variant.source_hash):
                states[record.case] = "stale"
            else:
                states[record.case] = "ok"
    return states


def _find_records_by_variant(
    artifacts_folder: Path,
) -> dict[VariantName, list[tuple[Path, CaseName]]]:
    """Return variant -> its run records, each with its case, of whichever problem."""
    records: dict[str, list[tuple[Path, str]]] = {}
    for (variant, case), several in find_all_run_files(artifacts_folder).items():
        for files in several:
            if files.record:
                records.setdefault(variant, []).append((files.record, case))
    return records


@dataclass(frozen=True)
class Refreshed:
    """Which records were written anew."""

    written: tuple[Path, ...]
    # stale ones of the same kernels, whose launcher is another or is not known
    unknown: tuple[Path, ...]


def refresh_records_by_code(
    places: LabFolders, compiled_variants: Sequence[CompiledVariant]
) -> Refreshed:
    """Let records of the very machine code that was just built follow today's source.

    A change that leaves the machine code as it is (a header that moved, a refactoring) makes a
    record stale by its source although what was measured is what the source still gives. Each keeps
    the hash that it was made with; one without the launcher's hash, or with that of another host
    compiler, gets it while its source is today's, so that it can follow the next change.
    """
    builds = [compiled.build for compiled in compiled_variants]
    today = {}
    for b in builds:
        if b.sass:
            today[f"{b.variant.id} {b.arch} {b.sass}"] = b
    written = []
    unknown = []
    records = _find_records_by_variant(places.artifacts_dir()).values()
    for path, _ in itertools.chain.from_iterable(records):
        try:
            record = read_record(path)
        except ProfkitError:
            continue  # list names it
        source = record.known_source
        same = today.get(f"{record.variant} {source.arch} {source.sass}")
        if same is None:
            continue
        if not record.code_identity.is_surely_same(same.code_identity):
            if record.is_stale(same.source):
                unknown += [path]
            continue
        followed = _update_source_of_record(record, source, same)
        if followed != record:
            amend_record(followed)
            written.append(path)
    return Refreshed(tuple(written), tuple(unknown))


def _update_source_of_record(record: Record, source: RecordedSource, built: Build) -> Record:
    header = replace(record.header, title=built.variant.header.title)  # it is of the source, too
    if record.is_stale(built.source):
        made_from = source.made_from or source.sha256
        source = structs.replace(source, made_from=made_from, sha256=built.source)
    source = structs.replace(source, host=built.host or source.host)
    return structs.replace(record, header=header, source=source)


def compile_and_check_budgets(
    places: LabFolders, variant_names: Sequence[str], archs: Sequence[SmArch] | None
) -> list[CompiledVariant]:
    """Compile variants and hold them to their budgets.

    No names take all variants; no architectures take that of the GPU present.
    """
    kernels = places.kernels_dir()
    if variant_names:
        chosen = variants.find_named_variants(kernels, variant_names)
    else:
        chosen = variants.read_all_variants(kernels)
    archs = archs or [_find_present_arch()]
    folder = places.build_dir()
    with make_thread_pool() as pool:  # each waits for a program of its own
        stub = pool.submit(dry.compile_driver_stub_once, folder)
        made = build.compile_variants_not_built_yet(chosen, archs, folder)
        stub.result()
        shapes = pool.map(
            lambda b: dry.load_dry_launches_by_case(b, kernels / b.variant.problem), made
        )
        return [_make_compiled_variant(b, shape) for b, shape in zip(made, shapes, strict=True)]


def _find_present_arch() -> SmArch:
    try:
        return device.find_common_arch() or device.query_first_gpu().arch
    except ProfkitError as error:
        raise ProfkitError(
            "no --arch, and no GPU to take it from", "say for what to compile: --arch 90"
        ) from error


def _make_compiled_variant(
    made: Build, launches_by_case: dict[str, list[GraphLaunch]] | None
) -> CompiledVariant:
    dynamic = {}
    for kernel, x in _find_most_dynamic_shared(launches_by_case).items():
        dynamic[kernel] = x.dynamic_smem
    return CompiledVariant(
        made, launches_by_case, tuple(build.describe_budget_excesses(made, dynamic))
    )


def _find_most_dynamic_shared(
    launches: Mapping[CaseName, Sequence[GraphLaunch]] | None,
) -> dict[KernelName, GraphLaunch]:
    """Return kernel -> its launch with the most dynamic shared memory."""
    most: dict[str, GraphLaunch] = {}
    for launch in itertools.chain.from_iterable((launches or {}).values()):
        known = most.get(launch.kernel)
        if known is None or launch.dynamic_smem >= known.dynamic_smem:
            most[launch.kernel] = launch
    return most
