"""Several GPUs: who is free takes the next, who fails gives it back, a case stays on one GPU."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.session import GivenBack, GpuPool
from profkit.records.paths import find_all_run_files
from profkit.records.record import read_record

from .conftest import Machine
from .test_verbs import profkit


def test_who_is_free_takes_the_next() -> None:
    done: dict[str, list[int]] = {"fast": [], "slow": []}
    slow_has_one, fast_has_nine = threading.Event(), threading.Event()

    def do(who: str, item: int, last: bool) -> None:
        if who == "slow":
            slow_has_one.set()
        assert (fast_has_nine if who == "slow" else slow_has_one).wait(300)
        done[who].append(item)
        if len(done["fast"]) == 9:
            fast_has_nine.set()

    GpuPool(["slow", "fast"]).share_items(range(12), do)
    assert sorted(done["slow"] + done["fast"]) == list(range(12))
    assert len(done["fast"]) > 2 * len(done["slow"]) > 0


def test_a_member_that_fails_gives_its_item_back() -> None:
    done: list[tuple[str, int]] = []
    fallen = threading.Event()

    def do(who: str, item: int, last: bool) -> None:
        if who == "broken":
            fallen.set()
            raise ProfkitError("fell off the bus")
        assert fallen.wait(300)
        done.append((who, item))

    pool = GpuPool(["broken", "good"])
    pool.share_items(range(5), do)
    assert sorted(done) == [("good", i) for i in range(5)]
    assert [(who, error.message) for who, error in pool.lost] == [("broken", "fell off the bus")]
    with pytest.raises(ProfkitError, match="none left"):
        pool.share_items([1], lambda *_: (_ for _ in ()).throw(ProfkitError("none left")))


def test_what_one_could_not_another_tries_and_the_last_decides() -> None:
    tried: list[tuple[int, int, bool]] = []

    def do(who: int, item: int, last: bool) -> None:
        time.sleep(0.02)
        tried.append((who, item, last))
        if item == 0 and not last:
            raise GivenBack("perhaps it was me")

    pool = GpuPool([1, 2, 3])
    pool.share_items(range(4), do)
    mine = [(who, last) for who, item, last in tried if item == 0]
    assert sorted(who for who, _ in mine) == [1, 2, 3], "each once"
    assert [last for _, last in mine] == [False, False, True]
    assert pool.lost == []


def test_what_was_given_back_is_tried_again_when_nobody_else_is_left() -> None:
    """The one that could have tried it falls off the bus first: once this waited forever."""
    given_back = threading.Event()
    done: list[tuple[str, int, bool]] = []

    def do(who: str, item: int, last: bool) -> None:
        if who == "broken":
            assert given_back.wait(300)
            raise ProfkitError("fell off the bus")
        if item == 0 and not last:
            given_back.set()
            raise GivenBack("perhaps it was me")
        done.append((who, item, last))

    pool = GpuPool(["good", "broken"])
    sharing = threading.Thread(target=pool.share_items, args=(range(3), do), daemon=True)
    sharing.start()
    sharing.join(60)
    assert not sharing.is_alive()
    assert ("good", 0, True) in done
    assert sorted(item for _, item, _ in done) == [0, 1, 2]


def test_a_bug_in_a_thread_is_raised_where_the_items_came_from() -> None:
    began = threading.Event()

    def do(who: int, item: int, last: bool) -> None:
        began.set()
        raise KeyError(item)

    with pytest.raises(KeyError):
        GpuPool([1, 2]).share_items(range(3), do)
    assert began.is_set()


@pytest.fixture
def two(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The stand-in machine with two GPUs."""
    monkeypatch.setenv("FAKE_GPUS", "2")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return machine


@pytest.mark.slow
def test_check_shares_variants_and_one_gpu_may_die(two: Machine) -> None:
    """A crash on one GPU is the variant's fault only if it comes on the other too."""
    crash = "{ __builtin_trap(); }"
    for name in ("v1", "v2", "v3"):
        two.write(f"{name}_x.cu")
    on_first = "if (getenv(\"CUDA_VISIBLE_DEVICES\")[0] == '0' && a->size[0] > 0) "
    for name, before in (("flaky", on_first + crash), ("bad", crash)):
        path = two.write(f"{name}_x.cu", before=before)
        path.write_text(path.read_text().replace("<cstdint>", "<cstdint>\n#include <stdlib.h>"))
    words = ("check", "--all", "--gpus", "all", "--case", "B", "--json")
    done = profkit(*words, status=1)
    found = {c["variant"]: c["status"] for c in json.loads(done.stdout)["checks"]}
    assert found == {"v1": "right", "v2": "right", "v3": "right", "flaky": "right", "bad": "failed"}
    listed = json.loads(profkit("list", "--json").stdout)["variants"]
    assert list(found) == [v["variant"] for v in listed], (
        "in the ladder's order, whoever ends first"
    )
    assert "bad was given to another GPU: at " in done.stderr


@pytest.mark.slow
def test_profile_of_two_cases_on_two_gpus(two: Machine) -> None:
    pytest.importorskip("ncu_report")
    for name in ("v1", "v2", "v3"):
        two.write(f"{name}_x.cu")
    done = profkit("profile", "--all", "--case", "B", "--case", "C", "--gpus", "2", "--json")
    runs = json.loads(done.stdout)["runs"]
    assert [(r["variant"], r["case"]) for r in runs] == [
        (v, c) for v in ("v1", "v2", "v3") for c in "BC"
    ]
    files = find_all_run_files(two.artifacts)
    assert len(files) == 6
    records = [read_record(f.record) for several in files.values() for f in several if f.record]
    sessions = {c: {r.timing_session for r in records if r.case == c} for c in "BC"}
    assert all(len(s) == 1 for s in sessions.values()), "a case takes turns in one process"
    assert {r.ncu.visible for r in records} <= {"0", "1"}
    assert Path(two.artifacts).is_dir()


@pytest.mark.slow
def test_bench_on_gpus_that_are_not_there(two: Machine) -> None:
    two.write("v1_x.cu")
    done = profkit("bench", "--variant", "v1", "--gpus", "3", status=2)
    assert "--gpus 3: there are 2 GPUs" in done.stderr
    for none in ("0", "00"):
        done = profkit("check", "--variant", "v1", "--gpus", none, status=2)
        assert f"--gpus {none}: on no GPU nothing is measured" in done.stderr
    done = profkit("bench", "--variant", "v1", "--aa", "2", "--gpus", "all", status=2)
    assert "--aa uses one GPU" in done.stderr


@pytest.mark.slow
@pytest.mark.slow
def test_cases_on_the_gpus_of_a_cluster(machine: Machine, tmp_path: Path) -> None:
    """Each case is one task of a worker that has a GPU; a scheduler without one is told."""
    distributed = pytest.importorskip("distributed")
    pytest.importorskip("ncu_report")
    for name in ("v1", "v2"):
        machine.write(f"{name}_x.cu")
    words = ("profile", "--all", "--case", "B", "--case", "C", "--kernels", machine.kernels)
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options, resources={"GPU": 1}) as local:
        done = profkit(*words, "--on", local.scheduler_address)
    assert "case B on" in done.stderr
    assert "exit status 0" in done.stderr
    assert len(find_all_run_files(machine.artifacts)) == 4
    with distributed.LocalCluster(**options) as local:
        none = profkit(*words, "--on", local.scheduler_address, status=2)
    assert "no worker of this scheduler has a GPU to give" in none.stderr
