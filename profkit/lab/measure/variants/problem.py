"""problem.py beside the variants  ->  what no variant repeats: cases, inputs, reference, work.

A problem is a Python file with the names below. It needs numpy alone; torch is imported only by
its `reference_call`, on a machine that has it. Shapes are the problem's own business: profkit
passes a case back to the functions of the file that it came from.
"""

from __future__ import annotations

import hashlib
import re
import symtable
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import msgspec

from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import is_file, is_path_there, read_bytes, write_text
from profkit.lab.measure.languages.language import list_languages
from profkit.records.store import Document

if TYPE_CHECKING:
    from profkit.units import AbsoluteAndRelative, CaseName, InputNumber, OutputNumber, TorchTensor


Case = Any  # whatever the problem says
CaseAndSeed = tuple[str, int]

REQUIRED = {
    "CASES": "name -> case: what is timed and profiled",
    "CHECKS": "name -> case: what is only checked: ragged, tiny, degenerate",
    "SEEDS": "the seeds that every case of CHECKS is checked with",
    "ATOL": "acceptance is abs(out - ref) <= ATOL + RTOL * abs(ref), everywhere",
    "RTOL": "see ATOL",
    "arguments": "case -> dict of size, stride, scale and causal for ProfkitArgs",
    "inputs": "(case, seed, grid) -> arrays, in the order of ProfkitArgs.in",
    "outputs": "case -> (shape, dtype) of each output, in the order of ProfkitArgs.out",
    "reference": "(case, inputs) -> fp64 arrays, one per output",
    "operations": "case -> floating-point operations that the work needs",
    "compulsory_bytes": "case -> bytes that must cross DRAM: inputs read and outputs written once",
}
OPTIONAL = {
    "REFERENCES": "names of library calls to compare with",
    "reference_call": "(name, case, tensors) -> a function that makes one call",
    "exponentials": "case -> exponentials that the work needs",
    "backend_of": "names of a reference's kernels -> which backend they are",
    "tolerance": "case -> (absolute, relative) where ATOL and RTOL are not for every case",
    "input_types": "case -> (shape, dtype) of each input; an array of bfloat16 is held as uint16",
    "begins": "case -> {output: input that it holds at first}: for work in place",
}


@dataclass(frozen=True)
class Problem:
    """A loaded problem.py; see REQUIRED and OPTIONAL for what it must have."""

    name: str  # its folder's name
    path: Path
    hash: str  # sha256 of the file
    module: ModuleType

    @property
    def cases(self) -> Mapping[CaseName, Case]:
        """Return the cases that are measured, by name."""
        return dict(self.module.CASES)

    @property
    def checks(self) -> Mapping[CaseName, Case]:
        """Return the cases on which values are checked, by name."""
        return dict(self.module.CHECKS)

    @property
    def references(self) -> tuple[str, ...]:
        """Return the names of the references."""
        return tuple(getattr(self.module, "REFERENCES", ()))

    def choose_cases(self, names: Sequence[str]) -> tuple[CaseName, ...]:
        """Return these cases, or the first one where none is named; a ProfkitError of an unknown one."""
        chosen = tuple(names) or tuple(self.cases)[:1]
        for name in chosen:
            self.get_case(name)
        return chosen

    def get_case(self, name: str) -> Case:
        """Return the case of a name; raise ProfkitError where there is none."""
        known = {**self.cases, **self.checks}
        if name not in known:
            raise ProfkitError(
                f"--case {name}: {self.name} has no such case",
                suggest_nearest_names(name, self.cases),
            )
        return known[name]

    def list_case_seeds(
        self, cases_to_measure: Iterable[str], check_cases: Iterable[str] | None = None
    ) -> tuple[CaseAndSeed, ...]:
        """Return `check_cases` (None: all of CHECKS) at each seed, then `cases_to_measure` at seed 0."""
        if check_cases is None:
            check_cases = self.checks
        pairs = list(product(check_cases, self.module.SEEDS))
        pairs += product(cases_to_measure, [0])
        return tuple(dict.fromkeys(pairs))

    def get_tolerance(self, case: CaseName) -> AbsoluteAndRelative:
        """Return (absolute, relative) of abs(out - ref) <= absolute + relative * abs(ref)."""
        if hasattr(self.module, "tolerance"):
            atol, rtol = self.module.tolerance(self.get_case(case))
            return float(atol), float(rtol)
        return self.module.ATOL, self.module.RTOL

    def map_inplace_outputs_to_inputs(self, case: Case) -> Mapping[OutputNumber, InputNumber]:
        """Return output -> the input that it begins as; empty if nothing is worked on in place."""
        if hasattr(self.module, "begins"):
            return dict(self.module.begins(case))
        return {}

    def make_reference_call(
        self, name: str, case: CaseName, tensors: Sequence[TorchTensor]
    ) -> Callable[[], Any]:
        """Return a function that calls a reference on tensors."""
        made: Callable[[], Any] = self.module.reference_call(name, self.get_case(case), tensors)
        return made


