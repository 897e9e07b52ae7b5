"""The public names: ten lines of a notebook."""

from __future__ import annotations

import keyword
from pathlib import Path

import pytest

import profkit as pk
from profkit.show.notebook import reword_command
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_the_names_are_there() -> None:
    assert set(pk.__all__) <= set(dir(pk))
    with pytest.raises(AttributeError, match="nothing"):
        pk.nothing  # noqa: B018


def test_ten_lines_of_a_notebook() -> None:
    runs = pk.load(str(ROOT / "artifacts" / "**" / "sdpa-flash*.ncu-rep*"))
    found = pk.diagnose(runs)
    worst = found.query("status == 'fires'").sort_values("gain", ascending=False)
    assert len(runs) >= 3
    assert set(runs["variant"]) == {"sdpa-flash"}
    assert worst["gain"].iloc[0] > 1
    assert "long-scoreboard" in str(pk.explain("long-scoreboard"))
    assert pk.explain("long-scoreboard")._repr_markdown_().startswith("## long-scoreboard")
    assert "gpu__time_duration.sum" in pk.raw(ROOT / "artifacts" / "copy.1GiB.ncu-rep").columns


def test_findings_are_what_fired_with_columns_that_can_be_typed() -> None:
    given = [ROOT / "artifacts" / f"{name}.ncu-rep" for name in ("stage2.B", "copy.1GiB")]
    found, every = pk.findings(given), pk.diagnose(given)
    fired = list(every.rule[every["status"] == "fires"])
    fired.remove("shared-bandwidth")  # the bank conflicts of the row before, seen as a busy unit
    assert list(found.rule) == fired
    first = found.iloc[0]
    assert (first.kernel, first.rule) == (
        "void stage2<(int)64>(Attention)",
        "shared-bank-conflicts",
    )
    assert first.low < first.expected < first.high <= first.at_most
    assert first.advice.startswith("Pad the array by 16 bytes after each 128 ")
    assert not [name for name in found.columns if keyword.iskeyword(name)]
    assert "at most" in found._repr_html_()


def test_savings_of_findings_add_up_to_those_of_launches() -> None:
    given = [ROOT / "artifacts" / f"{name}.ncu-rep" for name in ("stage1.B", "stage2.B")]
    found = pk.findings(given)
    assert len(found) > 2
    assert list(found[found["saves"].notna()].rule) == ["fixed-latency", "shared-bank-conflicts"]
    of_launches = pk.diagnose(given).drop_duplicates(["report", "launch"])["saves"]
    assert found["saves"].sum() == pytest.approx(of_launches.sum())


def test_a_launch_where_nothing_fires_has_a_row() -> None:
    found = pk.findings({"kernel": "quiet", "time": 1e-3})
    (row,) = found.itertuples()
    assert row.kernel == "quiet"
    assert not isinstance(row.rule, str)
    assert row.cause


PAIR = [str(ROOT / "artifacts" / f"{name}.B.ncu-rep") for name in ("stage1", "stage2")]
GIVEN = ("path", "Path", "pattern", "list", "frame", "row", "variant", "case", "mapping")
NO_ARGUMENTS = {"plots", "ProfkitError", "Launch", "history", "triage"}


@pytest.fixture(scope="module")
def runs():
    return pk.load(PAIR)


@pytest.mark.parametrize("given", GIVEN)
def test_everything_that_a_person_would_give_is_taken(given: str, runs, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    row = runs.iloc[1]
    meant = {
        "path": PAIR[1],
        "Path": Path(PAIR[1]),
        "pattern": "artifacts/stage2.B.ncu-rep*",
        "list": [PAIR[1]],
        "frame": runs.iloc[[1]],
        "row": row,
        "variant": "stage2.B",
        "case": "stage2",
        "mapping": row.to_dict(),
    }[given]
    found = pk.diagnose(meant)
    assert "shared-bank-conflicts" in set(found.query("status == 'fires' and case == 'B'")["rule"])
    assert found.query("case == 'B'")["time"].iloc[0] == pytest.approx(5.51e-5, rel=0.01)
    assert "ptx.cuh" in {Path(file).name for file in pk.lines(meant)["file"]}
    assert "gpu__time_duration.sum" in pk.raw(meant).columns
    assert pk.whatif(meant, "shared_wavefronts*0.25")["expect"].iloc[0] > 1


@pytest.mark.parametrize("given", [3, None, [], object()])
def test_what_is_no_launch_is_said_in_our_words(given: object) -> None:
    with pytest.raises(pk.ProfkitError) as error:
        pk.diagnose(given)
    assert "a frame from pk.load" in error.value.hint


def test_a_name_that_nothing_has_is_answered_with_the_nearest(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(pk.ProfkitError) as error:
        pk.diagnose("stage22")
    assert "did you mean stage2" in error.value.hint


def test_a_name_that_the_package_lacks_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="no attribute 'diagnos'; did you mean diagnose"):
        _ = pk.diagnos
    assert pk.roofline is pk.plots.roofline


def test_a_traceback_shows_the_hint() -> None:
    with pytest.raises(pk.ProfkitError, match="no such file") as raised:
        pk.diagnose(str(ROOT / "artifacts" / "stage2.B.ncu-re"))
    assert raised.value.__notes__ == [raised.value.hint]
    assert "did you mean" in raised.value.hint


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("it is a trace: profkit triage a.json.gz", "it is a trace: pk.triage('a.json.gz')"),
        ("profkit triage 'my trace.json'", "pk.triage('my trace.json')"),
        ("profkit compare A B", "pk.compare('A', 'B')"),
        ("profkit explain lists all of them", "pk.explain() lists all of them"),
        ("profkit triage -- python train.py", None),  # no function records a program
        ("profkit triage -o NAME.triage ...", None),
        ("profkit triage AFTER says what each would save)", None),
        ("profkit report it's", None),
    ],
)
def test_a_hint_names_a_function_only_where_that_is_a_call(hint: str, said: str | None) -> None:
    assert reword_command(hint) == (said or hint)


