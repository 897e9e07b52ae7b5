"""What the user typed  ->  the reports meant, each once; a file  ->  what it is; a folder  ->  its runs.

<problem>/<case>/<variant>.json    what `profkit profile` writes, its .ncu-rep(z) beside it
<variant>.<case>.json              the same in a flat folder, or in one folder below it
"""

from __future__ import annotations

import glob
import re
import shlex
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profkit.errors import ProfkitError
from profkit.files import (
    expand_home,
    get_path_status,
    is_file,
    is_folder,
    is_link,
    list_files_below,
    list_folder_entries,
    list_matching_paths,
    open_regular_file,
    resolve_path,
    shorten_path,
)

if TYPE_CHECKING:
    from profkit.units import CaseName, Sentence, VariantName


SUFFIXES = (".ncu-rep", ".ncu-repz")
NOT_THERE = "no such file or directory"  # of a report that cannot be read, as the system says it
LISTED_MOST = 3  # reports that a hint names
FULL = "ncu --set full --import-source yes -o full COMMAND"  # makes a report with everything in it

ROOFLINE = "ncu --set full --section SpeedOfLight_RooflineChart -o roofline COMMAND"


def suggest_nearby_report(path: Path) -> Sentence:
    """Return what to do about a report that is not there: one of a near name, else what is beside it."""
    from difflib import get_close_matches

    beside: dict[str, str] = {}  # the name without its suffix, which says nothing -> the path
    if is_folder(path.parent):
        for other in list_folder_entries(path.parent):
            if other.suffix in SUFFIXES:
                beside.setdefault(other.stem, str(other))
    near = get_close_matches(path.stem, beside, 2, 0.6)
    if near:
        return f"did you mean {' or '.join(beside[stem] for stem in near)}?"
    if beside:
        there = list(beside.values())
        more = ""
        if len(there) > LISTED_MOST:
            more = f" and {len(there) - LISTED_MOST} more"
        return f"reports in that folder: {', '.join(there[:LISTED_MOST])}{more}"
    return f"to record a report: {FULL}"


def is_csv_table(path: str | Path) -> bool:
    """Return whether a file is read as what `ncu --csv` prints: by its name."""
    return str(path).lower().endswith(".csv")


def expand_paths(patterns: str | Path | Iterable[str | Path]) -> tuple[str, ...]:
    """Return the reports that files, folders (recursively) and globs name, each once, in order.

    `~` is expanded, a file may have any name. A file that is named and does not exist stays in the
    list, for the reader to say so and go on with the others. A ProfkitError of a glob that matches
    nothing, a folder without reports, or no pattern.
    """
    if isinstance(patterns, str | Path):
        patterns = [patterns]
    if not isinstance(patterns, Iterable):
        message = f"{type(patterns).__name__}: cannot read reports from this type"
        raise ProfkitError(message, "give a path, a folder, a glob or a list of these")
    paths = list(
        chain.from_iterable(expand_pattern_to_report_paths(str(pattern)) for pattern in patterns)
    )
    if not paths:
        raise ProfkitError("no report was named", "give a .ncu-rep file, a folder or a glob")
    return tuple(dict.fromkeys(paths))


def expand_pattern_to_report_paths(pattern: str) -> list[str]:
    """Return the reports that a file, folder or pattern stands for; a name without any as it is."""
    path = expand_home(pattern)
    try:
        state = get_path_status(path)
    except ProfkitError:
        return [str(path)]  # it may be there: the reader of it says why it cannot be read
    if state is not None and stat.S_ISDIR(state.st_mode):
        return _list_reports_below(path)
    # A file first: [ and ] are legal in file names.
    if state is not None or is_link(path) or not glob.has_magic(str(path)):
        return [str(path)]
    matched = list_matching_paths(path)
    if not matched:
        shown = shorten_path(pattern)
        raise ProfkitError(f"{shown}: matches no file", "check the path and the quotes")
    files = [name for name in matched if not is_folder(name)]
    if files:
        return files
    reports = []
    for folder in matched:
        reports += _list_reports_below(Path(folder))
    return reports


def _list_reports_below(folder: Path) -> list[str]:
    """Return the reports below a folder, and what of it may not be looked at: its reader says why."""
    files, unread = list_files_below(folder)
    reports = []
    for file in files:
        if file.suffix in SUFFIXES:
            reports.append(str(file))
    reports += map(str, unread)
    if not reports:
        hint = f"reports end in {' or '.join(SUFFIXES)}"
        raise ProfkitError(f"{folder}: no reports in this folder", hint)
    return reports


# What a file is.

MARK = b'"profkit.run/'  # in the first bytes of a run record
_HEAD = 1 << 16  # bytes that are looked at: a header may come before the first event
# Of a page that ncu printed: the title of a section, and what stands behind each kernel's name.
_PRINTED = re.compile(rb"^\s*Section: \w|, Context \d+, Stream \d+", re.MULTILINE)


