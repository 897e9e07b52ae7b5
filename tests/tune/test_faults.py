"""Configurations that are wrong, crash, hang, lose the context or do not build: no trial is lost."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.errors import ProfkitError
from tests.sweeps import take_part

from .conftest import INSIDE, KEYS, WHICH, Bench

pytestmark = pytest.mark.slow

SMALL = """tune: TILE=2,1,4 WARPS=1,2
   where: TILE >= WARPS"""
BAD = "if (TILE == 4 && a->size[0])"
FAULTS = {
    # what -> (before the launch, inside the kernel, outcome, words of the reason)
    "crash": (f"{BAD} std::abort();", "", "failed", "the process crashed"),
    "context": (
        f"{BAD} return cudaErrorIllegalAddress;",
        "",
        "failed",
        "ILLEGAL_ADDRESS",
    ),
    "hang": (
        f"{BAD} for (;;) sleep(1);",
        "",
        "failed",
        "it hung: nothing came back for 3",
    ),
    "wrong": ("", "if (TILE == 4) out[0] = 0x7fff;", "wrong", "elements are NaN"),
    "code": (
        f"{BAD} return cudaErrorInvalidValue;",
        "",
        "failed",
        "profkit_launch",
    ),
    "unsupported": (
        "if (TILE == 4 && a->size[0] == 17) return cudaErrorNotSupported;",
        "",
        "refused",
        "not supported: n17, which the defaults can",
    ),
}


@pytest.mark.parametrize("fault", take_part(FAULTS, one_of=2))
def test_a_bad_configuration_ends_its_trial_only(knob: Bench, fault: str, tmp_path: Path) -> None:
    before, inside, outcome, words = FAULTS[fault]
    knob.write(SMALL, before, INSIDE.replace("MODE", "1") + inside)
    # A busy machine may not have come to a word within three seconds: then again, with more of them.
    for timeout in (3, 20, 120) if fault == "hang" else (120,):
        storage = f"sqlite:///{tmp_path}/{timeout}.db"
        options = {"trials": 5, "timeout": timeout, "profile": False}
        trials = knob.search(storage=storage, **options).study.list_trials_but_waiting()
        healthy = {t.outcome for t in trials if t.config.values_by_macro["TILE"] != "4"}
        if healthy <= {"measured", "pruned"}:
            break
    assert sum(t.is_counted for t in trials) == 5
    bad = [t for t in trials if t.config.values_by_macro["TILE"] == "4"]
    assert {t.outcome for t in bad} == {outcome}
    assert all(words in (t.result.reason or "") for t in bad), bad
    assert {t.outcome for t in trials if t not in bad} <= {"measured", "pruned"}


def test_what_does_not_compile_is_refused_and_counted(knob: Bench) -> None:
    stop = '  static_assert(TILE != 4, "four is too many");'
    knob.write(SMALL, inside=INSIDE.replace("MODE", "1") + stop)
    result = knob.search(trials=5, profile=False)
    assert result.describe_search().refused == {"does not compile": 2}
    refused = [t for t in result.study.list_trials_but_waiting() if t.outcome == "refused"]
    assert all("four is too many" in (t.result.reason or "") for t in refused)


def test_macros_without_effect_are_one_configuration(knob: Bench) -> None:
    knob.write(
        "tune: TILE=2,4 IDLE=1,2,3", inside=INSIDE.replace("MODE", "1").replace("WARPS", "1")
    )
    said = knob.search(trials=6, profile=False).describe_search().to_json()
    assert said["ended"] == "exhausted"
    assert said["distinct"] == 2
    assert said["outcomes"]["same"] == 4


def test_defaults_that_are_wrong_end_the_search(knob: Bench) -> None:
    knob.write(inside=INSIDE + "if (TILE == 4) out[0] = 0x7fff;")
    for resume in (False, True):
        with pytest.raises(ProfkitError, match="the defaults of knob are wrong: n1 seed 0"):
            knob.search(resume, trials=3)


def test_defaults_that_crash_end_the_search(knob: Bench) -> None:
    knob.write(before="if (TILE == 4) std::abort();")
    with pytest.raises(ProfkitError, match="the defaults of knob failed: the process crashed"):
        knob.search(trials=3)


def test_without_counters_the_search_goes_on(knob: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_NCU", "permission")
    said = knob.search(trials=4).describe_search().to_json()
    assert said["distinct"] == 4
    assert said["steering"]["proposed"] == 0
    assert "performance counters" in said["no_counters"]


@pytest.mark.parametrize(
    ("keys", "words", "says"),
    [
        ("", (), "declares nothing to tune"),
        ("tune: TILE=2,1 WARPS=1 MODE=1\n   where: TILE", (), "compares nothing"),
        (
            "tune: TILE=2,1 WARPS=1 MODE=1\n   where: TILE < 2",
            (),
            "the defaults of 'tune:' cannot be",
        ),
        ("tune: TILE=2,1 WARPS=1 MODE=1\n   watch: no_such-", (), "names no metric: no_such"),
        ("tune: TILE=2,1 WARPS=1 MODE=1\n   steer: barrier=TILE-", (), "names no rule: barrier"),
        (KEYS, ("--gpus", "3"), "--gpus 3: there are 1 GPUs"),
        (KEYS, ("--gpus", "x"), "--gpus x: not understood"),
        (KEYS, ("--storage", "nonsense"), "--storage nonsense"),
        (KEYS, ("--storage", "sqlite:////no/such/folder/x.db"), "unable to open database file"),
    ],
)
def test_mistakes_are_a_line_and_a_hint(
    knob: Bench, keys: str, words: tuple[str, ...], says: str
) -> None:
    knob.write(keys)
    # In this process: eight of ten parts of the time of each would be its start.
    done = CliRunner().invoke(app, ["tune", *WHICH, *words])
    assert done.exit_code == 2, done.output
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout == ""


def test_ncu_waits_for_others_on_the_only_gpu(
    knob: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ncu's lock lies in the folder for temporary files: one of its own locks out nobody."""
    from profkit.lab.measure.worker import list_visible_devices_of_workers
    from profkit.lab.tune.trial import Profiler

    given = {}
    for count in ("1", "2"):
        monkeypatch.setenv("FAKE_GPUS", count)
        for visible in list_visible_devices_of_workers("all"):
            worker = SimpleNamespace(visible=visible, environment={"TMPDIR": "/shared"})
            given[count, visible] = Profiler(None, worker).make_ncu_environment(tmp_path)["TMPDIR"]  # type: ignore[arg-type]
    assert given == {
        ("1", None): "/shared",
        ("2", "0"): str(tmp_path / "tmp-0"),
        ("2", "1"): str(tmp_path / "tmp-1"),
    }
