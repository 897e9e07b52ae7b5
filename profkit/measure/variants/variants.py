"""A folder of .cu files  ->  variants in ladder order. There is no list anywhere.

Folder = problem, file name = `<id>_<words>.cu`, header comment = the rest. The C interface is
kernels/common/variant.cuh; Args mirrors its struct.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.evidence.predictions.moves import Move
from profkit.evidence.predictions.moves import parse as parse_moves
from profkit.measure.variants import tunables
from profkit.measure.variants.tunables import Space
from profkit.records import header
from profkit.records import source_hash as source
from profkit.records.header import Budget

_ID = re.compile(r"[A-Za-z][A-Za-z0-9-]*")


class Args(ctypes.Structure):
    """ProfkitArgs of kernels/common/variant.cuh: what a variant's one C function is given."""

    _fields_ = (
        ("input", ctypes.c_void_p * 4),
        ("out", ctypes.c_void_p * 2),
        ("size", ctypes.c_longlong * 6),
        ("stride", ctypes.c_longlong * 6),
        ("scale", ctypes.c_float),
        ("causal", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Variant:
    """One .cu file and what its header says.

    Attributes:
        id: What `--variant` takes: the file name up to the first underscore.
        problem: The name of the folder, which holds problem.py.
        path: The file.
        title: First line of the header.
        text: Free text of the header.
        keys: Keys of the header as written; see header.KEYS.
        defines: Macro -> value, on top of what the file says (tuning).
    """

    id: str
    problem: str
    path: Path
    title: str
    text: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)

    @property
    def after(self) -> str | None:
        """The id of the variant that this one changes."""
        parents = header.words(self.keys.get("after", ""))
        return parents[0] if parents else None

    @property
    def fixes(self) -> tuple[str, ...]:
        """Rules that fire for `after` and are clear here."""
        return header.words(self.keys.get("fixes", ""))

    @property
    def fixes_not(self) -> tuple[str, ...]:
        """Rules that this variant was meant to clear and provably does not."""
        return header.words(self.keys.get("fixes-not", ""))

    @property
    def moves(self) -> tuple[Move, ...]:
        """What the counters will do against `after`."""
        return parse_moves(self.keys.get("moves", ""), self.path.name)

    @property
    def moves_not(self) -> tuple[Move, ...]:
        """What they were meant to do and provably do not."""
        return parse_moves(self.keys.get("moves-not", ""), self.path.name)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for nvcc: those of the header, then one -D for each of defines."""
        defines = (f"-D{k}={v}" for k, v in sorted(self.defines.items()))
        return (*self.keys.get("flags", "").split(), *defines)

    @property
    def budget(self) -> Budget:
        """What ptxas may use at most."""
        return header.budget(self.keys.get("budget", ""), self.path.name)

    @functools.cached_property
    def space(self) -> Space:
        """The tunables of the header: values, conditions, what they take and where to steer."""
        return tunables.read(self.keys, self.path)

    @functools.cached_property
    def source_hash(self) -> str:
        """sha256 of the code of the file and of every header it includes: see source.code_hash."""
        return source.code_hash(self.path, self.keys)

    def target(self, arch: str) -> str | None:
        """The compile target for `90`: `90`, `90a`, or None if the header rules it out."""
        return header.target(self.keys.get("arch"), arch, self.path.name)

    def tuned(self, **defines: str) -> Variant:
        """The same file built with other values of its tunables."""
        for macro, value in defines.items():
            if value not in self.space.values.get(macro, ()):
                raise ProfkitError(
                    f"{self.path.name} does not declare {macro}={value}",
                    f"its header would say so: tune: {macro}={value}",
                )
        return replace(self, defines={**self.defines, **defines})


def kernels_dir(given: str | Path | None = None) -> Path:
    """The folder of problems: --kernels, PROFKIT_KERNELS, ./kernels upwards, then the checkout's.

    Args:
        given: What --kernels said; None if it was not given.
    """
    named = given or os.environ.get("PROFKIT_KERNELS")
    if named:
        if not Path(named).is_dir():
            flag = "--kernels" if given else "PROFKIT_KERNELS"
            raise ProfkitError(f"{flag} {named}: no such folder", "it holds one folder per problem")
        return Path(named).resolve()
    here = Path.cwd()
    for folder in (*(d / "kernels" for d in (here, *here.parents)), _beside_the_package()):
        if (folder / "common" / "variant.cuh").is_file():
            return folder.resolve()
    raise ProfkitError(
        f"no kernels/ folder in {here} or above it",
        "say where it is with --kernels DIR or PROFKIT_KERNELS",
    )


def _beside_the_package() -> Path:
    return Path(__file__).resolve().parents[3] / "kernels"


def find(kernels: Path, problem: str | None = None) -> list[Variant]:
    """All variants under a folder of problems, in ladder order problem by problem.

    Args:
        kernels: The folder of problems.
        problem: Only this one.
    """
    folders = [d for d in sorted(kernels.iterdir()) if d.is_dir() and d.name != "common"]
    if problem is not None:
        folders = [d for d in folders if d.name == problem]
        if not folders:
            there = sorted(d.name for d in kernels.iterdir() if any(d.glob("*.cu")))
            raise ProfkitError(
                f"{kernels} has no problem '{problem}'", f"there are: {', '.join(there) or 'none'}"
            )
    return [v for d in folders for v in ladder(read(p) for p in sorted(d.glob("*.cu")))]


def named(kernels: Path, names: Sequence[str]) -> list[Variant]:
    """The variants of these names; other files are read only to say what there is instead.

    Args:
        kernels: The folder of problems.
        names: `stage2` or `attention/stage2`.
    """
    ids = {name.rpartition("/")[2] for name in names}
    files = [f for f in sorted(kernels.glob("*/*.cu")) if f.stem.split("_", 1)[0] in ids]
    found = [read(f) for f in files if f.parent.name != "common"]
    try:
        return [select(found, name) for name in names]
    except ProfkitError:
        known = find(kernels)
        return [select(known, name) for name in names]


def read(path: Path) -> Variant:
    """One .cu file  ->  Variant."""
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfkitError(f"cannot read {path}: {error}") from error
    name = path.stem.split("_", 1)[0]
    if not _ID.fullmatch(name):
        raise ProfkitError(
            f"{path}: '{name}' is no id",
            "name the file <id>_<words>.cu, with letters and digits in the id",
        )
    head = header.parse(source, path.name)
    variant = Variant(name, path.parent.name, path.resolve(), head.title, head.text, head.keys)
    if len(header.words(head.keys.get("after", ""))) > 1:
        raise ProfkitError(f"{path.name}: 'after:' names more than one variant", "name one")
    _ = (
        variant.budget,
        variant.space,
        variant.moves,
        variant.moves_not,
        variant.target("90"),
    )  # a bad value is an error now
    return variant


def ladder(variants: Iterable[Variant]) -> list[Variant]:
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
    for v in sorted(by_id.values(), key=lambda v: _natural(v.id)):
        if v.after is not None and v.after not in by_id:
            raise ProfkitError(
                f"{v.path.name}: 'after: {v.after}' names no variant in {v.path.parent}",
                f"there are: {', '.join(by_id) or 'none'}",
            )
        children.setdefault(v.after, []).append(v)
    ordered: list[Variant] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        ordered.append(waiting.pop())
        waiting += children.get(ordered[-1].id, [])[::-1]
    lost = by_id.keys() - {v.id for v in ordered}
    if lost:
        files = ", ".join(by_id[i].path.name for i in sorted(lost, key=_natural))
        raise ProfkitError(f"'after:' goes round in a circle: {files}")
    return ordered


def select(variants: Iterable[Variant], name: str) -> Variant:
    """The variant called `stage2` or `attention/stage2`."""
    known = list(variants)
    found = [v for v in known if name in (v.id, f"{v.problem}/{v.id}")]
    if len(found) == 1:
        return found[0]
    if found:
        which = " or ".join(f"{v.problem}/{v.id}" for v in found)
        raise ProfkitError(f"--variant {name} is in two problems", f"say {which}")
    raise ProfkitError(
        f"--variant {name}: no such variant",
        f"there are: {', '.join(v.id for v in known) or 'none'}",
    )


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A sort key by which stage2 comes before stage10."""
    return [(0, int(w), "") if w.isdecimal() else (1, 0, w) for w in re.split(r"(\d+)", text) if w]