@dataclass(frozen=True)
class Beginning:
    """What a file shows of itself: its name, and its first bytes, unpacked where gzip packed them."""

    path: Path
    head: bytes
    text: bytes

    @property
    def is_json(self) -> bool:
        """Return whether it begins as JSON does."""
        return self.text.lstrip()[:1] in (b"{", b"[")


@dataclass(frozen=True)
class _FileKind:
    """A kind of file, and who reads it."""

    name: str
    meaning: str
    command: str  # what to do with one, its path at {}
    is_kind: Callable[[Beginning], bool]
    verbs: tuple[str, ...] = ()  # those that read it


def _is_recording(file: Beginning) -> bool:
    """Ask the readers of recordings. They stand above this room, and each says what it reads."""
    readers = import_module("profkit.program.readers")
    return any(kind.is_kind(file) for kind in readers.list_recording_kinds())


# In this order: the first kind that a file is of counts.
_KINDS = (
    _FileKind(
        name="empty",
        meaning="empty (0 bytes)",
        command="copy it again, or record it again",
        is_kind=lambda file: not file.head,
    ),
    _FileKind(
        name="report",
        meaning="an Nsight Compute report",
        command="profkit diagnose {}",
        is_kind=lambda file: file.head.startswith(b"NVR"),
        verbs=("diagnose", "report", "roofline", "compare", "whatif", "gate", "history"),
    ),
    _FileKind(
        name="systems",
        meaning="a report of Nsight Systems; export it for profkit triage",
        command="nsys export --type sqlite {}",
        is_kind=lambda file: file.path.suffix in (".nsys-rep", ".qdrep"),
    ),
    _FileKind(
        name="grid",
        meaning="times by shape",
        command="profkit roofline {}",
        is_kind=lambda file: file.is_json and b'"profkit.grid/1"' in file.text,
        verbs=("roofline",),
    ),
    _FileKind(
        name="record",
        meaning="a run record",
        command="profkit compare {} OTHER",
        is_kind=lambda file: file.is_json and MARK in file.text,
        verbs=("compare", "gate", "history", "report"),
    ),
    _FileKind(
        name="trace",
        meaning="a trace of a whole program",
        command="profkit triage {}",
        is_kind=_is_recording,
        verbs=("triage", "compare"),
    ),
    _FileKind(
        name="printed",
        meaning="text printed by ncu: values are rounded and many are missing",
        command="record with ncu -o REPORT, or print with: "
        "ncu --import REPORT --csv --page raw > FILE.csv",
        is_kind=lambda file: b'"ID"' not in file.text and _PRINTED.search(file.text) is not None,
    ),
    _FileKind(
        name="program",
        meaning="a Python program",
        command="profkit triage -- python {}",
        is_kind=lambda file: file.path.suffix == ".py",
        verbs=("claims",),
    ),
)
_KEPT_FOLDER = _FileKind(
    name="kept",
    meaning="a recording kept by profkit triage",
    command="profkit triage {}",
    is_kind=lambda _: False,
    verbs=("triage", "report", "compare"),
)


class Suggestion(NamedTuple):
    """What a file is in words, and the command that does something with it."""

    meaning: str
    command: str


def suggest_command_for_file(path: str | Path, verb: str) -> Suggestion | None:
    """Return what a file is and its command; None where the verb reads it, or nobody knows it."""
    kind = _find_file_kind(Path(path))
    if kind is None or verb in kind.verbs:
        return None
    return Suggestion(kind.meaning, kind.command.format(shlex.quote(str(path))))


def get_protected_kind(path: str | Path) -> str | None:
    """Return what a file is that nobody writes over by mistake; None for anything else."""
    kind = _find_file_kind(Path(path))
    if kind is None or kind.name in ("empty", "kept"):
        return None
    return kind.meaning


def detect_file_kind(path: str | Path) -> str | None:
    """Return the kind of a file, by its content before its name; None where nobody knows it."""
    kind = _find_file_kind(Path(path))
    if kind is None:
        return None
    return kind.name


def _find_file_kind(path: Path) -> _FileKind | None:
    try:
        if is_folder(path):
            if is_file(path / "triage.json"):
                return _KEPT_FOLDER
            return None
        beginning = read_beginning(path)
    except (OSError, ProfkitError):
        return None
    for kind in _KINDS:
        if kind.is_kind(beginning):
            return kind
    return None


def read_beginning(path: Path) -> Beginning:
    """Read the first bytes of a file, and unpack them; nothing is unpacked of a damaged one."""
    with open_regular_file(path) as file:
        head = file.read(_HEAD)
    text = head
    if head.startswith(b"\x1f\x8b"):
        try:
            text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD)
        except zlib.error:
            text = b""
    return Beginning(path, head, text)


# The runs in a folder of artifacts.

RunName = tuple[str, str]  # variant and case
HISTORY = "artifacts/history"  # the tables of all that was measured, where nobody names others
_WORD = re.compile(r"[A-Za-z0-9][\w-]*")


