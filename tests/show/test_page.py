"""The page without a browser: what is in it, what can get into it, and how it is written."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from profkit.diagnosis.document import make_diagnosis_document
from profkit.diagnosis.launches import NvidiaRule, group_and_rank_launches
from profkit.errors import ProfkitError
from profkit.evidence import counters as changes
from profkit.files import write_text
from profkit.reports.figures import format_share
from profkit.reports.frame import ReportFile, ReportLaunches, Reports
from profkit.show import page as pages
from profkit.show.text.escape import escape_text
from profkit.show.text.words import write_headline
from tests.conftest import ROOT
from tests.show.conftest import HOSTILE, Made

pytestmark = pytest.mark.slow

NONE = Reports(())
PLACED = {
    "fp32_rate": 1e12,
    "fp16_rate": 0.0,
    "fp64_rate": 0.0,
    "tensor_ops": 0.0,
    "dram_rate": 1e11,
    "peak_dram": 1e12,
    "peak_fp32": 2e13,
}


class Read(HTMLParser):
    """Every element with its text, as a browser would read it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open][-1] += data
        else:
            self.text.append(data)

    def payload(self) -> dict[str, object]:
        return json.loads(self.inside["script"][0])


@pytest.fixture(scope="module")
def hostile(made: Made) -> Read:
    runs = [
        made(
            kernel=name,
            report=f"{name[:40]}.ncu-rep",
            variant=name[:60],
            case=name[:20],
            device=name[:50],
            time=1e-4 * (n + 1),
            nvidia=(NvidiaRule(name[:50], name[:50], name[:80], 0.25, "local"),),
        )
        for n, name in enumerate(HOSTILE)
    ]
    return Read(pages.render_page(NONE, runs, title="<b>a title</b>").html)


def test_no_text_becomes_markup(hostile: Read) -> None:
    assert [tag for tag, _ in hostile.tags].count("script") == 2  # the data, ours
    assert not {"b ", "img", "iframe", "object", "embed", "base", "link"} & {
        t for t, _ in hostile.tags
    }
    for tag, attributes in hostile.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert "style" not in attributes, "an inline style is against the policy"
        target = attributes.get("href") or "#"
        assert target.startswith("#"), "nothing leads out of the page"
    assert "<b>a title</b>" in hostile.text


@pytest.mark.parametrize(
    "name", [n for n in HOSTILE if 0 < len(n) < 200], ids=lambda n: ascii(n)[:12]
)
def test_hostile_names_stay_readable_text(hostile: Read, name: str) -> None:
    assert escape_text(name) in "\n".join(hostile.text)


def test_nothing_acts_in_what_is_shown(hostile: Read) -> None:
    shown = "".join(hostile.text) + json.dumps(hostile.payload(), ensure_ascii=False)
    assert not set(shown) & {"\x1b", "\u202e", "\u2066", "\udc80", "\x07"}


def test_the_data_cannot_end_their_element(hostile: Read) -> None:
    html_data = hostile.inside["script"][0]
    assert "<" not in html_data
    kernels = [launch["kernel"] for launch in hostile.payload()["launches"]]
    assert any("script" in kernel for kernel in kernels)


def test_the_policy_knows_the_hashes_of_what_is_there(hostile: Read) -> None:
    policy = next(a["content"] for t, a in hostile.tags if a.get("http-equiv"))
    named = re.findall(r"'sha256-([^']+)'", policy)
    there = [*hostile.inside["script"][1:], *hostile.inside["style"]]
    assert named == [base64.b64encode(hashlib.sha256(x.encode()).digest()).decode() for x in there]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy


def test_the_page_asks_the_network_for_nothing(hostile: Read) -> None:
    for tag, attributes in hostile.tags:
        assert "src" not in attributes, tag
        assert "srcset" not in attributes, tag
    assert not re.search(r"url\(|@import", hostile.inside["style"][0])


def test_the_numbers_are_those_of_the_json(made: Made) -> None:
    run = made(rule="dram-bandwidth")
    read = Read(pages.render_page(NONE, [run]).html)
    (launch,) = read.payload()["launches"]
    said = make_diagnosis_document((), [run]).to_json()["launches"][0]["metrics"]
    names = [metric["name"] for metric in read.payload()["metrics"]]
    listed = zip(names, launch["values"], strict=True)
    assert {name: value for name, value in listed if value is not None} == said


