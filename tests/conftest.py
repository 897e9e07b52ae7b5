"""Where real reports lie: the committed ones, and those of others when they are beside the project."""

import ctypes
import gc
import hashlib
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path

import pytest
from hypothesis import settings

from profkit.records.paths import find_all_run_files
from tests.forks import pytest_runtest_protocol  # noqa: F401  # a hook: it runs what is marked `forks`
from tests.shared import find_folder, has_folder, make_once, use_folder

# A loaded machine is slow now and then: that says nothing about what is tested.
# The same examples each time: nothing fails by chance. --hypothesis-profile=explore has new ones.
settings.register_profile("explore", deadline=None)
settings.register_profile("unhurried", deadline=None, derandomize=True)
settings.load_profile("unhurried")

# Started in the background of a script, Ctrl-C is ignored, by whatever the tests start too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

LIBC = ctypes.CDLL(None)
ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared" / "corpus"


WORKER_MOST = 3.5e9  # bytes of a worker: two fit into 8 GB, four into 16
WORKER_FAILS = 4e9  # which tests meet in a worker is by chance: 3.3 GB was seen


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """As many workers as there are processors, at most eight, and no more than memory is for."""
    processors = len(os.sched_getaffinity(0))
    return max(1, min(processors, 8, int(available_memory() // WORKER_MOST)))


def available_memory() -> float:
    """Bytes that may be taken here, of the machine and of a container's limit."""
    fields = Path("/proc/meminfo").read_text("utf-8").split()
    most = 1024.0 * int(fields[fields.index("MemAvailable:") + 1])
    limit = Path("/sys/fs/cgroup/memory.max")
    used = Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and (text := limit.read_text("utf-8").strip()) != "max":
        most = min(most, int(text) - int(used.read_text("utf-8")))
    return most


@pytest.fixture(scope="session", autouse=True)
def workers_share(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What a worker has read of a committed report, the others need not read."""
    use_folder(tmp_path_factory)


@pytest.fixture(scope="session", autouse=True)
def worker_stays_small(request: pytest.FixtureRequest):
    """What a worker took at most, when it has ended; of several the end of a run tells."""
    yield
    from profkit.reports.isolated import end_servers

    end_servers()  # then their time is counted
    own, children = (
        resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    most = 1024 * own.ru_maxrss
    told = getattr(request.config, "workeroutput", None)  # of pytest-xdist
    if told is not None:
        told["bytes"] = most
        told["seconds"] = sum(used.ru_utime + used.ru_stime for used in (own, children))
    assert most < WORKER_FAILS, f"a worker took {most / 1e9:.1f} GB: read reports in children"


@pytest.fixture(scope="module", autouse=True)
def memory_is_given_back() -> Iterator[None]:
    """Give the system what the C library keeps of memory that a file's tests no longer have."""
    yield
    LIBC.malloc_trim(0)


WORKERS: list[str] = []  # what each took


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node) -> None:
    """Keep what a worker took; nothing is known of one that was killed."""
    told = getattr(node, "workeroutput", {})
    if "bytes" in told:
        WORKERS.append(f"{told['seconds']:.0f} s of a processor, {told['bytes'] / 1e9:.1f} GB")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what tests cost, in what no other program on the machine changes much."""
    if WORKERS:
        terminalreporter.write_line(f"workers took: {'; '.join(WORKERS)}")


def pytest_collection_finish() -> None:
    """Leave ten thousand tests and what they import out of every later look for garbage.

    Such a look took an eighth of a worker's time: 55.7 s of a part of the suite, and 48.7 without.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_configure() -> None:
    """Hold what is printed to its schemas, and read each report once."""
    from tests.documents import hold_what_is_printed

    hold_what_is_printed()
    read_once()


def read_once() -> None:
    """Read each committed report once a session, and in a child.

    ncu_report keeps six times the bytes of each report that it opens: a worker took 5.6 GB. Not in
    tests/reports, where reading is what is tested (the conftest there), nor where this file is
    imported without pytest: `make speed` would time the second look.
    """
    from profkit.reports import hotlines, reader
    from profkit.reports.frame import ReportLaunches
    from profkit.reports.isolated import ROOM

    ROOM.files_left = ROOM.bytes_left = (
        sys.maxsize
    )  # what is read here is kept or small, and a fork would not see what is kept
    # A verb ends, and this process goes on and forks.
    ROOM.forbid_reading_here = ROOM.allow_disassembly_here = lambda: None
    parts, lines, rows = {}, {}, {}

    @wraps(reader.read_report_unless_large)
    def read_report_unless_large(path):
        if not is_committed(path):
            return read_report_unless_large.__wrapped__(path)
        # A link to it may lie beside another record, which names its launches.
        record = Path(path).with_suffix(".json")
        key = os.path.realpath(path), os.path.realpath(record) if record.is_file() else None
        if key not in parts:
            beside = Path(key[0]).with_suffix(".json")
            own = os.path.realpath(beside) if beside.is_file() else None
            # By its own path, so that all links and ways to it are read once, by any worker.
            asked = key[0] if key[1] == own else os.fspath(path)
            parts[key] = read_in_session(
                "profkit.reports.reader:read_report_unless_large", asked, key
            )
        part = parts[key]
        if not isinstance(part, ReportLaunches) or part.file.path == path:
            return part
        identity, rules = (
            tuple((path, *row[1:]) for row in rows) for rows in (part.identity, part.rules)
        )
        return replace(part, file=replace(part.file, path=path), identity=identity, rules=rules)

    @wraps(hotlines.answer_requests_of_report)
    def answer_requests(item):
        if not is_committed(item[0]):
            if needs_text.__wrapped__(item[1]):  # see _answer_in_process in hotlines.py
                return read_in_child("profkit.reports.hotlines:answer_requests_of_report", item)
            return answer_requests.__wrapped__(item)
        real = os.path.realpath(item[0])
        asked = [real, [{**fields, "report": real} for fields in item[1]]]
        key = json.dumps(asked)
        if key not in lines:
            lines[key] = read_in_session(
                "profkit.reports.hotlines:answer_requests_of_report", asked, real
            )
        return lines[key]

    @wraps(hotlines._needs_disassembly)
    def needs_text(_requests):
        return False  # answer_requests above sees to it, and keeps the answer

    @wraps(reader.read_raw_rows)
    def raw_rows(item):
        if not is_committed(item[0]):
            return raw_rows.__wrapped__(item)
        real = os.path.realpath(item[0])
        if real not in rows:
            rows[real] = read_in_session("profkit.reports.reader:read_raw_rows", [real], real)
        return [dict(row) for row in rows[real]]

    # The three below would hand what they are asked for to forks, each time.

    @wraps(reader._read_each_file)
    def read_each_file(names, jobs, client, is_apart):
        kept = [name for name in names if may_keep(name) and client is None]
        yield from ((name, read_report_unless_large(name)) for name in kept)
        left = [name for name in names if name not in kept]
        if left:
            yield from read_each_file.__wrapped__(left, jobs, client, is_apart)

    @wraps(reader.read_large_reports)
    def read_large_reports(paths, total_bytes, jobs=None):
        read = read_large_reports.__wrapped__
        if not all(map(may_keep, paths)):
            return read(paths, total_bytes, jobs)
        found = []
        for path in paths:
            key = hash_asked("large", path, os.path.realpath(path))
            kept = partial(read, [path], total_bytes, jobs)
            found += keep_in_session(key, "profkit.reports.reader:read_report_unless_large", kept)
        return found

    @wraps(hotlines._answer_in_process)
    def answer_in_process(item, died):
        answer = answer_in_process.__wrapped__
        if not may_keep(item[0]):
            return answer(item, died)
        if reader.estimate_unpacked_size(item[0]) <= reader.LARGE:
            return answer_requests(item)
        key = hash_asked("lines of large", os.path.realpath(item[0]), item[1])
        function = "profkit.reports.hotlines:answer_requests_of_report"
        (found,) = keep_in_session(key, function, lambda: [answer(item, died)])
        return found

    def may_keep(path):
        return ROOM.files_left > 0 and is_committed(path)  # see reads_in_forks

    reader.read_report_unless_large, hotlines.answer_requests_of_report, reader.read_raw_rows = (
        read_report_unless_large,
        answer_requests,
        raw_rows,
    )
    reader._read_each_file, reader.read_large_reports = read_each_file, read_large_reports
    hotlines._needs_disassembly, hotlines._answer_in_process = needs_text, answer_in_process


@pytest.fixture(scope="module")
def reads_in_forks() -> Iterator[None]:
    """Read every report in a fork, whose memory goes with it, as a process does that lives for long."""
    from profkit.reports.isolated import ROOM

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ROOM, "files_left", 0)
        yield


def is_committed(path: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(ROOT / "artifacts")


def read_in_child(function: str, item: object) -> object:
    """What a function says of a report, in a process whose memory goes with it."""
    from profkit.reports.isolated import run_in_child_processes

    (found,) = run_in_child_processes(function, [item], 1, lambda _item, why: pytest.fail(why))
    return found


def read_in_session(function: str, item: object, files: object) -> object:
    """The same of a committed report, which one worker or fork of a session reads for all.

    `files`: what the item names, by their own paths.
    """
    key = hash_asked(function, item, files)
    (found,) = keep_in_session(key, function, lambda: [read_in_child(function, item)])
    return found


def hash_asked(*asked: object) -> str:
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def keep_in_session(key: str, function: str, make: Callable[[], Sequence[object]]) -> list[object]:
    """What was made under a key before, or is made now: answers as a function of children gives them."""
    from profkit.reports.isolated import _decode_answer, encode_answer, find_result_types

    if not has_folder():  # in_a_terminal.py has no session: it keeps what it reads in memory
        return list(make())

    def write(part: Path) -> None:
        answers = [encode_answer(found, find_result_types(function)) for found in make()]
        part.write_bytes(b"".join(len(data).to_bytes(8, "little") + data for data in answers))

    data = make_once(find_folder() / key, write).read_bytes()
    found, at = [], 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "little")
        found.append(_decode_answer(bytearray(data[at + 8 : end]), function))
        at = end
    return found


def committed() -> list[Path]:
    """Reports of the project itself: always there."""
    files = (
        files for several in find_all_run_files(ROOT / "artifacts").values() for files in several
    )
    return sorted(file.report for file in files if file.report)


def kinds() -> list[Path]:
    """Those of `committed` that differ in kind: of kernels recorded at several shapes, B and C."""
    runs = find_all_run_files(ROOT / "artifacts").items()
    of_kind = (several for (_, case), several in runs if case in {"B", "C", "4096", "1GiB"})
    return sorted(files.report for several in of_kind for files in several if files.report)


def report_of(variant: str, case: str) -> Path:
    """One committed report."""
    (files,) = find_all_run_files(ROOT / "artifacts")[variant, case]
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
    from profkit.reports.reader import read_report_files

    return read_report_files(others()).launches


@pytest.fixture(scope="session")
def own_runs():
    """The frame of the committed reports, one of each kind."""
    from profkit.reports.reader import read_report_files

    return read_report_files(kinds()).launches
