"""The files of this folder  ->  the languages there are. There is no list anywhere."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import read_text
from profkit.measure import languages as folder
from profkit.measure.languages.language import Language


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