def test_data_are_as_short_as_what_is_seen_of_them(made: Made) -> None:
    """A rule that is clear is a number, a key of a table stands once, no number has 17 digits."""
    run = made(rule="dram-bandwidth", time=1 / 3)
    payload = Read(pages.render_page(NONE, [run]).html).payload()
    (launch,) = payload["launches"]
    status = {f.rule: f.status for f in run.diagnosis.findings}
    assert [payload["rules"][n] for n in launch["clear"]] == [
        rule for rule in payload["rules"] if status.get(rule) == "clear"
    ]
    assert {rule: found[0] for rule, found in launch["findings"].items()} == {
        rule: s for rule, s in status.items() if s != "clear"
    }
    assert re.search(r"\d{10}", json.dumps(launch["values"])) is None


def test_what_cannot_be_read_is_named(made: Made) -> None:
    bad = ReportFile("cut & <torn>.ncu-rep", None, "damaged", "ends in the middle", 0, None)
    read = Read(pages.render_page(Reports((ReportLaunches(file=bad),)), [made()]).html)
    assert read.text.count("cut & <torn>.ncu-rep") == 2  # above the table and in the list
    assert "ends in the middle" in read.text


def test_a_page_without_a_launch_still_says_why() -> None:
    bad = ReportFile("a.txt", None, "unreadable", "not a report", 0, None)
    page = pages.render_page(Reports((ReportLaunches(file=bad),)), [])
    assert page.launches == 0
    assert "not a report" in Read(page.html).text


def test_top_keeps_the_worst_and_says_so(made: Made) -> None:
    runs = [made(kernel=f"k{n}", index=n, time=10.0**-n) for n in range(2, 6)]
    page = pages.render_page(NONE, runs, top=2)
    assert (page.launches, page.left_out) == (2, 2)
    assert [x["kernel"] for x in Read(page.html).payload()["launches"]] == ["k2", "k3"]
    assert "The 2 worst rows of 4." in " ".join("".join(Read(page.html).text).split())


def test_a_failed_launch_has_its_place(made: Made) -> None:
    page = pages.render_page(NONE, [made(status="failed", values={})])
    assert "failed" in Read(page.html).text


def test_what_no_hand_moves_needs_no_script(made: Made) -> None:
    """Warp states and pipes are elements of the page, and so are the rooflines with their points."""
    run = made(
        rule="long-scoreboard",
        values={**made(rule="long-scoreboard").values, "fma_busy": 0.25, "fma_busy_active": 0.5},
    )
    html = pages.render_page(NONE, [run]).html
    named = {s: v for s, v in run.values.items() if s.startswith("stall_") and v >= 0.005}
    assert named
    for state, value in named.items():
        assert f"<dt>{state.removeprefix('stall_')}<dd>{format_share(value)}".replace(
            " ", "\u00a0"
        ) in (html.replace(" ", "\u00a0"))
    assert "<dt>FMA<dd>25" in html
    placed = made(values={**made().values, **PLACED})
    html = pages.render_page(NONE, [placed]).html
    assert html.count('class="roofline"') == 2  # of the device, and of the launch
    assert re.findall(r'class="point"[^>]*><title>(.*?)</title>', html, re.DOTALL)[
        0
    ].splitlines() == [
        "launch: f",
        "bytes of: DRAM",
        "rate: 1.00 TFLOP/s FP32",
        "intensity: 10.0 op/byte",
        "moved: 100 GB/s",
        "roof: 10 % of DRAM",
    ]
    empty = pages.render_page(NONE, [made()]).html
    assert empty.count("No point: ") == 1
    assert "Hollow points" not in empty  # no legend for a picture that is not there


def test_names_of_launches_stand_where_there_is_room(made: Made) -> None:
    near = [made(f"k{n}", values={**made().values, **PLACED}) for n in range(3)]
    far = made("far", values={**made().values, **PLACED, "fp32_rate": 1e13})
    html = pages.render_page(NONE, [*near, far]).html
    named = re.findall(r'class="name always"[^>]*>(.*?)<', html)
    assert sorted(named)[0] == "far"
    assert len(named) == 2  # three are at one place, and one name stands for them


