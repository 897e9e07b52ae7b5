"""Where real reports lie: the committed ones, and those of others when they are beside the project."""

import os
import signal
from dataclasses import replace
from functools import wraps
from pathlib import Path

import pytest
from hypothesis import settings

from profkit.records.paths import run_files

# A loaded machine is slow now and then: that says nothing about what is tested.
# The same examples each time: nothing fails by chance. --hypothesis-profile=explore has new ones.
settings.register_profile("explore", deadline=None)
settings.register_profile("unhurried", deadline=None, derandomize=True)
settings.load_profile("unhurried")

# Started in the background of a script, Ctrl-C is ignored, by whatever the tests start too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus"


def pytest_configure() -> None:
    """Hold what is printed to its schemas, and read each report once."""
    from tests.documents import hold_what_is_printed

    hold_what_is_printed()
    read_once()


def read_once() -> None:
    """ncu_report keeps six times the bytes of each report it opened: each is opened once a process.

    Not in tests/reports, where reading is what is tested (the conftest there), nor where this file
    is imported without pytest: `make speed` would time the second look.
    """
    from profkit.reports import reader
    from profkit.reports.frame import Part

    read, parts = reader.read_part, {}

    @wraps(read)
    def read_part(path):
        real, record = Path(os.path.realpath(path)), Path(path).with_suffix(".json")
        if not real.is_relative_to(ROOT / "artifacts"):
            return read(path)
        # A link to it may lie beside another record, which names its launches.
        key = real, record.resolve() if record.is_file() else None
        if key not in parts:
            parts[key] = read(path)
        part = parts[key]
        if not isinstance(part, Part) or part.file.path == path:
            return part
        identity, rules = (
            tuple((path, *row[1:]) for row in rows) for rows in (part.identity, part.rules)
        )
        return replace(part, file=replace(part.file, path=path), identity=identity, rules=rules)

    reader.read_part = read_part


def committed() -> list[Path]:
    """Reports of the project itself: always there."""
    files = (files for several in run_files(ROOT / "artifacts").values() for files in several)
    return sorted(file.report for file in files if file.report)


def kinds() -> list[Path]:
    """Those of `committed` that differ in kind: of kernels recorded at several shapes, B and C."""
    runs = run_files(ROOT / "artifacts").items()
    of_kind = (several for (_, case), several in runs if case in {"B", "C", "4096", "1GiB"})
    return sorted(files.report for several in of_kind for files in several if files.report)


def report_of(variant: str, case: str) -> Path:
    """One committed report."""
    (files,) = run_files(ROOT / "artifacts")[variant, case]
    assert files.report
    return files.report


def others() -> list[Path]:
    """Reports that other people made: only where somebody put them beside the project."""
    return sorted(CORPUS.glob("*.ncu-rep"))


@pytest.fixture(scope="session")
def corpus_runs():
    """The frame of everybody's reports; skips where there are none."""
    if not others():
        pytest.skip("no reports of others beside the project (../shared/corpus)")
    from profkit.reports.reader import read_report

    return read_report(others()).launches


@pytest.fixture(scope="session")
def own_runs():
    """The frame of the committed reports, one of each kind."""
    from profkit.reports.reader import read_report

    return read_report(kinds()).launches
