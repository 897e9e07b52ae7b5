"""Child processes: what dies in one costs one answer; the others come, in their order."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import OUT_OF_MEMORY, ProfkitError, is_memory_limited
from profkit.reports import cluster, reader, serving
from profkit.reports import isolated as isolated_module
from profkit.reports.isolated import (
    choose_hint,
    count_processors_to_use,
    is_fault_of_file,
    iterate_results_of_child_processes,
    run_in_child_processes,
)
from tests.reports import made

pytestmark = pytest.mark.slow

DIES = "tests.reports.crashing:dies"
SURROUNDINGS = "tests.reports.crashing:surroundings"


def test_answers_in_order_from_as_many_children_as_asked_for() -> None:
    items = [[n, "x"] for n in range(12)]
    found = run_in_child_processes("tests.reports.crashing:pid", items, 2, lambda *_: None)
    assert [item for item, _ in found] == items
    pids = {pid for _, pid in found}
    assert len(pids) <= 2
    assert os.getpid() not in pids


def test_children_are_forks_of_one_server() -> None:
    """What is imported and made before the first item is paid for once."""
    found = run_in_child_processes("tests.reports.crashing:server", [0.2] * 4, 3, lambda *_: None)
    pids, servers = map(set, zip(*found, strict=True))
    assert (len(pids), len(servers)) == (3, 1)
    assert os.getpid() not in servers


def test_who_loses_its_server_gets_another(tmp_path: Path) -> None:
    items = [str(tmp_path / "mark"), *[""] * 5]
    found = run_in_child_processes(
        "tests.reports.crashing:kills_server", items, 2, lambda _item, why: why
    )
    assert found == ["read"] * 6


def test_a_child_that_has_grown_is_replaced() -> None:
    pids = run_in_child_processes(
        "tests.reports.crashing:grows", [1, 1, 250, 1, 250, 1], 1, lambda *_: None
    )
    assert pids[0] == pids[1] == pids[2] != pids[3] == pids[4] != pids[5]


def test_what_the_library_makes_once_is_made_before_the_forks(tmp_path: Path) -> None:
    """26,000 pages, 60 ms: as much as a report of 5 MB, and for each fork again."""
    (tmp_path / "x.ncu-rep").write_bytes(made.report())
    items = [str(tmp_path / "x.ncu-rep")] * 3
    pages = run_in_child_processes("tests.reports.crashing:first_metric", items, 1, lambda *_: None)
    assert max(pages) < 2000


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_crash_costs_one_answer(jobs: int) -> None:
    items = ["a", "exit", "b", "crash", "c"]
    found = run_in_child_processes(DIES, items, jobs, lambda item, why: (item, why))
    assert [found[n] for n in (0, 2, 4)] == ["A", "B", "C"]
    assert found[1] == ("exit", "the process that read it ended with exit status 3")
    assert found[3][1].endswith("crashed on it: SIGSEGV")


@pytest.mark.parametrize("times", [0, 1])
def test_who_is_killed_from_outside_is_asked_again(
    tmp_path: Path, times: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """kill -9 of a worker says nothing of the file it had in hand."""
    items = [[str(tmp_path / "a"), 0], [str(tmp_path / "b"), times], [str(tmp_path / "c"), 0]]
    found = run_in_child_processes(
        "tests.reports.crashing:killed", items, 1, lambda _item, why: why
    )
    assert found == ["read", "read", "read"]
    assert capfd.readouterr().err == ""


def test_who_is_killed_twice_says_nothing_of_its_file(tmp_path: Path) -> None:
    items = [[str(tmp_path / "a"), 2], [str(tmp_path / "b"), 0]]
    first, second = run_in_child_processes(
        "tests.reports.crashing:killed", items, 1, lambda _item, why: why
    )
    assert first.endswith("were killed (SIGKILL), not by what is in it")
    assert not is_fault_of_file(first)
    assert second == "read", "the others are"


def test_where_memory_is_limited_who_is_killed_twice_had_too_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has no memory may not even say so: that nothing was told is no word of the file."""
    monkeypatch.setattr("profkit.reports.isolated.is_memory_limited", lambda: True)
    items = [[str(tmp_path / "a"), 2], [str(tmp_path / "b"), 1]]
    found = run_in_child_processes(
        "tests.reports.crashing:killed", items, 1, lambda _item, why: why
    )
    assert found == [OUT_OF_MEMORY, "read"]


