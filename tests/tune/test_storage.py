"""A storage that several processes open at once."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow

optuna = pytest.importorskip("optuna")
exc = pytest.importorskip("sqlalchemy.exc")

if TYPE_CHECKING:
    from profkit.lab.tune.study import Study


def fails(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """The next openings fail so; what was opened."""
    left, opened, real = list(errors), [], optuna.storages.RDBStorage

    def open_it(url: str, **words: Any) -> Any:
        opened.append(url)
        if left:
            raise left.pop(0)
        return real(url, **words)

    monkeypatch.setattr(optuna.storages, "RDBStorage", open_it)
    return opened


def wrapped(kind: str, said: str) -> Exception:
    """As SQLAlchemy hands on what a driver said."""
    error = getattr(exc, kind)("statement", {}, getattr(sqlite3, kind)(said))
    assert isinstance(error, Exception)
    return error


def test_tables_that_another_process_makes_meanwhile_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from profkit.lab.tune import storage

    opened = fails(
        monkeypatch,
        wrapped("OperationalError", "table studies already exists"),
        wrapped("IntegrityError", "UNIQUE constraint failed: alembic_version.version_num"),
    )
    made = storage.open_storage(f"sqlite:///{tmp_path}/a.db")
    assert made.get_all_studies() == []
    assert len(opened) == 3


def test_a_storage_that_cannot_be_opened_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from profkit.errors import ProfkitError
    from profkit.lab.tune import storage

    opened = fails(monkeypatch, *[wrapped("OperationalError", "unable to open database file")] * 9)
    url = f"sqlite:///{tmp_path}/a.db"
    with (
        pytest.raises(ProfkitError, match="unable to open"),
        storage.explain_unreachable_storage(url),
    ):
        storage.open_storage(url)
    assert len(opened) == 1


@pytest.fixture
def two(tmp_path: Path) -> "tuple[Study, Study]":
    """Two searches in one storage."""
    from profkit.lab.measure.variants import tunables
    from profkit.lab.tune.study import Study
    from profkit.records.header import VariantHeader

    space = tunables.read_tunable_space(
        VariantHeader("T", keys={"tune": "A=1,2,3,4"}), Path("x.cu")
    )
    one, other = (
        Study(f"sqlite:///{tmp_path}/a.db", "x", space, space.list_all_configs_even_refused())
        for _ in "ab"
    )
    return one, other


def test_a_trial_that_another_search_is_asking_for_is_not_given_up(
    two: "tuple[Study, Study]",
) -> None:
    from profkit.lab.tune.storage import name_this_process

    one, other = two
    asked = one._study.ask(one._dists)
    signs = threading.Timer(0.5, asked.set_user_attr, ("by", ["tpe", name_this_process()]))
    signs.start()
    assert other.propose_interrupted_trials() == 0
    signs.join()
    assert [t.outcome for t in one.list_trials_but_waiting()] == ["running"]


def test_a_trial_that_nobody_ever_signed_is_taken_up(
    two: "tuple[Study, Study]", monkeypatch: pytest.MonkeyPatch
) -> None:
    from profkit.lab.tune import study

    one, other = two
    lost = one._study.ask(one._dists)
    monkeypatch.setattr(study, "_SIGNS", 0.2)
    assert other.propose_interrupted_trials() == 1
    assert [t.outcome for t in other.list_trials_but_waiting()] == ["interrupted"]
    again = other.begin_next_trial()
    assert again is not None
    assert again.config.values_by_macro == {"A": str(lost.params["A"] + 1)}


def test_what_another_search_gave_up_ends_without_a_result(two: "tuple[Study, Study]") -> None:
    one, other = two
    for _ in range(2):
        trial = one.begin_next_trial()
        assert trial is not None
        other._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    assert one.report_value_and_ask_to_prune(0, 1.0, 1)
    one.finish_trial(1, "measured", 1.0)
    assert [t.outcome for t in one.list_trials_but_waiting()] == ["interrupted", "interrupted"]


def test_of_two_searches_one_takes_what_waits(two: "tuple[Study, Study]") -> None:
    from optuna.trial import TrialState

    start, taken = threading.Barrier(2), []

    def take(study: "Study", trials: list[int]) -> None:
        storage = study._study._storage
        for number in trials:
            start.wait(300)
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                if storage.set_trial_state_values(number, state=TrialState.RUNNING):
                    taken.append(number)

    for _ in range(40):
        two[0]._study.enqueue_trial({"A": 0})
    waiting = [t._trial_id for t in two[0]._study.get_trials(deepcopy=False)]
    threads = [threading.Thread(target=take, args=(s, waiting)) for s in two]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == waiting


SHARED = """
import sys
from profkit.lab.tune.storage import open_storage
import optuna
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(storage=open_storage(sys.argv[1]), study_name="s", load_if_exists=True,
                            sampler=optuna.samplers.RandomSampler())
for _ in range(12):
    trial = study.ask()
    study.tell(trial, trial.suggest_float("x", 0, 1))
"""


def shared_by_three(url: str) -> None:
    """Three processes, as on three hosts, write twelve trials each; none is lost or twice."""
    words = [sys.executable, "-c", SHARED, url]
    both = [subprocess.Popen(words, cwd=ROOT) for _ in range(3)]
    assert [p.wait(timeout=120) for p in both] == [0, 0, 0]
    from profkit.lab.tune.storage import open_storage

    made = open_storage(url)
    assert optuna.get_all_study_names(made) == ["s"]
    trials = optuna.load_study(storage=made, study_name="s").trials
    if hasattr(made, "engine"):
        made.engine.dispose()
    assert [t.number for t in trials] == list(range(36))
    assert {t.state.name for t in trials} == {"COMPLETE"}


def test_a_journal_on_a_shared_disk(tmp_path: Path) -> None:
    shared_by_three(f"journal://{tmp_path}/search.log")
    from profkit.errors import ProfkitError
    from profkit.lab.tune.storage import explain_unreachable_storage, open_storage

    url = f"journal://{tmp_path}/nowhere/search.log"
    with (
        pytest.raises(ProfkitError, match="No such file") as raised,
        explain_unreachable_storage(url),
    ):
        open_storage(url)
    assert "journal:///shared" in raised.value.hint


@pytest.fixture
def postgres(tmp_path: Path):
    """A PostgreSQL server of Debian's package, on a socket in a folder of its own."""
    pytest.importorskip("psycopg")
    if not (shutil.which("initdb") and shutil.which("pg_ctl")):
        pytest.skip("PostgreSQL is not installed")
    where = Path(tempfile.mkdtemp(prefix="pg"))  # a socket's name is 107 bytes at most
    user = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    as_user = user if os.geteuid() == 0 else ()  # initdb refuses root
    if as_user:
        shutil.chown(where, "nobody", "nogroup")

    def run(*words: str) -> None:
        done = subprocess.run(
            [*as_user, *words], capture_output=True, text=True, cwd=where, check=False
        )
        if done.returncode:
            pytest.skip(f"{words[0]}: {done.stderr[-300:]}")

    data, options = str(where / "data"), f"-c listen_addresses= -k {where}"
    run("initdb", "-D", data, "-U", "profkit", "--auth=trust", "--no-sync")
    run("pg_ctl", "-D", data, "-w", "-l", str(where / "log"), "-o", options, "start")
    yield f"postgresql+psycopg://profkit@/postgres?host={where}"
    run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(where, ignore_errors=True)


@pytest.mark.slow
def test_postgresql(postgres: str) -> None:
    shared_by_three(postgres)
