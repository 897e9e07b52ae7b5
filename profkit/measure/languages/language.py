"""What profkit asks of a language: which files are its own, what their headers say, a library.

Whatever a language is, its library exports one C function, `profkit_launch(const ProfkitArgs*)`: what
checks, times, profiles and sanitizes a kernel knows no language.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import read_text
from profkit.measure import languages as folder
from profkit.records.header import Header


@dataclass(frozen=True)
class CompileJob:
    """One file to compile."""

    path: Path
    problem: Path  # the folder of its problem.py
    arch: str
    flags: tuple[str, ...] = ()  # all flags that its compiler gets
    # tunable -> value, where they are not what the file says
    defines: Mapping[str, str] = field(default_factory=dict)
    grid: str | None = None  # the header's `inputs:` key
    sms: int = 0  # how many SMs the GPU has that it is for; 0 where no language asks


@dataclass(frozen=True)
class CompilerProgram:
    """A program that a language needs, found, with its version."""

    path: Path
    version: str | None


class Language(ABC):
    """One language. A file of it is named `<id>_<words>` and its suffix."""

    name: str  # as people say it
    suffix: str  # of its files
    programs: tuple[str, ...] = ()  # what compiling it starts: names that toolchain.tool knows
    needs_sms: bool = False  # whether what is compiled depends on how many SMs the GPU has

    def owns(self, _path: Path, _text: str) -> bool:
        """Whether a file with the suffix is a kernel of this language."""
        return True

    def stands_at(self, _path: Path, _text: str) -> bool:
        """Whether such a file, found in a folder and named by nobody, is meant as a kernel."""
        return True

    @abstractmethod
    def header(self, text: str, name: str) -> Header:
        """Read a file's header; nothing in the file is executed.

        Raises:
            ProfkitError: It has none, or the file cannot be one of this language.
        """

    @abstractmethod
    def code_hash(self, path: Path, keys: Mapping[str, str]) -> str:
        """sha256 of the code: comments, layout and keys that only speak of it left out."""

    @abstractmethod
    def text_hash(self, path: Path) -> str:
        """sha256 of the file, and what it includes, to the letter."""

    def missing(self) -> str:
        """What this machine lacks to compile it, and how to get it, in one line; empty: nothing."""
        return ""

    def lacking(self) -> str:
        """What this machine lacks to compile and run it, in one line, without opening anything."""
        return self.missing()

    @abstractmethod
    def flags(self, header: Header, defines: Mapping[str, str]) -> tuple[str, ...]:
        """What the header and the tunables add to a compiler's flags."""

    @abstractmethod
    def check_flags(self, header: Header, name: str) -> None:
        """Refuse flags of a header that could do more than change code.

        Raises:
            ProfkitError: There is such a flag.
        """

    def own_flags(self, _arch: str) -> tuple[str, ...]:
        """What every file of this language is compiled with."""
        return ()

    def compiler(self, programs: Mapping[str, CompilerProgram]) -> str:
        """The compiler and its version, for the record."""
        (name, program), *_ = programs.items()
        return f"{name} {program.version or '?'}"

    def surroundings(self, _job: CompileJob) -> Sequence[str]:
        """What else decides what comes out: versions, other files, the environment."""
        return ()

    @abstractmethod
    def compile(
        self,
        jobs: Sequence[CompileJob],
        work: Path,
        programs: Mapping[str, CompilerProgram],
        parallel: int | None,
    ) -> dict[int, float]:
        """Compile side by side; job -> seconds that it took, as far as that is known.

        Of the i-th job this leaves in the folder: i.so; i.o, its host code; i.log, all that the
        compiler said, ptxas -v among it; i.json, its launches, where they are known ahead (see
        plan.py). Without i.so, i.log says why.

        No number for `parallel` takes as many as there are cores.
        """


@functools.cache
def known_languages() -> tuple[Language, ...]:
    """Every language: what a file of this folder calls LANGUAGE."""
    names = sorted(m.name for m in pkgutil.iter_modules(folder.__path__) if not m.ispkg)
    modules = (importlib.import_module(f"{folder.__name__}.{name}") for name in names)
    return tuple(m.LANGUAGE for m in modules if hasattr(m, "LANGUAGE"))


def language_named(name: str) -> Language:
    """The language of this name."""
    return next(language for language in known_languages() if language.name == name)


def language_of(path: Path, text: str) -> Language | None:
    """The language that a file is written in; None if it is no kernel of any."""
    fitting = (known for known in known_languages() if known.suffix == path.suffix)
    return next((language for language in fitting if language.owns(path, text)), None)


def is_kernel(path: Path) -> bool:
    """Whether a file is a kernel of any language, or would be if it could be read."""
    fitting = [known for known in known_languages() if known.suffix == path.suffix]
    if any(type(known).owns is Language.owns for known in fitting):
        return True  # the suffix says it all: what is no readable file is an error of its reader
    if not fitting or not path.is_file():
        return False
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError, ProfkitError):
        return False
    language = language_of(path, text)
    return language is not None and language.stands_at(path, text)


def kernel_files(place: Path) -> list[Path]:
    """The kernels in a folder and the folders inside it, in the order of their names."""
    return sorted(p for p in place.rglob("*") if is_kernel(p))
