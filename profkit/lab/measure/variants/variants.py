"""A folder of kernels  ->  variants in ladder order. There is no list anywhere.

Folder = problem, file name = `<id>_<words>` and the suffix of its language
(profkit/lab/measure/languages), header = the rest.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.evidence.moves import parse_expected_changes
from profkit.files import (
    get_current_folder,
    is_file,
    is_folder,
    list_files_below,
    list_folder_entries,
    resolve_path,
)
from profkit.lab.measure.languages import language
from profkit.lab.measure.languages.cuda import LANGUAGE as CUDA
from profkit.lab.measure.languages.language import Language
from profkit.lab.measure.variants import tunables
from profkit.records import header
from profkit.records.header import Budget, VariantHeader
from profkit.records.store import Read

if TYPE_CHECKING:
    from profkit.units import Sha256, SmArch


_ID = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


@dataclass(frozen=True)
class Variant:
    """One way to compute a problem: a source file with its header."""

    id: str  # what `--variant` takes: the file name up to the first underscore
    problem: str  # the name of the folder, which holds problem.py
    path: Path
    header: VariantHeader
    # macro -> value, on top of what the file says (tuning)
    defines: Mapping[str, str] = field(default_factory=dict)
    language: Language = CUDA

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags that its compiler is given."""
        return self.language.flags(self.header, self.defines)

    @property
    def budget(self) -> Budget:
        """Return the limits that its header sets."""
        return header.parse_budget_limits(self.header.budget, self.path.name)

    @functools.cached_property
    def space(self) -> tunables.Space:
        """Return the values of its macros that are tried in tuning."""
        return tunables.read_tunable_space(self.header, self.path)

    @functools.cached_property
    def source_hash(self) -> Sha256:
        """Return sha256 of the code of the file and of every header it includes."""
        return self.language.code_hash(self.path, self.header.keys)

    def choose_compile_target_for(self, arch: SmArch) -> str | None:
        """Return the compile target for `90`: `90`, `90a`, or None if the header rules it out."""
        return header.choose_compile_target(self.header.arch, arch, self.path.name)

    def with_tunables(self, **defines: str) -> Variant:
        """Return the same file built with other values of its tunables."""
        for macro, value in defines.items():
            if value not in self.space.values.get(macro, ()):
                raise ProfkitError(
                    f"{self.path.name} does not declare {macro}={value}",
                    f"its header would say so: tune: {macro}={value}",
                )
        return replace(self, defines={**self.defines, **defines})


def find_kernels_dir(kernels_option: str | Path | None = None) -> Path:
    """Return --kernels, PROFKIT_KERNELS, the next kernels/ upwards, or the checkout's."""
    named = kernels_option or os.environ.get("PROFKIT_KERNELS")
    if named:
        if not is_folder(Path(named)):
            if kernels_option:
                flag = "--kernels"
            else:
                flag = "PROFKIT_KERNELS"
            raise ProfkitError(f"{flag} {named}: no such folder", "it holds one folder per problem")
        return resolve_path(Path(named))
    here = get_current_folder()
    above = [folder / "kernels" for folder in (here, *here.parents)]
    for folder in (*above, Path(__file__).resolve().parents[4] / "kernels"):
        if is_file(folder / "common" / "variant.cuh"):
            return resolve_path(folder)
    raise ProfkitError(
        f"no kernels/ folder in {here} or above it",
        "say where it is with --kernels DIR or PROFKIT_KERNELS",
    )


def read_all_variants(kernels_folder: Path, only_problem: str | None = None) -> list[Variant]:
    """Return all variants in ladder order by problem; ProfkitError if a header is wrong."""
    found, problems = read_valid_variants(kernels_folder, only_problem)
    if problems:
        raise problems[0]
    return found


def read_valid_variants(kernels: Path, only_problem: str | None = None) -> Read[list[Variant]]:
    """Return the variants that can be read, in ladder order, and what is wrong with the others."""
    variants: list[Variant] = []
    problems: list[ProfkitError] = []
    for folder in _list_problem_folders(kernels, only_problem):
        readable = []
        for path in language.list_kernel_files_below(folder):
            try:
                readable.append(read_variant(path))
            except ProfkitError as error:
                problems.append(error)
        try:
            variants += _sort_below_parents(readable)
        except ProfkitError as error:  # `after:` leads nowhere: in the order of the files
            problems.append(error)
            variants += readable
    return Read(variants, problems)


def _list_problem_folders(kernels: Path, problem: str | None) -> list[Path]:
    folders = []
    for d in sorted(list_folder_entries(kernels)):
        if is_folder(d) and d.name != "common":
            folders.append(d)
    chosen = []
    for d in folders:
        if problem in (None, d.name):
            chosen.append(d)
    if not chosen and problem is not None:
        there = []
        for d in folders:
            if language.list_kernel_files_below(d):
                there.append(d.name)
        raise ProfkitError(
            f"{kernels} has no problem '{problem}'", f"there are: {', '.join(there) or 'none'}"
        )
    return chosen


