"""What the public functions return shows itself in a notebook, and is otherwise what it was."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

import profkit as pk
from profkit.diagnosis import launches
from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.reports import reader
from profkit.reports.metrics import CATALOGUE
from profkit.show.notebook import COLUMNS, Frame
from profkit.show.text.blocks import Grid, Heading, TextLine, render_html
from profkit.show.views.comparison import format_both_bounds
from tests.conftest import ROOT

from .conftest import HOSTILE

ARTIFACTS = ROOT / "artifacts"
REPORT = str(ARTIFACTS / "copy.1GiB.ncu-rep*")


class Seen(HTMLParser):
    """The tags and the text that a browser would make of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


OURS = {
    "div",
    "p",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "b",
    *(f"h{n}" for n in range(1, 7)),
}


@pytest.fixture(scope="module")
def runs() -> Frame:
    return pk.load(REPORT)


def test_a_frame_is_the_same_frame(runs: Frame) -> None:
    plain = reader.load_reports(REPORT)
    pd.testing.assert_frame_equal(pd.DataFrame(runs), plain)
    assert runs.attrs["reports"] == plain.attrs["reports"]
    every = launches.make_findings_frame(launches.judge_frame(plain))
    pd.testing.assert_frame_equal(pd.DataFrame(pk.diagnose(runs)), every)


def test_it_stays_one_through_pandas(runs: Frame) -> None:
    for made in (runs.query("time > 0"), runs[["time"]], runs.sort_values("time"), runs.copy()):
        assert isinstance(made, Frame)


def test_a_wide_frame_shows_the_leading_columns_with_units(runs: Frame) -> None:
    seen = Seen(runs._repr_html_())
    assert seen.tags.count("th") <= 2 * COLUMNS
    assert " µs" in seen.text or " ms" in seen.text
    assert " %" in seen.text
    assert f"{len(runs)} of {len(runs)} row" in seen.text
    assert f"of {len(runs.columns)} columns" in seen.text


def test_a_narrow_frame_shows_all_it_has(runs: Frame) -> None:
    names = list(CATALOGUE)[:COLUMNS]
    seen = Seen(runs[names]._repr_html_())
    assert [name for name in names if f"{name}\n" not in seen.text] == []


def test_what_was_not_collected_is_not_zero() -> None:
    seen = Seen(Frame({"time": [float("nan")], "gain": [float("nan")]})._repr_html_())
    assert "not collected" in seen.text
    assert "gain unknown" in seen.text
    assert "0" not in seen.text.replace("1 of 1 row, 2 of 2 columns", "")


def test_a_long_frame_is_cut_and_says_so() -> None:
    long = Frame({"time": [1e-6] * 500})
    seen = Seen(long._repr_html_())
    assert seen.tags.count("tr") < 100
    assert "of 500 rows" in seen.text


def test_an_index_with_a_meaning_is_shown(runs: Frame) -> None:
    assert "copy\n" in Seen(runs.set_index("variant")[["time"]]._repr_html_()).text
    assert "time\n" in Seen(runs[["time"]].T._repr_html_()).text


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_stays_text(text: str) -> None:
    name = text[:50].replace("\udc80", "")  # pandas has no such column names
    cells = {"kernel": [text], "cause": [text], name: [1.0], "evidence": [{text: 1.0}]}
    frame = Frame(cells, dtype=object)
    blocks = [Heading(text), TextLine(text, text), Grid((text,), ((text,),))]
    for shown in (frame._repr_html_(), render_html(blocks)):
        seen = Seen(shown)
        assert set(seen.tags) <= OURS
        assert seen.attributes <= {"style"}
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\udc80" not in shown


def test_a_comparison_shows_what_the_command_prints() -> None:
    found = pk.compare("stage1.B", "stage2.B", artifacts=ARTIFACTS)
    assert repr(found).startswith("stage2.B is faster than stage1.B: ")
    seen = Seen(found._repr_html_())
    assert seen.text.startswith("stage2.B is faster than stage1.B: ")
    assert format_both_bounds(found.changes[0].launches[0]) in " ".join(seen.text.split())
    assert found.to_json()["changes"][0]["after"] == "stage2.B"


