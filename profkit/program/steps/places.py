"""Works of a step  ->  the line of Python that they come from, in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from profkit.program.timeline import SourcePlace

if TYPE_CHECKING:
    from profkit.units import FileAndLine, ModulePath, Nanoseconds


_SITE = re.compile(r"^.*/(?:site|dist)-packages/")
# Packages through whose frames everything goes: their lines say nothing of a program.
CORE = frozenset(
    "torch triton functorch numpy scipy cupy cupyx jax jaxlib numba numba_cuda cuda nvidia apex "
    "transformer_engine accelerate lightning pytorch_lightning deepspeed".split()
)
# Functions through which every operator goes, or every call of what they decorate.
_PASSING = frozenset({"__torch_function__", "__torch_dispatch__", "wrapper"})
_COMPILED = re.compile(r"inductor[^/]*/\w\w/c\w+\.py$")


class PlaceOfWorks(NamedTuple):
    """Where some works come from, most of their time."""

    place: SourcePlace  # its module's path has a * where the works' modules differ
    others: int  # lines besides this one


def find_main_place(works: Iterable[tuple[SourcePlace | None, Nanoseconds]]) -> PlaceOfWorks | None:
    """Find the line that most of some works' time comes from; None where no line is known.

    Args:
        works: The place of each, and its nanoseconds.
    """
    times: Counter[str] = Counter()
    by_line: dict[str, list[SourcePlace]] = {}
    for place, time in works:
        if place is None or not place.line:
            continue
        times[place.line] += max(1, time)
        by_line.setdefault(place.line, []).append(place)
    if not times:
        return None
    ((line, _),) = times.most_common(1)
    own = by_line[line]
    first = own[0]
    parts = {place.part for place in own}
    called = Counter(place.called for place in own).most_common(1)[0][0]
    place = SourcePlace(
        line=line,
        function=first.function,
        module=merge_module_paths([place.module for place in own if place.kind == first.kind]),
        kind=first.kind,
        called=called,
        part=first.part if len(parts) == 1 else "",
        lines=first.lines,
    )
    return PlaceOfWorks(place, len(times) - 1)


class LineRun(NamedTuple):
    """Works of one line that follow each other."""

    place: SourcePlace | None
    begin: int
    end: int
    works: int  # how many


def list_line_runs(
    parts: Iterable[tuple[SourcePlace | None, Nanoseconds, Nanoseconds]],
) -> Iterator[LineRun]:
    """Yield runs of works of one place, none of which begins before the one before it ends.

    Args:
        parts: The place, begin and end of each work, in order of begin.
    """
    run: LineRun | None = None
    for place, begin, end in parts:
        if run is not None and place == run.place and begin >= run.end:
            run = run._replace(end=end, works=run.works + 1)
            continue
        earliest = begin
        if run is not None:
            yield run
            earliest = max(begin, run.end)
        run = LineRun(place, earliest, max(earliest, end), 1)
    if run is not None:
        yield run


def merge_module_paths(paths: Sequence[ModulePath]) -> ModulePath:
    """Join paths of modules into one with a * for what differs: transformer.h.*.attn."""
    distinct = list(dict.fromkeys(paths))
    parts = [path.split(".") for path in distinct]
    shortest = min(len(path) for path in parts)
    joined = []
    for at in range(shortest):
        names = {path[at] for path in parts}
        joined.append(parts[0][at] if len(names) == 1 else "*")
    if any(len(path) > shortest for path in parts):
        joined.append("*")
    return ".".join(joined)


@lru_cache(1 << 14)
def replace_layer_numbers(path: ModulePath) -> ModulePath:
    """Join the layers of a model into one: transformer.h.3.attn is transformer.h.*.attn."""
    names = path.split(".")
    for at, name in enumerate(names):
        if name.isdigit():
            names[at] = "*"
    return ".".join(names)


def describe_place_of_works(place_of_works: PlaceOfWorks) -> str:
    """Say where works come from, and that there are more lines where there are."""
    said = describe_place(place_of_works.place)
    if place_of_works.others:
        said += (
            f", and {place_of_works.others} more {'lines' if place_of_works.others > 1 else 'line'}"
        )
    return said


def describe_place(place: SourcePlace) -> str:
    """Say it in words: model.py:64 CausalSelfAttention (transformer.h.*.attn), called at train.py:88."""
    said = shorten_line_path(place.line)
    name = place.kind or place.function.rpartition("<locals>.")[2]
    if name and name != "<module>":
        said += f" {name}"
    if place.module:
        said += f" ({place.module})"
    if place.called:
        said += f", called at {shorten_line_path(place.called)}"
    if place.part == "backward":
        said += ", in its backward pass"
    return said


class _HasModule(Protocol):
    @property
    def module(self) -> str: ...

    @property
    def kind(self) -> str: ...


def name_module(module_place: _HasModule) -> str:
    """Name a module by its path; the outermost one, which has none, by its class: (GPT)."""
    if module_place.module or not module_place.kind:
        return module_place.module
    return f"({module_place.kind})"


def shorten_line_path(line: FileAndLine) -> FileAndLine:
    """Shorten a line's file to its name; one of an installed package to its path in there."""
    installed = _SITE.sub("", line)
    if installed != line:
        return installed
    return line.rpartition("/")[2]


def is_compiler_generated_file(file: str) -> bool:
    """Return whether torch.compile wrote a file."""
    return _COMPILED.search(file) is not None


def is_uninformative_function(file: str, function: str) -> bool:
    """Return whether a function that torch.profiler names says nothing of a program.

    The profiler cuts off the folder that packages are installed in: scipy/ndimage/filters.py.
    """
    package, slash, _ = file.partition("/")
    if slash and package in CORE:
        return True
    return function in _PASSING or is_compiler_generated_file(file)
