"""A problem's name and a language  ->  its folder: problem.py, one variant, a README."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from profkit.errors import ProfkitError, did_you_mean
from profkit.files import write_text
from profkit.measure.languages.language import known_languages

_HERE = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}")
# In the wheel it lies beside this file; in a checkout where every kernel has it from.
_HEADERS = (_HERE / "variant.cuh", Path(__file__).parents[3] / "kernels/common/variant.cuh")


def templates() -> dict[str, str]:
    """Language, as one types it -> the file that a first variant is made of."""
    names = [entry.name for entry in files(__package__).iterdir()]
    known = {language.name.lower(): language.suffix for language in known_languages()}
    template_of = {name: f"{name}{suffix}.tmpl" for name, suffix in known.items()}
    return {name: template for name, template in template_of.items() if template in names}


def new_problem(name: str, language: str, kernels: Path) -> list[Path]:
    """Write a problem's folder; return all files that were written, its problem.py first.

    Raises:
        ProfkitError: The name is none, the language is not known, or the folder is there.
    """
    if not _NAME.fullmatch(name) or name == "common":
        raise ProfkitError(
            f"{name}: a problem's name is a folder's", "small letters, digits, - and _: row-sum"
        )
    known = templates()
    if language not in known:
        raise ProfkitError(
            f"--language {language}: no template",
            did_you_mean(language, known, "say " + " or ".join(known)),
        )
    folder = kernels / name
    if folder.exists():
        hint = "choose another name, or another --kernels"
        raise ProfkitError(f"{folder} is there already", hint)
    suffix = known[language].removesuffix(".tmpl").removeprefix(language)
    variant = f"first_plain{suffix}"
    words = {"@PROBLEM@": name, "@PLACE@": str(kernels.parent), "@VARIANT@": variant}
    written = [
        _write(folder / "problem.py", "problem.py.tmpl", words),
        _write(folder / variant, known[language], words),
        _write(folder / "README.md", "README.md.tmpl", words),
    ]
    shared = kernels / "common" / "variant.cuh"
    if not shared.exists():
        header = next((path for path in _HEADERS if path.is_file()), None)
        if header is None:
            raise ProfkitError("profkit's variant.cuh is missing", "install profkit again")
        write_text(shared, header.read_text(encoding="utf-8"))
        written.append(shared)
    return written


def _write(path: Path, template: str, words: dict[str, str]) -> Path:
    text = (files(__package__) / template).read_text(encoding="utf-8")
    for mark, word in words.items():
        text = text.replace(mark, word)
    write_text(path, text)
    return path