def is_complete_problem_folder(folder: Path) -> bool:
    """Return whether <folder>/problem.py says everything that checking and timing need.

    Looks at what the file defines, without running it: a folder may have a problem.py of another
    kind, for kernels that are only built.
    """
    try:
        return set(REQUIRED) <= _list_defined_names(read_bytes(folder / "problem.py"))
    except (OSError, SyntaxError, ValueError):
        return False


@lru_cache
def _list_defined_names(source: bytes) -> set[str]:
    """Return the names that a module defines, without running it."""
    names = symtable.symtable(source.decode(), "problem.py", "exec").get_symbols()
    defined = set()
    for name in names:
        if name.is_assigned() or name.is_imported():
            defined.add(name.get_name())
    return defined


def load_problem(folder: Path) -> Problem:
    """Import <folder>/problem.py, by path: no package, no installation."""
    from profkit.evidence.users_code import import_python_file_as, run_users_code

    path = folder / "problem.py"
    if not is_file(path):
        raise ProfkitError(
            f"{folder} has no problem.py", "it says the cases, inputs and reference of its variants"
        )
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ProfkitError(f"cannot read {path}: {error.strerror}") from error
    digest = hashlib.sha256(content).hexdigest()
    name = f"_profkit_problem_{digest[:16]}"
    module, why = run_users_code(path, lambda: import_python_file_as(path, name))
    if module is None:
        hint = "it is run to know the cases, inputs and reference of its variants"
        raise ProfkitError(f"{path}: {why}", hint)
    missing = []
    for n in REQUIRED:
        if not hasattr(module, n):
            missing.append(n)
    if missing:
        raise ProfkitError(
            f"{path} lacks {', '.join(missing)}", "; ".join(f"{n}: {REQUIRED[n]}" for n in missing)
        )
    return Problem(folder.name, path, digest, module)


_HERE = Path(__file__).parent
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}")
# In the wheel it lies beside this file; in a checkout where every kernel has it from.
_HEADERS = (_HERE / "variant.cuh", Path(__file__).parents[4] / "kernels/common/variant.cuh")


def get_template_file_by_language() -> dict[str, str]:
    """Return language, as one types it -> the file that a first variant is made of."""
    there = {entry.name for entry in files(__package__).iterdir()}
    known = {}
    for language in list_languages():
        name = language.name.lower()
        template = f"{name}{language.suffix}.tmpl"
        if template in there:
            known[name] = template
    return known


class NewDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.new/1"):
    """What `profkit new --json` prints."""

    folder: Path = msgspec.field(default_factory=Path)
    files: tuple[Path, ...] = ()


def write_files_of_new_problem(name: str, language: str, kernels_folder: Path) -> list[Path]:
    """Write a problem's folder; return all files that were written, its problem.py first."""
    if not _NAME.fullmatch(name) or name == "common":
        raise ProfkitError(
            f"{name}: a problem's name is a folder's", "small letters, digits, - and _: row-sum"
        )
    known = get_template_file_by_language()
    if language not in known:
        raise ProfkitError(
            f"--language {language}: no template",
            suggest_nearest_names(language, known, "say " + " or ".join(known)),
        )
    folder = kernels_folder / name
    if is_path_there(folder):
        hint = "choose another name, or another --kernels"
        raise ProfkitError(f"{folder} is there already", hint)
    suffix = known[language].removesuffix(".tmpl").removeprefix(language)
    variant = f"first_plain{suffix}"
    words = {"@PROBLEM@": name, "@PLACE@": str(kernels_folder.parent), "@VARIANT@": variant}
    written = [
        _write_template(folder / "problem.py", "problem.py.tmpl", words),
        _write_template(folder / variant, known[language], words),
        _write_template(folder / "README.md", "README.md.tmpl", words),
    ]
    shared = kernels_folder / "common" / "variant.cuh"
    if not is_path_there(shared):
        header = next((path for path in _HEADERS if is_file(path)), None)
        if header is None:
            raise ProfkitError("profkit's variant.cuh is missing", "install profkit again")
        write_text(shared, header.read_text(encoding="utf-8"))
        written.append(shared)
    return written


def _write_template(path: Path, template: str, replacement_by_placeholder: dict[str, str]) -> Path:
    text = (files(__package__) / template).read_text(encoding="utf-8")
    for mark, word in replacement_by_placeholder.items():
        text = text.replace(mark, word)
    write_text(path, text)
    return path
