"""Where real reports lie: the committed ones, and those of others when they are beside the project."""

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
HERE = Path(__file__).resolve().parent
CORPUS = ROOT.parent / "shared" / "corpus"

# What make fast leaves out, said here and nowhere else: tests that take one of these fixtures, and
# these files, or of a file only what its ":: ..." names. About a second of processor time is slow, and
# so is a file of which most tests start a verb or read a report.
SLOW_FIXTURES = {"own_runs", "corpus_runs", "driver"}  # driver is compiled
SLOW = (
    "cli/test_bad_input.py",
    "cli/test_diagnose.py",
    "cli/test_found.py::test_a_kernel_without",
    "cli/test_found.py::test_a_report_of_a_variant",
    "cli/test_history.py::test_a_question_without_end",
    "cli/test_judging.py::test_an_unchanged_tree",
    "cli/test_judging.py::test_the_ladder",
    "cli/test_mcp.py",
    "cli/test_memory.py",
    "cli/test_old_names.py",
    "cli/test_reporting.py",
    "cli/test_select.py::test_a_pattern_that_tries",
    "cli/test_stop.py",
    "cli/test_terminal.py",
    "cli/test_triage.py",
    "cli/test_wrong_verb.py::test_the_command",
    "diagnosis/test_golden",
    "diagnosis/test_one_more_rule.py",
    "evidence/test_analyses.py",
    "evidence/test_gate.py::test_noise_that_hangs",
    "evidence/test_gate.py::test_the_smallest_change",
    "evidence/test_gate.py::test_wrong_is_asked_first",
    "evidence/test_golden",
    "evidence/test_history.py::test_a_killed_writer",
    "evidence/test_history.py::test_any_number_of_writers",
    "evidence/test_ledger.py::test_updates_at_once",
    "evidence/test_records.py::test_any_document_is_a_record_or_a_clear_error",
    "evidence/test_stats.py::test_a_drift_is_not",
    "evidence/test_stats.py::test_a_real_difference_is_seen",
    "evidence/test_stats.py::test_clock_states",
    "evidence/test_stats.py::test_equal_kernels",
    "evidence/test_stats.py::test_processes_that_differ",
    "evidence/test_stats.py::test_samples_that_hang_together_raise",
    "evidence/test_stats.py::test_the_interval_covers",
    "evidence/test_stats.py::test_two_thousand_null_runs",
    "evidence/test_stream.py::test_a_killed_worker",
    "evidence/test_stream.py::test_a_report_that_kills",
    "evidence/test_stream.py::test_every_file",
    "evidence/test_stream.py::test_on_an_executor",
    "evidence/test_stream.py::test_the_verb_streams",
    "evidence/test_stream.py::test_what_was_written",
    "kernels/test_fp8.py::test_the_gate",
    "kernels/test_fp8.py::test_the_tolerance",
    "kernels/test_gains.py",
    "kernels/test_ladder_page.py",
    "kernels/test_picks.py",
    "kernels/test_probes.py::test_reports_hold",
    "kernels/test_promises.py",
    "kernels/test_thresholds.py",
    "kernels/test_verdicts.py",
    "kernels/test_where.py",
    "measure/test_collect.py::test_an_interrupt",
    "measure/test_collect.py::test_each_fault",
    "measure/test_judge.py::test_the_gate_stops",
    "measure/test_signals.py",
    "measure/timeline/test_library.py::test_a_program_that_hangs",
    "model/test_golden",
    "program/test_answers.py",
    "program/test_bad_traces.py::test_a_gzip_bomb",
    "program/test_bad_traces.py::test_a_hundred_thousand",
    "program/test_invariants.py::test_it_holds_of_every",
    "program/test_invariants.py::test_no_saving",
    "program/test_recorded.py",
    "records/test_record_fields.py::test_every_committed",
    "reports/sass/test_machine.py::test_bits_say_what_the_text_says",
    "reports/test_catalogue_on_reports.py",
    "reports/test_container.py::test_an_overwrite",
    "reports/test_container.py::test_every_truncation",
    "reports/test_golden",
    "reports/test_hotlines.py::test_each_counter_is_found",
    "reports/test_hotlines.py::test_every_counter",
    "reports/test_hotlines.py::test_samples_are_all_there",
    "reports/test_large.py::test_lines_of",
    "reports/test_reader.py::test_a_crash_of_the_library",
    "reports/test_reader.py::test_every_file_has_its_status",
    "reports/test_real_reports.py",
    "reports/test_workers.py",
    "show/test_brief.py::test_a_probe_s_brief",
    "show/test_explain.py::test_everything_has",
    "show/test_page.py",
    "show/test_plots.py::test_a_launch_of_which",
    "show/test_plots.py::test_hostile_names",
    "show/test_plots.py::test_labels_",
    "show/test_plots.py::test_nothing_of_pyplot",
    "show/test_plots.py::test_saves",
    "show/test_text.py::test_every_line",
    "show/test_worth.py::test_every_form",
    "show/test_worth.py::test_no_launch",
    "test_api.py",
    "test_documents.py::test_the_",
    "test_install.py",
    "test_notebooks.py",
    "test_readme.py",
    "test_words.py::test_messages",
    "tune/test_storage.py",
    "tune/test_v3.py::test_nothing_to_tune",
)


def pytest_collection_modifyitems(items):
    """Mark what is slow."""
    for item in items:
        name = Path(item.path).relative_to(HERE).as_posix() + "::" + item.name
        if name.startswith(SLOW) or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


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
        real, record = Path(path).resolve(), Path(path).with_suffix(".json")
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
