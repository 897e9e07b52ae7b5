"""A search that is stopped or killed goes on where it was; several GPUs share one."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from tests.sweeps import take_part

from .conftest import INSIDE, Bench

pytestmark = pytest.mark.slow

WIDE = "tune: TILE=4,1,2,8,16 WARPS=2,1,4 MODE=0,1"


def kill(knob: Bench, number: signal.Signals, *words: str, after: int) -> int:
    """Start a search, and send it a signal when so many trials have ended; its exit status."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = knob.command("--no-profile", *words)
    running = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 120
        while len(finished(knob)) < after and running.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.01)
        running.send_signal(number)
        said = running.communicate(timeout=120)[1]
    finally:
        running.kill()
        running.wait()
    assert "Traceback" not in said, said
    return running.returncode


def finished(knob: Bench) -> list[tuple[str, ...]]:
    """What has been tried, read from the file as another process sees it."""
    import sqlite3

    path = knob.machine.root / "build/tune/doubling.knob.B.db"
    if not path.is_file():
        return []
    with sqlite3.connect(path, timeout=30) as database:
        try:
            rows = database.execute(
                "select trial_id from trials where state in ('COMPLETE', 'PRUNED')"
            ).fetchall()
        except sqlite3.OperationalError:
            rows = []
    database.close()
    return rows


@pytest.mark.parametrize("number", take_part([signal.SIGKILL, signal.SIGTERM], one_of=2))
def test_killed_and_resumed_it_has_as_many_distinct_trials(
    knob: Bench, number: signal.Signals, processes
) -> None:
    knob.write(WIDE)
    status = kill(knob, number, "--trials", "6", after=2)
    assert status == (-9 if number == signal.SIGKILL else 130)
    trials = knob.search(resume=True, trials=6, profile=False).study.list_trials_but_waiting()
    counted = [t.config for t in trials if t.is_counted]
    assert len(counted) == len(set(counted)) == 6
    assert not [t for t in trials if t.outcome == "running"]
    if number != signal.SIGKILL:
        # Tests beside this one have workers, too.
        assert processes("profkit.lab.measure.server", str(knob.machine.root)) == []


def test_a_finished_search_is_read_without_a_gpu_worker(knob: Bench) -> None:
    first = knob.search(trials=4, profile=False)
    again = knob.search(resume=True, trials=4, profile=False)
    assert again.final.champion == first.final.champion
    assert again.outcome.workers[0].restarts == -1  # nothing was started
    more = knob.search(resume=True, trials=5, profile=False)
    assert sum(t.is_counted for t in more.study.list_trials_but_waiting()) == 5


def test_a_search_is_not_overwritten_nor_mixed(knob: Bench) -> None:
    knob.search(trials=3, profile=False)
    with pytest.raises(ProfkitError, match="with 3 trials already"):
        knob.search(trials=3, profile=False)
    knob.write(inside=INSIDE + "(void)0;")
    with pytest.raises(ProfkitError, match="made with another source"):
        knob.search(resume=True, trials=3, profile=False)


def test_time_ends_a_search_that_can_be_resumed(knob: Bench) -> None:
    with pytest.raises(ProfkitError, match="before the defaults were measured"):
        knob.search(trials=7, time=0.0, profile=False)
    knob.search(resume=True, trials=2, profile=False)
    # Five trials take longer wherever it is: the GPU alone is warmed up for 0.05 s in each.
    result = knob.search(resume=True, trials=7, time=0.2, profile=False)
    assert result.outcome.why == "time"
    assert 2 <= sum(t.is_counted for t in result.study.list_trials_but_waiting()) < 7
    trials = knob.search(resume=True, trials=7, profile=False).study.list_trials_but_waiting()
    assert sum(t.is_counted for t in trials) == 7


def test_two_gpus_share_a_search(knob: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_GPUS", "2")
    trials = knob.search(
        trials=9, visible=["0", "1"], profile=False
    ).study.list_trials_but_waiting()
    counted = [t for t in trials if t.is_counted]
    assert len({t.config for t in counted}) == len(counted) == 9
    assert {t.result.gpu for t in counted} == {"0", "1"}


@pytest.mark.parametrize("how", take_part(["std::abort();", "for (;;) sleep(1);"], one_of=2))
def test_a_gpu_that_fails_leaves_the_search_to_the_other(
    knob: Bench, how: str, tmp_path: Path
) -> None:
    bad = f"if (std::getenv(\"CUDA_VISIBLE_DEVICES\")[0] == '1' && a->size[0] > 0) {how}"
    knob.write(before=bad)
    for timeout in (3, 20, 120):  # a busy machine may not have come to a word within three seconds
        storage = f"sqlite:///{tmp_path}/{timeout}.db"
        options = {"trials": 6, "timeout": timeout, "profile": False}
        result = knob.search(visible=["0", "1"], storage=storage, **options)
        if [x.split(":")[0] for x in result.outcome.lost] == ["GPU 1"]:
            break
    counted = [t for t in result.study.list_trials_but_waiting() if t.is_counted]
    assert len(counted) == 6
    assert {t.result.gpu for t in counted} == {"0"}
    assert [x.split(":")[0] for x in result.outcome.lost] == ["GPU 1"]


def test_two_processes_share_a_storage(knob: Bench, tmp_path: Path) -> None:
    words = ("--trials", "6", "--no-profile", "--resume", "--quiet")
    url = ("--storage", f"sqlite:///{tmp_path}/shared.db")
    both = [
        subprocess.Popen(knob.command(*words, *url, "-o", str(tmp_path / name)))
        for name in ("a", "b")
    ]
    assert [p.wait(timeout=300) for p in both] == [0, 0]
    result = knob.search(resume=True, storage=url[1], trials=6, profile=False)
    counted = [t.config for t in result.study.list_trials_but_waiting() if t.is_counted]
    assert len(counted) == len(set(counted))
    assert 6 <= len(counted) <= 7  # both may ask for the last one at the same time