def find_named_variants(kernels_folder: Path, variant_names: Sequence[str]) -> list[Variant]:
    """Return the variants of names such as `stage2` or `attention/stage2`.

    Other files are read only to say what there is instead.
    """
    ids = {name.rpartition("/")[2] for name in variant_names}
    matching = []
    for file in list_files_below(kernels_folder)[0]:
        folders = file.relative_to(kernels_folder).parts[:-1]
        is_one = file.stem.split("_", 1)[0] in ids and folders and folders[0] != "common"
        if is_one and language.is_kernel_file(file):
            matching.append(read_variant(file))
    try:
        return [select_variant_by_id(matching, name) for name in variant_names]
    except ProfkitError:
        known = read_all_variants(kernels_folder)
        return [select_variant_by_id(known, name) for name in variant_names]


def find_problem_folder_of_kernel(path: Path) -> Path:
    """Return the nearest folder above a kernel with a problem.py; else the kernel's own folder."""
    above = resolve_path(path).parents
    for d in above:
        if is_file(d / "problem.py"):
            return d
    return above[0]


def read_variant(path: Path) -> Variant:
    """Read a variant from its file; raise ProfkitError where its name or header is wrong."""
    text = language.read_source(path)
    written_in = language.detect_language_of_kernel(path, text) or CUDA
    name = path.stem.split("_", 1)[0]
    if not _ID.fullmatch(name):
        raise ProfkitError(
            f"{path}: '{name}' is not an id",
            f"name the file <id>_<words>{path.suffix}, with letters and digits in the id",
        )
    head = written_in.header(text, path.name)
    variant = Variant(
        name,
        find_problem_folder_of_kernel(path).name,
        resolve_path(path),
        head,
        language=written_in,
    )
    if len(header.split_into_ids(head.keys.get("after", ""))) > 1:
        raise ProfkitError(f"{path.name}: 'after:' names more than one variant", "name one")
    parse_expected_changes(" ".join((*head.moves, *head.moves_not)), path.name)
    _ = (
        variant.budget,
        variant.space,
        variant.choose_compile_target_for("90"),
    )  # a bad value is an error now
    return variant


def _sort_below_parents(variants: Iterable[Variant]) -> list[Variant]:
    """Order the variants of one problem so that each stands below the one it comes after."""
    by_id: dict[str, Variant] = {}
    for v in variants:
        if v.id in by_id:
            raise ProfkitError(
                f"{v.path.name} and {by_id[v.id].path.name} are both variant '{v.id}'",
                "rename one: the id is the file name up to the first underscore",
            )
        by_id[v.id] = v
    children: dict[str | None, list[Variant]] = {}
    for v in sorted(by_id.values(), key=lambda v: _make_natural_sort_key(v.id)):
        if v.header.after is not None and v.header.after not in by_id:
            folder = find_problem_folder_of_kernel(v.path)
            raise ProfkitError(
                f"{v.path.name}: 'after: {v.header.after}' names no variant in {folder}",
                f"there are: {', '.join(by_id) or 'none'}",
            )
        children.setdefault(v.header.after, []).append(v)
    _refuse_circular_order(by_id)
    ordered: list[Variant] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        ordered.append(waiting.pop())
        waiting += children.get(ordered[-1].id, [])[::-1]
    return ordered


def _refuse_circular_order(by_id: Mapping[str, Variant]) -> None:
    """Fail if `after:` leads back to where it came from."""
    from graphlib import CycleError, TopologicalSorter

    graph = {}
    for v in by_id.values():
        graph[v.id] = [v.header.after] if v.header.after else []
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        files = " -> ".join(by_id[i].path.name for i in error.args[1])
        raise ProfkitError(
            f"'after:' goes round in a circle: {files}", "let one of them come after none"
        ) from error


def select_variant_by_id(variants: Iterable[Variant], name: str) -> Variant:
    """Return the variant of an id, or of a problem and an id: `gemm/3`."""
    known = list(variants)
    matching = []
    for v in known:
        if name in (v.id, f"{v.problem}/{v.id}"):
            matching.append(v)
    if len(matching) == 1:
        return matching[0]
    if matching:
        which = " or ".join(f"{v.problem}/{v.id}" for v in matching)
        raise ProfkitError(f"--variant {name} is in two problems", f"say {which}")
    raise ProfkitError(
        f"--variant {name}: no such variant",
        suggest_nearest_names(name, (v.id for v in known), "profkit list shows them"),
    )


def _make_natural_sort_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which stage2 comes before stage10."""
    key = []
    for word in re.split(r"(\d+)", text):
        if word.isdecimal():
            key.append((0, int(word), ""))
        elif word:
            key.append((1, 0, word))
    return key
