"""What the command line takes of the lab besides its verbs: where kernels are, what headers say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.files import resolve_path
from profkit.lab.measure.variants.variants import (
    find_kernels_dir,
    read_all_variants,
    read_valid_variants,
)
from profkit.records.record import SourceFile

if TYPE_CHECKING:
    from profkit.units import ProblemAndVariant, Sha256, VariantName


def find_kernels_folder(given: Path | None = None) -> Path:
    """Return the folder of problems: as it was given, or the nearest."""
    return find_kernels_dir(given)


class SourceFiles(Mapping[str, SourceFile]):
    """Problem/variant -> its file, whose code is read when somebody asks for it.

    A comparison asks for two of a hundred.
    """

    def __init__(self, kernels: Path) -> None:
        self._kernels = resolve_path(kernels)
        self._variants = {f"{v.problem}/{v.id}": v for v in read_all_variants(kernels)}

    def __getitem__(self, name: str) -> SourceFile:
        variant = self._variants[name]
        path = variant.path.relative_to(self._kernels).as_posix()
        return SourceFile(variant.header, variant.source_hash, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self._variants)

    def __len__(self) -> int:
        return len(self._variants)


def read_code_hashes(kernels: Path) -> dict[ProblemAndVariant, Sha256]:
    """Return problem/variant -> the hash of its code, of the variants that can be read."""
    readable, _ = read_valid_variants(kernels)
    return {f"{variant.problem}/{variant.id}": variant.source_hash for variant in readable}


def read_variant_titles(kernels: Path) -> dict[VariantName, str]:
    """Return variant -> its title, of the variants that can be read."""
    readable, _ = read_valid_variants(kernels)
    return {variant.id: variant.header.title for variant in readable}