@pytest.mark.parametrize("where", ["environment", "group", "child"])
def test_a_fork_without_memory_tells_so(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was doing: before it has children, and in a child that has not begun to read."""

    def refuse(*_words: object) -> None:
        raise MemoryError

    if where == "environment":
        monkeypatch.setattr("profkit.reports.serving.os.environ", _Refusing())
    elif where == "group":
        monkeypatch.setattr("profkit.reports.serving._serve_group", refuse)
    else:
        monkeypatch.setattr("profkit.reports.serving._answer_items", refuse)
    items, answers, ended, alive = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    here = os.open(".", os.O_RDONLY)
    child = os.fork()
    if not child:
        passed = [here, alive[1], items[0], answers[1], ended[1]]
        serving._run_as_group(str, (str,), passed, {})
        os._exit(99)
    for end in (here, alive[1], items[0], answers[1], ended[1]):
        os.close(end)
    with os.fdopen(ended[0], "rb") as told:
        assert told.read() == b"%d" % serving.FULL
    os.waitpid(child, 0)
    for end in (alive[0], items[1], answers[0]):
        os.close(end)


class _Refusing(dict[str, str]):
    """An environment for which there is no memory."""

    def clear(self) -> None:
        raise MemoryError


@pytest.mark.parametrize("is_large", [False, True])
def test_a_report_whose_readers_are_killed_costs_itself_alone(
    tmp_path: Path, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not said to be damaged, and the next one is read."""
    for name in "ab":
        (tmp_path / f"{name}.ncu-rep").write_bytes(made.report())
    if is_large:
        monkeypatch.setattr(reader, "LARGE", 0)
    monkeypatch.setattr(reader, "FEW", 0)
    real = isolated_module._Child.take_answer

    def take_answer(
        self: isolated_module._Child, make_result_of_dead: Callable[[Any, str], Any]
    ) -> Any:
        result = real(self, make_result_of_dead)
        item = self.task[1]
        if result is isolated_module._NOT_YET or str(tmp_path / "a") not in str(item):
            return result
        return make_result_of_dead(item, isolated_module.KILLED_TWICE.format(signal="SIGKILL"))

    monkeypatch.setattr(isolated_module._Child, "take_answer", take_answer)
    killed, read = reader.read_report_files([tmp_path / "a.ncu-rep", tmp_path / "b.ncu-rep"]).files
    assert (killed.status, read.status) == ("unreadable", "ok")
    assert not is_fault_of_file(killed.message)


def test_a_mistake_of_the_user_comes_through() -> None:
    with pytest.raises(ProfkitError, match="mend: is wrong") as caught:
        run_in_child_processes(DIES, ["mend"], 1, lambda *_: None)
    assert caught.value.hint == "mend it"


def test_the_next_call_has_the_same_server_as_this_process_is_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports are paid for once; folder and environment are those of the call."""
    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.chdir(tmp_path.parent)
    (before,) = run_in_child_processes(SURROUNDINGS, [1], 1, lambda *_: None)
    assert before[1:] == ["16", os.getcwd()]
    monkeypatch.setenv("COLUMNS", "17")
    monkeypatch.chdir(tmp_path)
    after, other = run_in_child_processes(SURROUNDINGS, [1, 2], 1, lambda *_: None)
    assert after == other == [before[0], "17", str(tmp_path)]
    monkeypatch.syspath_prepend(str(tmp_path))  # the current folder is not looked into
    assert run_in_child_processes(SURROUNDINGS, [1], 1, lambda *_: None)[0][0] == before[0]
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert run_in_child_processes(SURROUNDINGS, [1], 1, lambda *_: None)[0][0] != before[0], (
        "other imports"
    )


def test_a_server_that_was_killed_between_two_calls_is_replaced() -> None:
    before, after = (
        run_in_child_processes(SURROUNDINGS, [1], 1, lambda *_: None)[0][0] for _ in range(2)
    )
    os.kill(after, signal.SIGKILL)
    again = run_in_child_processes(SURROUNDINGS, [1], 1, lambda *_: None)[0][0]
    assert before == after != again


def test_more_children_than_a_request_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profkit.reports.isolated.AT_ONCE", 2)
    found = run_in_child_processes("tests.reports.crashing:server", [0.2] * 4, 3, lambda *_: None)
    pids, groups = map(set, zip(*found, strict=True))
    assert (len(pids), len(groups)) == (3, 2)


HOSTILE = [
    "a pickle",
    "an enveloped pickle",
    "a pickle where bytes may be",
    "garbage",
    "nothing",
    "half",
    "no such kind",
    "another type",
    "another field",
    "deep",
    "deep JSON",
    "a long number",
    "half a part",
    "fewer values",
    "a huge launch",
    "too much",
    "far too much",
]


def test_a_child_that_was_taken_over_takes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever bytes a child answers with: its report is damaged, the others come, nothing runs."""
    names = [name for how in HOSTILE for name in (f"hostile {how}.ncu-rep", f"good {how}.ncu-rep")]
    for name in names:
        (tmp_path / name).write_bytes(made.report())
    real = f"{reader.__name__}:read_report_unless_large"
    monkeypatch.setattr(
        cluster,
        "iterate_results_of_child_processes",
        lambda f, *rest: iterate_results_of_child_processes(
            "tests.reports.crashing:hostile_part" if f == real else f, *rest
        ),
    )
    found = reader.read_report_files([tmp_path / name for name in names], jobs=2)
    states = {Path(file.path).name: file.status for file in found.files}
    assert states == {name: "damaged" if "hostile" in name else "ok" for name in names}
    assert len(found.launches) == len(names), "of the damaged ones another child reads the metrics"
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("how", ["silent", "half"])
def test_a_child_that_does_not_answer_is_not_waited_for_for_ever(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = "tests.reports.crashing:hangs"
    assert run_in_child_processes(hangs, ["a"], 1, lambda _item, why: why) == [
        "a"
    ]  # the server has imported now
    monkeypatch.setattr("profkit.reports.isolated.ANSWER_PATIENCE", 2.0)
    found = run_in_child_processes(hangs, ["a", how, "b"], 1, lambda _item, why: why)
    assert (found[0], found[2]) == ("a", "b")
    assert found[1] == "the process that read it gave no answer: it had not answered after 2 s"


def test_an_answer_is_of_the_type_that_the_function_returns() -> None:
    """Names of files that are not UTF-8 among it, which msgpack has no form for."""
    name = os.fsdecode(b"caf\xe9")
    assert (
        run_in_child_processes("tests.reports.crashing:pid", [name], 1, lambda *_: None)[0][0]
        == name
    )
    with pytest.raises(ProfkitError, match="mend caf") as caught:
        run_in_child_processes(DIES, [f"mend {name}"], 1, lambda *_: None)
    assert caught.value.message == f"mend {name}: is wrong"


def test_half_an_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a child that stopped within its answer, which has ten minutes, all others are read."""
    monkeypatch.setattr("profkit.reports.isolated._PATIENCE", 0.5)  # that it has to end
    items = ["half", *"abcdef"]
    calls = iterate_results_of_child_processes(
        "tests.reports.crashing:hangs", items, 2, lambda _item, why: why
    )
    with closing(calls):
        assert [item for _, item, _ in islice(calls, 6)] == [*"abcdef"]


def test_an_answer_comes_in_many_pieces() -> None:
    (found,) = run_in_child_processes(
        "tests.reports.crashing:pid", ["x" * (3 << 20)], 1, lambda *_: None
    )
    assert found[0] == "x" * (3 << 20)


def test_no_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for what a new thread does first, Python waits for it for ever."""

    def refuse(_thread: threading.Thread) -> None:
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert run_in_child_processes(DIES, ["a", "crash", "b"], 2, lambda *_: None) == ["A", None, "B"]


def test_nothing_to_do() -> None:
    assert run_in_child_processes(DIES, [], 4, lambda *_: None) == []


def _script(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def test_a_script_without_a_main_guard(tmp_path: Path) -> None:
    for n in range(10):
        (tmp_path / f"{n}.ncu-rep").write_bytes(made.report())
    text = (
        f"from profkit.reports import reader\nprint(len(reader.load_reports({str(tmp_path)!r})))\n"
    )
    done = subprocess.run(
        _script(tmp_path, text),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "10\n"


def test_ctrl_c_ends_without_noise_and_without_children(tmp_path: Path) -> None:
    text = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "def slow(item):\n"
        "    Path(__file__).with_name(f'began.{os.getpid()}').touch()\n"
        "    time.sleep(0.2)\n    return item\n"
        "if __name__ == '__main__':\n"
        "    from profkit.reports.isolated import run_in_child_processes\n"
        "    print('ready', flush=True)\n"
        "    try:\n        run_in_child_processes('script:slow', list(range(1000)), 2, None)\n"
        "    except KeyboardInterrupt:\n        sys.exit(130)\n"
    )
    process = subprocess.Popen(
        _script(tmp_path, text),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    until = time.monotonic() + 300
    while len(list(tmp_path.glob("began.*"))) < 2:  # before, the interpreter prints its own
        assert time.monotonic() < until
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to the children too
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (130, "", "")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


ENDS = "tests.reports.crashing:ends"


def test_how_a_child_ended_is_said_in_a_clause() -> None:
    items = ["76", "memory", "1", "SIGABRT", "SIGBUS", "0"]
    found = run_in_child_processes(ENDS, items, 1, lambda item, why: (item, why))
    assert found == [
        ("76", "the process that read it ended with exit status 76"),
        ("memory", "the process that read it ended with exit status 76"),
        ("1", "the process that read it ended with exit status 1"),
        ("SIGABRT", "Nsight Compute's library crashed on it: SIGABRT"),
        ("SIGBUS", "Nsight Compute's library crashed on it: SIGBUS"),
        ("0", "the process that read it ended with exit status 0"),
    ]


def test_where_memory_is_limited_a_child_without_any_says_nothing_of_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Any other end is the file's all the same, and those behind it are read."""
    monkeypatch.setattr("profkit.reports.isolated.is_memory_limited", lambda: True)
    without = ["memory", "SIGABRT", "1", "76"]
    found = run_in_child_processes(ENDS, [*without, "SIGSEGV", "3", "0"], 1, lambda _item, why: why)
    assert found[:4] == [OUT_OF_MEMORY] * 4
    assert all(map(is_fault_of_file, found[4:]))
    assert choose_hint(OUT_OF_MEMORY, hint_about_file="") == "allow more of it"


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("are_few", [False, True])
def test_a_report_for_which_memory_is_short_costs_itself_alone(
    tmp_path: Path, is_large: bool, are_few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are read, whole or by pieces; where it is the only one, nothing can be read."""
    for name in ("a", "hungry", "z"):
        (tmp_path / f"{name}.ncu-rep").write_bytes(made.report())
    if is_large:
        monkeypatch.setattr(reader, "LARGE", 0)
    if not are_few:
        monkeypatch.setattr(reader, "FEW", 0)
    for module in (reader, isolated_module):
        monkeypatch.setattr(module, "is_memory_limited", lambda: True)

    def read_some_hungry(function: str, *rest: Any) -> Any:
        """Read with the stand-in: a child that reads what is called hungry has no memory left."""
        return iterate_results_of_child_processes(
            function.replace(reader.__name__, "tests.reports.crashing"), *rest
        )

    monkeypatch.setattr(isolated_module, "iterate_results_of_child_processes", read_some_hungry)
    monkeypatch.setattr(cluster, "iterate_results_of_child_processes", read_some_hungry)
    found = reader.read_report_files(sorted(tmp_path.iterdir()))
    assert [file.status for file in found.files] == ["ok", "unreadable", "ok"]
    assert (found.files[1].message, len(found.launches)) == (OUT_OF_MEMORY, 2)
    with pytest.raises(ProfkitError, match=r"hungry.ncu-rep: out of memory") as caught:
        reader.read_report_files([tmp_path / "hungry.ncu-rep"])
    assert caught.value.hint == "allow more of it"


@pytest.mark.parametrize(
    ("soft", "limited"), [(resource.RLIM_INFINITY, False), (1 << 40, True), (0, True)]
)
def test_memory_is_limited_by_the_soft_limit(
    soft: int, limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_AS):
        limits = {kind: (soft, resource.RLIM_INFINITY)}
        monkeypatch.setattr(resource, "getrlimit", lambda of, known=limits: known.get(of, (-1, -1)))
        assert is_memory_limited() is limited


def test_processors_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 5, 9}, raising=False)
    assert count_processors_to_use() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    assert count_processors_to_use() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert count_processors_to_use() == 1


@pytest.mark.parametrize("jobs", [1, 3])
def test_few_items_are_taken_ahead_and_each_is_told_when_it_is_done(jobs: int) -> None:
    """What is taken may be a copy on disk that is removed when it is done."""
    taken, done, open_ = 0, [], []

    def items() -> Iterator[int]:
        nonlocal taken
        for n in range(20):
            taken += 1
            open_.append(taken - len(done))
            yield n

    found = run_in_child_processes(
        "tests.reports.crashing:pid", items(), jobs, lambda *_: None, done.append
    )
    assert [item for item, _ in found] == sorted(done) == [*range(20)]
    assert max(open_) == jobs + 1