@dataclass(frozen=True)
class RunFiles:
    """The files of one variant at one case: one of them is there."""

    stem: Path  # their path without a suffix
    record: Path | None = None  # the run record
    report: Path | None = None  # the report; of two, the one that is not compressed


def is_valid_run_name(name: str) -> bool:
    """Return whether a name can be a variant's or a case's."""
    return _WORD.fullmatch(name) is not None


def find_run_files(stem: Path) -> RunFiles:
    """Return what is there: a record, a report, both or neither."""
    record = _find_file_beside(stem, ".json")
    for suffix in SUFFIXES:
        report = _find_file_beside(stem, suffix)
        if report is not None:
            return RunFiles(stem, record, report)
    return RunFiles(stem, record)


def _find_file_beside(stem: Path, suffix: str) -> Path | None:
    path = stem.with_name(stem.name + suffix)
    if is_file(path):
        return path
    return None


def find_all_run_files(
    root: Path, problems_to_extend: list[ProfkitError] | None = None
) -> dict[RunName, tuple[RunFiles, ...]]:
    """Return everything recorded in a folder, by variant and case, sorted by name.

    A name has more than one entry where two folders hold a run of it. `problems_to_extend` takes what
    may not be looked at; without it, that is raised.
    """
    found: list[ProfkitError] = []
    stems: dict[RunName, set[Path]] = {}
    for path, depth in _iterate_records_and_reports(root, found):
        name = parse_run_name_of_file(path, depth)
        if name is not None:
            stems.setdefault(name, set()).add(path.with_suffix(""))
    runs: dict[RunName, tuple[RunFiles, ...]] = {}
    for name, paths in sorted(stems.items()):
        try:
            runs[name] = tuple(map(find_run_files, sorted(paths)))
        except ProfkitError as problem:
            found.append(problem)
    if problems_to_extend is not None:
        problems_to_extend += found
    elif found:
        raise found[0]
    return runs


def make_run_paths(
    root: Path, problem: str, variant: VariantName, case: CaseName
) -> tuple[Path, Path]:
    """Return where the report and the record of a run are to be written.

    Where the run is already, there again; else `<problem>/<case>/<variant>.*`.
    """
    stem = root / problem / case / variant
    flat = find_run_files(root / f"{variant}.{case}")
    if flat.record or flat.report:
        there = find_run_files(stem)
        require_single_run(
            (flat, there) if there.record or there.report else (flat,), (variant, case)
        )
        stem = flat.stem
    return stem.with_name(f"{stem.name}.ncu-rep"), stem.with_name(f"{stem.name}.json")


def require_single_run(files: tuple[RunFiles, ...], name: RunName) -> RunFiles:
    """Return the files of a run; a ProfkitError where two folders hold one of this name."""
    if len(files) > 1:
        where = " and ".join(str(f.stem) for f in files)
        hint = "remove one, or name the folder of the other with --artifacts"
        raise ProfkitError(f"{name[0]} at case {name[1]} exists twice: {where}", hint)
    return files[0]


def _iterate_records_and_reports(
    root: Path, problems: list[ProfkitError]
) -> Iterator[tuple[Path, int]]:
    """Yield records and reports in the folder and two below it, with how deep they are.

    Of a folder that is there by several names, a link to itself say, only the first is looked into.
    """
    seen: set[tuple[int, int]] = set()
    folders = [root]
    for depth in range(3):
        below: list[Path] = []
        for folder in folders:
            try:
                state = get_path_status(folder)
                if state is None or not stat.S_ISDIR(state.st_mode):
                    continue
                entries = list_folder_entries(folder)
            except ProfkitError as problem:
                problems.append(problem)
                continue
            if (state.st_dev, state.st_ino) in seen:
                continue
            seen.add((state.st_dev, state.st_ino))
            for path in entries:
                if path.suffix in (".json", *SUFFIXES):
                    yield path, depth
                else:
                    below.append(path)
        folders = sorted(below, key=is_link)  # a run has its own name before that of a link


def parse_run_name_of_file(path: Path, depth_below_root: int) -> RunName | None:
    """Return variant and case of a file, None where it is not a run's."""
    variant, dot, case = path.stem.rpartition(".")
    if not dot:
        variant = path.stem
        case = resolve_path(path).parent.name
    elif depth_below_root == 2:
        return None  # a folder of something else: a search keeps its champion so
    if not (is_valid_run_name(variant) and is_valid_run_name(case)):
        return None
    if dot or depth_below_root == 2 or _has_record_in_file_beside(path):
        return (variant, case)
    return None


def _has_record_in_file_beside(path: Path) -> bool:
    """Return whether the file beside it says that it is a run record: there is other JSON, too."""
    try:
        with open_regular_file(path.with_suffix(".json")) as file:
            return MARK in file.read(200)
    except OSError:
        return False