def test_the_heading_names_reports_and_a_launch_is_named_once(made: Made) -> None:
    html = pages.render_page(NONE, [made("alone")]).html
    assert "<h1>Kernels: a.ncu-rep, NVIDIA H200</h1>" in html
    row = html[html.index('id="row-1"') :]
    assert row[: row.index("</tr>")].count(">alone<") == 1


def test_every_chart_is_of_the_page_s_own_colours() -> None:
    style = (pages.WEB / "page.css").read_text("utf-8")
    assert set(re.findall(r"var\((--[a-z]+)\)", style)) <= set(re.findall(r"(--[a-z]+):", style))


def _contrast(one: str, other: str) -> float:
    """How much lighter one colour is than another, as WCAG 2 counts it."""
    light = []
    for colour in (one, other):
        red, green, blue = (
            part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
            for part in (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
        )
        light.append(0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)
    return max(light) / min(light)


def test_every_text_stands_out_from_its_ground_in_both_schemes() -> None:
    from typing import get_args

    from profkit.diagnosis.rule import Bound

    style = (pages.WEB / "page.css").read_text("utf-8")
    pairs = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", style)
    colours = {name: schemes for name, *schemes in pairs}
    for scheme in (0, 1):
        for text in ("ink", "faint", "link", *get_args(Bound)):
            for ground in ("paper", "raised"):
                found = _contrast(colours[text][scheme], colours[ground][scheme])
                assert found >= 4.5, f"{text} on {ground}: {found:.2f}"


def test_bounds_of_the_charts_are_the_verdict_s() -> None:
    from typing import get_args

    from profkit.diagnosis.rule import Bound

    style = (pages.WEB / "page.css").read_text("utf-8")
    assert set(re.findall(r"svg \.(\w+), \.key \.\1 ", style)) == set(get_args(Bound))


def test_the_thresholds_are_those_of_compare(made: Made) -> None:
    payload = Read(pages.render_page(NONE, [made()]).html).payload()
    assert payload["thresholds"] == {
        "points": changes.POINTS,
        "relative": changes.RELATIVE,
        "gain": changes.GAIN,
    }


def test_a_page_is_written_whole_or_not_at_all(made: Made, tmp_path: Path) -> None:
    page = pages.render_page(NONE, [made()])
    there = tmp_path / "page.html"
    there.write_text("the old one")
    write_text(there, page.html)
    assert there.read_text("utf-8") == page.html
    folder = tmp_path / "folder.html"
    folder.mkdir()
    with pytest.raises(ProfkitError, match=r"folder\.html: cannot be written"):
        write_text(folder, page.html)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.html", "page.html"]


def test_the_answer_stands_on_top_and_the_bar_is_all_of_the_time(made: Made) -> None:
    runs = [made("slow", 3e-3), made("quick", 1e-3)]
    html = pages.render_page(NONE, runs).html
    for sentence in write_headline(group_and_rank_launches(runs)):
        assert escape(sentence) in html.replace("\u00a0", " ")
    assert html.index('class="answer"') < html.index('id="overview"')
    bars = re.findall(r'<rect class="fill memory" x="([\d.]+)" y="0" width="([\d.]+)"', html)
    assert bars == [("0.0", "750.0"), ("750.0", "250.0")]
    assert re.findall(r'<rect class="saved" x="[\d.]+" y="0" width="([\d.]+)"', html) == [
        f"{1000 * run.seconds_saved / 4e-3:.2f}" for run in runs
    ]
    assert re.findall(r'<details class="one" id="launch-(\d)"[^>]* open>', html) == ["1"]


def test_a_launch_at_its_roof_says_so(made: Made) -> None:
    run = made()
    clear = replace(run.diagnosis, findings=())
    assert (
        "near the hardware limit" in pages.render_page(NONE, [replace(run, diagnosis=clear)]).html
    )


def test_a_page_needs_no_drawing_library(tmp_path: Path) -> None:
    """Its numbers are show/numbers': matplotlib takes half a second to start, and is an extra."""
    words = ["report", str(ROOT / "artifacts/stage2.B.ncu-rep"), "-o", str(tmp_path / "page.html")]
    code = (
        f"import sys; from profkit.cli.app import app; app({words!r}, standalone_mode=False); "
        "sys.exit('matplotlib' in sys.modules)"
    )
    made = subprocess.run([sys.executable, "-c", code], check=False, timeout=120, cwd=ROOT)
    assert made.returncode == 0
    assert (tmp_path / "page.html").stat().st_size > 100_000