def test_claims_show_their_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from profkit.evidence.claims import claim, decide\n\n\n"
        '@claim(who="<b>me</b>")\ndef one(evidence):\n    "One is one."\n'
        '    return decide(True, "it is")\n'
    )
    found = pk.claims(file, artifacts=ARTIFACTS)
    assert [j.outcome for f in found for j in f.claims] == ["holds"]
    seen = Seen(found._repr_html_())
    assert "One is one. [<b>me</b>]" in seen.text
    assert "color:green" in found._repr_html_()
    with pytest.raises(ProfkitError, match="no such folder"):
        pk.claims(file, artifacts=tmp_path / "nowhere")


def test_a_rule_of_ones_own_is_asked_too(runs: Frame) -> None:
    def check(launch: pk.Launch) -> pk.Hit | None:
        return pk.Hit("busy", 1.5, ("dram_busy",)) if launch["dram_busy"] > 0.5 else None

    def absent(launch: pk.Launch) -> pk.Hit | None:
        return pk.Hit("never", None, ()) if launch["declared_exps"] else None

    example = {"dram_busy": 0.9}
    words = {"title": "title", "meaning": "meaning", "advice": "advice"}
    own = [
        pk.Rule(
            id="mine",
            **words,
            check=check,
            fires=(example,),
            clear=({"dram_busy": 0.1},),
            explains=("dram",),
        ),
        pk.Rule(id="not-collected", **words, check=absent, fires=(example,), clear=(example,)),
    ]
    found = pk.diagnose(runs, rules=own).set_index("rule")
    assert len(found) == len(BY_ID) + 2
    assert (found.loc["mine", "status"], found.loc["mine", "gain"]) == ("fires", 1.5)
    assert found.loc["not-collected", "status"] == "unknown"


def test_two_recordings_are_compared_and_other_files_refused() -> None:
    data = ROOT / "tests/program/data"
    before, after = (
        data / f"{x}.planted.json.gz" for x in ("copy_pageable", "healthy_transformer")
    )
    compared = pk.compare(before, str(after))
    assert compared["promises"][0]["category"] == "copy"
    assert "before" in repr(compared)
    assert "<table" in compared._repr_html_()
    with pytest.raises(ProfkitError, match="is a recording of a program"):
        pk.compare(before, ARTIFACTS / "stage2.B.ncu-rep")


def test_a_triage_shows_itself_and_draws_its_step() -> None:
    frames = pk.triage(ROOT / "tests/program/data/copy_pageable.planted.json.gz")
    assert "What to do first" in repr(frames)
    assert max(map(len, repr(frames).splitlines())) <= 100
    assert "<table" in frames._repr_html_()
    assert {"line", "module", "op"} <= set(frames.kernels)
    ax = frames.plot()
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[:2] == ["computing 33.0 %", "copies 62.4 %"]
    assert ax.get_yticklabels()[1].get_text().replace("\n", " ").startswith("k1 Memcpy HtoD")


def test_plots_take_paths() -> None:
    of_path = pk.plots.stalls(ARTIFACTS / "stage2.B.ncu-rep")
    of_frame = pk.plots.stalls(pk.load(ARTIFACTS / "stage2.B.ncu-rep"))
    assert pk.plots.png(of_path) == pk.plots.png(of_frame)
    with pytest.raises(ProfkitError, match="no such file"):
        pk.plots.roofline("nowhere.ncu-rep")


def test_a_diagnosis_begins_with_the_answer_of_the_command_line() -> None:
    found = pk.diagnose(ROOT / "artifacts" / "stage2.B.ncu-rep")
    answer = found.attrs["answer"]["text"]
    assert answer.startswith("stage2<64> is limited by shared memory: 73.1 %")
    assert " ".join(repr(found).split()).startswith(answer)
    assert "is limited by" in found._repr_html_()
    part = found[found["rule"] == "fixed-latency"]  # of which it is not the answer
    assert "is limited by" not in repr(part)


def test_lines_show_where_and_how_much() -> None:
    shown = repr(pk.lines(str(ARTIFACTS / "stage2.B.ncu-rep"), count=1))
    assert "ptx.cuh" in shown
    assert "47 %" in shown


def test_a_finding_that_repeats_another_one_is_no_row() -> None:
    report = str(ARTIFACTS / "stage2.B.ncu-rep")
    every = pk.diagnose(report)
    fires = set(every[every["status"] == "fires"]["rule"])
    assert fires - set(pk.findings(report)["rule"]) == {"shared-bandwidth"}