def test_a_console_shows_what_fires_and_counts_the_rest(runs) -> None:
    shown = repr(pk.diagnose(runs))
    assert "shared-bank-conflicts" in shown
    assert "debug-build" not in shown
    assert " clear" in shown.splitlines()[-1]
    assert max(map(len, shown.splitlines())) <= 100
    assert "55.1 µs" in repr(pk.load(ROOT / "artifacts" / "stage2.B.ncu-rep"))
    few = pk.findings(runs)[["rule", "expected"]]
    assert repr(few).splitlines()[1].split() == ["fixed-latency", "1.52x"], "with its unit"


def test_several_launches_are_told_apart(runs) -> None:
    both = pk.lines(runs, count=2)
    assert list(both.columns[:2]) == ["report", "launch"]
    assert set(both["report"]) == set(PAIR)
    assert list(pk.raw(runs).index.names) == ["report", "launch"]
    assert len(pk.raw(runs.iloc[[0]])) == 1


def test_two_kernels_of_one_report_are_compared(runs) -> None:
    said = str(pk.compare(runs.iloc[0], runs.iloc[1]))
    assert "kernel: stage1<64> -> stage2<64>" in said
    assert "still there: short-scoreboard" in said
    foreign = runs.assign(variant=None, case=None, launch=[0, 1])
    said = str(pk.compare(foreign.iloc[0], foreign.iloc[1]))
    assert "whether stage2<64> (launch 1) is faster than stage1<64> (launch 0)" in said
    assert "profkit bench" not in said


def test_the_page_is_written_of_what_was_given(runs, tmp_path: Path) -> None:
    made = pk.report(runs.iloc[1], tmp_path / "page.html", title="One")
    text = made.read_text("utf-8")
    assert "<title>One" in text
    assert "stage2&lt;64&gt;" in text
    assert "stage1&lt;64&gt;" not in text


def test_verify_is_the_verb_s_name_and_takes_patterns(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(pk.verify("analyses/v3_gat*.py")) == 1
    with pytest.raises(pk.ProfkitError, match="matches no file"):
        pk.verify("analyses/nothing*.py")


def test_a_rule_of_ones_own_sees_columns_and_raw_counters(runs) -> None:
    def check(launch: pk.Launch) -> pk.Hit:
        text = f"{launch['mine']:.0f}, {launch['smsp__inst_executed.sum']:.0f}"
        return pk.Hit(text, None, ("mine", "smsp__inst_executed.sum"))

    def absent(launch: pk.Launch) -> pk.Hit:
        return pk.Hit(str(launch["no__such.counter"]), None, ())

    def rule(name: str, what) -> pk.Rule:
        return pk.Rule(
            id=name, title="t", meaning="m", advice="a", check=what, fires=({},), clear=({},)
        )

    found = pk.diagnose(runs.assign(mine=7), rules=[rule("mine", check), rule("none", absent)])
    fires = found.query("rule == 'mine'")
    assert set(fires["status"]) == {"fires"}
    raw = pk.raw(PAIR[0])["smsp__inst_executed.sum"].iloc[0]
    assert fires["cause"].iloc[0] == f"7, {raw:.0f}"
    assert fires["evidence"].iloc[0]["smsp__inst_executed.sum"] == raw
    unknown = found.query("rule == 'none'")
    assert set(unknown["status"]) == {"unknown"}
    assert "no__such.counter" in unknown["cause"].iloc[0]


def test_ceilings_of_a_roofline_can_be_given(runs) -> None:
    axes = pk.plots.roofline(runs, ceilings={"dram": 1e12, "fp32": 30e12})
    words = " ".join(text.get_text() for text in axes.texts)
    assert "DRAM 1.00 TB/s" in words
    assert "FP32 30.0 TFLOP/s" in words
    with pytest.raises(pk.ProfkitError, match="unknown ceiling drum"):
        pk.plots.roofline(runs, ceilings={"drum": 1e12})
    with pytest.raises(pk.ProfkitError, match="is not a rate"):
        pk.plots.roofline(runs, ceilings={"dram": -1.0})


@pytest.mark.parametrize("name", sorted(set(pk.__all__) - NO_ARGUMENTS))
def test_help_says_what_goes_in_and_comes_out(name: str) -> None:
    text = getattr(pk, name).__doc__
    assert "Args:" in text or "Attributes:" in text
    assert name in dir(pk)
