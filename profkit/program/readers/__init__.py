"""A recording of any kind  ->  a Timeline, by what the file is and not by what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from profkit.errors import ProfkitError
from profkit.files import is_file, is_folder
from profkit.program.readers.others import explain_known_kind
from profkit.program.timeline import Timeline
from profkit.records.paths import Beginning, read_beginning

HEAD_BYTES = 4096  # of a file, that tell which unread kind it is
COMPILED = "## Call CompiledFxGraph"  # a whole graph, which is no operator
_LAST = "torch_trace"  # the least strict, which says of what is no recording why it is none
# Files here that are parts of readers: importing them all would make each start slower.
_PARTS = {
    "chrome",
    "frames",
    "gathered",
    "injected",
    "operators",
    "others",
    "places",
    "store",
    "tensors",
}


@dataclass(frozen=True, kw_only=True)
class RecordingKind:
    """A kind of recording. A file of this folder that has one as RECORDING is found by being there."""

    name: str  # as triage lists what it takes
    suffixes: tuple[str, ...]  # how its files' names end
    is_kind: Callable[[Beginning], bool]
    read: Callable[[Path], Timeline]


@cache
def list_recording_kinds() -> tuple[RecordingKind, ...]:
    """Return the RECORDING of each reader here, in the order in which they are asked."""
    names = sorted({module.name for module in iter_modules(__path__)} - {*_PARTS, _LAST})
    modules = [import_module(f"{__name__}.{name}") for name in (*names, _LAST)]
    return tuple(module.RECORDING for module in modules if hasattr(module, "RECORDING"))


def list_suffixes() -> tuple[str, ...]:
    """Return how names of recordings end."""
    return tuple(sorted(suffix for kind in list_recording_kinds() for suffix in kind.suffixes))


def describe_accepted_recordings() -> str:
    """Return what triage takes, as a hint."""
    names = ", ".join(kind.name for kind in reversed(list_recording_kinds()))
    return f"give {names}, a .triage folder, or a folder or zip with one per rank"


def read_timeline(path: Path) -> Timeline:
    """Read a recording of any kind, or a folder that profkit triage has kept.

    Raises:
        ProfkitError: It is none of them, or nothing in it can be judged.
    """
    from profkit.program.readers import store

    if is_folder(path):
        if not is_file(path / store.HEAD):
            raise ProfkitError(
                f"{path}: contains no {store.HEAD}", "name a .triage folder or a trace"
            )
        return store.read_saved_timeline(path)
    try:
        beginning = read_beginning(path)
    except FileNotFoundError as error:
        raise ProfkitError(
            f"{path}: no such file", "for a command: profkit triage -- COMMAND"
        ) from error
    except OSError as error:
        raise ProfkitError(f"{path}: {error.strerror or error}") from error
    if not beginning.head:
        raise ProfkitError(f"{path}: is empty", "copy it again, or record again")
    *kinds, least_strict = list_recording_kinds()
    for kind in kinds:
        if kind.is_kind(beginning):
            return kind.read(path)
    if other := explain_known_kind(path, head=beginning.text[:HEAD_BYTES]):
        raise other
    return least_strict.read(path)
