"""What profkit asks of a language: which files are its own, what their headers say, a library.

Whatever a language is, its library exports one C function, `profkit_launch(const ProfkitArgs*)`: what
checks, times, profiles and sanitizes a kernel knows no language.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profkit.collect.process import Tool
from profkit.errors import ProfkitError
from profkit.files import is_file, list_files_below, list_folder_entries, read_text
from profkit.lab.measure import languages as folder
from profkit.records.header import VariantHeader


@dataclass(frozen=True)
class CompileJob:
    """All that compiling one variant takes."""

    path: Path
    problem: Path  # the folder of its problem.py
    arch: str
    flags: tuple[str, ...] = ()  # all flags that its compiler gets
    # tunable -> value, where they are not what the file says
    defines: Mapping[str, str] = field(default_factory=dict)
    grid: str | None = None  # the header's `inputs:` key
    sms: int = 0  # how many SMs the GPU has that it is for; 0 where no language asks


Programs = Mapping[str, Tool]


def _make_compiler_version_text(programs: Programs) -> str:
    (name, program), *_ = programs.items()
    return f"{name} {program.version or '?'}"


@dataclass(frozen=True, eq=False)
class Language:
    """One language. A file of it is named `<id>_<words>` and its suffix."""

    name: str  # as people say it
    suffix: str  # of its files
    # (text, file's name): its header; nothing in the file is executed. ProfkitError: it has none, or
    # the file cannot be one of this language
    header: Callable[[str, str], VariantHeader]
    # sha256 of the code: comments, layout and those keys of the header left out that only speak of it
    code_hash: Callable[[Path, Mapping[str, str]], str]
    text_hash: Callable[[Path], str]  # of the file, and what it includes, to the letter
    # (jobs, folder, programs, parallel): compile side by side; job -> seconds, as far as known. Of the
    # i-th job this leaves in the folder: i.so; i.o, its host code; i.log, all that the compiler said,
    # ptxas -v among it; i.json, its launches, where they are known ahead (see plan.py). Without i.so,
    # i.log says why. No number for `parallel` takes as many as there are cores.
    compile: Callable[[Sequence[CompileJob], Path, Programs, int | None], dict[int, float]]
    # what the header and the tunables add to a compiler's flags
    flags: Callable[[VariantHeader, Mapping[str, str]], tuple[str, ...]]
    # (header, file's name): ProfkitError where flags of a header could do more than change code
    refuse_unsafe_flags: Callable[[VariantHeader, str], None] = lambda _header, _name: None
    # every file's, of an architecture
    own_flags: Callable[[str], tuple[str, ...]] = lambda _arch: ()
    programs: tuple[str, ...] = ()  # what compiling it starts: names that tools.tool knows
    needs_sms: bool = False  # whether what is compiled depends on how many SMs the GPU has
    # whether a file with the suffix is a kernel of this language; None: the suffix says it all
    owns: Callable[[Path, str], bool] | None = None
    # whether one that is found in a folder and named by nobody is meant as a kernel
    is_meant: Callable[[Path, str], bool] = lambda _path, _text: True
    # what this machine lacks to compile it, and how to get it, in one line; empty: nothing
    missing: Callable[[], str] = lambda: ""
    lacking: Callable[[], str] = lambda: ""  # the same, to compile it and run it
    compiler: Callable[[Programs], str] = (
        _make_compiler_version_text  # and its version, for the record
    )
    # what else decides what comes out: versions, other files, the environment
    surroundings: Callable[[CompileJob], Sequence[str]] = lambda _job: ()


def find_package_version(name: str) -> str | None:
    """Return the version of a Python package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def list_languages() -> tuple[Language, ...]:
    """Return every language: what a file of this folder calls LANGUAGE."""
    languages = []
    for found in sorted(pkgutil.iter_modules(folder.__path__), key=lambda module: module.name):
        module = importlib.import_module(f"{folder.__name__}.{found.name}")
        if hasattr(module, "LANGUAGE"):
            languages.append(module.LANGUAGE)
    return tuple(languages)


def detect_language_of_kernel(path: Path, text: str) -> Language | None:
    """Return the language that a file is written in; None if it is no kernel of any."""
    for language in _list_languages_of_suffix(path.suffix):
        if language.owns is None or language.owns(path, text):
            return language
    return None


def _list_languages_of_suffix(suffix: str) -> list[Language]:
    return [language for language in list_languages() if language.suffix == suffix]


def is_kernel_file(path: Path) -> bool:
    """Return whether a file is a kernel of any language, or would be if it could be read."""
    languages = _list_languages_of_suffix(path.suffix)
    if any(language.owns is None for language in languages):
        return True  # what is no readable file is an error of its reader
    if not languages or not is_file(path):
        return False
    with contextlib.suppress(ProfkitError):
        text = read_source(path)
        language = detect_language_of_kernel(path, text)
        return language is not None and language.is_meant(path, text)
    return False


def read_source(path: Path) -> str:
    """Return the text of a source; raise ProfkitError where it cannot be read."""
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ProfkitError(f"cannot read {path}: {why}", "a kernel's source is text") from error


def list_kernel_files_below(folder: Path) -> list[Path]:
    """Return the kernels below a folder, sorted; a ProfkitError where a part of it may not be read."""
    files, unread = list_files_below(folder)
    for closed in unread:
        list_folder_entries(closed)  # says why
    return [file for file in files if is_kernel_file(file)]
