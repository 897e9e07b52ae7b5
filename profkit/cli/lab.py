"""What the command line takes of the lab besides its verbs: where kernels are, what headers say."""

from __future__ import annotations

from pathlib import Path

from profkit.files import resolve_path
from profkit.lab.measure.variants.variants import find_kernels_dir, find_variants, scan_variants
from profkit.records.record import SourceFile


def find_kernels(given: Path | None = None) -> Path:
    """Return the folder of problems: as it was given, or the nearest."""
    return find_kernels_dir(given)


def read_headers(kernels: Path) -> dict[str, SourceFile]:
    """Return problem/variant -> its file; ProfkitError if a header is wrong."""
    files = {}
    for variant in find_variants(kernels):
        path = variant.path.relative_to(resolve_path(kernels)).as_posix()
        file = SourceFile(variant.header, variant.source_hash, path)
        files[f"{variant.problem}/{variant.id}"] = file
    return files


def read_hashes(kernels: Path) -> dict[str, str]:
    """Return problem/variant -> the hash of its code, of the variants that can be read."""
    readable, _ = scan_variants(kernels)
    return {f"{variant.problem}/{variant.id}": variant.source_hash for variant in readable}


def list_titles(kernels: Path) -> dict[str, str]:
    """Return variant -> its title, of the variants that can be read."""
    readable, _ = scan_variants(kernels)
    return {variant.id: variant.header.title for variant in readable}
