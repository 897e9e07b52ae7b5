"""The page in a real browser: what it shows, what it does, and what it must never do.

Needs Playwright and a Chromium of the machine's own; without one all of this is skipped.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from profkit.diagnosis.document import make_diagnosis_document
from profkit.diagnosis.launches import JudgedLaunch, group_and_rank_launches, judge_reports
from profkit.evidence.counters import FindingChange, FindingSide, compare_launches
from profkit.files import write_text
from profkit.program.document import make_triage_document
from profkit.program.readers import read_timeline
from profkit.program.triage import triage_timeline
from profkit.reports import figures
from profkit.reports.figures import format_value_with_unit
from profkit.reports.frame import Reports
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import MEANING
from profkit.reports.reader import read_report_files
from profkit.show import page as pages
from profkit.show.page import render_program_page
from profkit.show.step import PageProgram
from profkit.show.text.escape import escape_text
from profkit.show.views.comparison import describe_finding_state, list_move_cells
from tests.conftest import ROOT
from tests.program.made import EXP, GEMM, MUL, SOFTMAX, Program, ran
from tests.show.conftest import HOSTILE, Made

pytestmark = pytest.mark.browser
api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REPORTS = ("stage1.B.ncu-rep", "stage2.B.ncu-rep", "sdpa-cudnn.B.ncu-rep", "copy.1GiB.ncu-rep")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser on this machine (looked for {', '.join(NAMES)})")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def runs() -> list[JudgedLaunch]:
    """The launches in the order of the page's rows."""
    found = judge_reports(read_report_files([ROOT / "artifacts" / name for name in REPORTS]))
    return [row.median_launch for row in group_and_rank_launches(found)]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    reports = read_report_files([ROOT / "artifacts" / name for name in REPORTS])
    path = tmp_path_factory.mktemp("real") / "page.html"
    write_text(path, pages.render_page(reports, judge_reports(reports)).html)
    return path


Open = Callable[..., Any]


@pytest.fixture
def tab(chromium: Any) -> Iterator[Open]:
    """Open a file; what the console said and what was asked of any network must stay empty."""
    opened, said = [], []

    def start(path: Path, fragment: str = "", **context: Any) -> Any:
        page = chromium.new_page(**context)
        opened.append(page)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda r: None if r.url.startswith("file:") else said.append(r.url))
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("html[data-ready=yes]", state="attached", timeout=90_000)
        return page

    yield start
    for page in opened:
        page.close()
    assert said == []


def _column(page: Any, key: str) -> list[str]:
    return page.eval_on_selector_all(
        "#overview tbody tr", f"rows => rows.filter(r => !r.hidden).map(r => r.dataset.{key})"
    )


def test_columns_sort_by_their_numbers(tab: Open, real: Path, runs: list[JudgedLaunch]) -> None:
    page = tab(real)
    times = [make_diagnosis_document((), [run]).to_json()["launches"][0]["time_s"] for run in runs]
    head = page.locator("th button[data-sort=time]")
    head.click()
    assert [float(t) for t in _column(page, "time")] == sorted(times, reverse=True)
    head.click()
    assert [float(t) for t in _column(page, "time")] == sorted(times)
    assert page.locator("th[aria-sort=ascending]").inner_text() == "time"
    page.locator("th button[data-sort=label]").click()
    assert _column(page, "label") == sorted(_column(page, "label"))


def test_search_and_choices_filter(tab: Open, real: Path, runs: list[JudgedLaunch]) -> None:
    page = tab(real)
    page.fill("#search", "stage2 shared")
    assert _column(page, "label") == ["stage2 B"]
    assert page.inner_text("#found") == "1 of 4"
    assert page.locator("details.one:not([hidden])").count() == 1
    page.fill("#search", "")
    page.select_option("#by-bound", "memory")
    of_memory = [n for n, run in enumerate(runs, 1) if run.diagnosis.bound == "memory"]
    assert [int(n) for n in _column(page, "number")] == of_memory
    page.fill("#search", "no such kernel")
    assert _column(page, "label") == []
    assert page.locator("#nothing").is_visible()
    page.click("#clear")
    assert len(_column(page, "label")) == 4
    assert not page.locator("#nothing").is_visible()


def test_a_chip_filters_by_bound_and_a_second_press_does_not(
    tab: Open, real: Path, runs: list[JudgedLaunch]
) -> None:
    page = tab(real)
    chip = page.locator(".chips button[data-bound=memory]")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "true"
    of_memory = [n for n, run in enumerate(runs, 1) if run.diagnosis.bound == "memory"]
    assert [int(n) for n in _column(page, "number")] == of_memory
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    assert len(_column(page, "number")) == 4


def test_escape_goes_back_to_the_row_that_was_opened(tab: Open, real: Path) -> None:
    page = tab(real)
    page.locator("#row-3").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Escape")
    assert page.evaluate("() => document.activeElement.id") == "row-3"


def test_words_of_the_verdict_and_rules_are_explained_in_the_page(tab: Open, real: Path) -> None:
    page = tab(real)
    targets = page.eval_on_selector_all(
        "a[href^='#word-']", "links => [...new Set(links.map(a => a.getAttribute('href')))]"
    )
    assert len(targets) > 5
    assert [t for t in targets if page.locator(t).count() != 1] == []


def _hover(page: Any, mark: Any) -> dict[str, str]:
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tip:not([hidden])")
    names, values = page.locator("#tip dt"), page.locator("#tip dd")
    return dict(zip(names.all_inner_texts(), values.all_inner_texts(), strict=True))


def test_hovering_a_stall_shows_the_number_of_the_json(
    tab: Open, real: Path, runs: list[JudgedLaunch]
) -> None:
    number = next(n for n, run in enumerate(runs, 1) if run.variant == "stage2")
    said = make_diagnosis_document((), [runs[number - 1]]).to_json()["launches"][0]["metrics"]
    page = tab(real, f"#launch-{number}")
    bars = page.locator(f"#launch-{number} .bars").first.locator("div")
    assert bars.count() > 3
    for n in range(3):
        state, text = (bars.nth(n).locator(tag).first for tag in ("dt", "dd"))
        assert text.inner_text() == format_value_with_unit(
            said[f"stall_{state.inner_text()}"], "share"
        )
        state.hover()
        assert state.get_attribute("title") == MEANING[state.inner_text()]


def test_hovering_the_roofline_shows_the_number_of_the_json(
    tab: Open, real: Path, runs: list[JudgedLaunch]
) -> None:
    page = tab(real)
    copy = next(run for run in runs if run.variant == "copy")
    points = page.locator("#rooflines .point", has_text="copy 1GiB")
    tip = _hover(page, points.first)
    assert tip["launch"] == "copy 1GiB"
    said = make_diagnosis_document((), [copy]).to_json()["launches"][0]["metrics"]
    assert tip["moved"] == format_value_with_unit(said[f"{tip['bytes of'].lower()}_rate"], "byte/s")
    assert tip["rate"] == "no arithmetic"


def test_a_row_under_the_pointer_stands_out_on_the_roofline(tab: Open, real: Path) -> None:
    page = tab(real)
    page.hover("#row-2 .name")
    opacity = "launches => launches.map(x => [x.dataset.launch, getComputedStyle(x).opacity])"
    looks = dict(page.eval_on_selector_all("#rooflines [data-launch]", opacity))
    assert looks == {"1": "0.15", "2": "1", "3": "0.15", "4": "0.15"}
    assert page.locator("#rooflines .picked .name:visible").all_text_contents() == ["stage2 B"]


def test_the_words_of_a_diagonal_run_along_it(tab: Open, real: Path) -> None:
    for width in (360, 1400):
        page = tab(real, viewport={"width": width, "height": 800})
        lines, words = (
            page.eval_on_selector_all(f"#rooflines {of}", said)
            for of, said in (
                (
                    ".roof line",
                    "all => all.map(l => l.getBoundingClientRect()).map(b => b.height / b.width)",
                ),
                (
                    ".slope",
                    "all => all.map(w => -Math.tan(w.transform.baseVal[0].angle * Math.PI / 180))",
                ),
            )
        )
        assert words == pytest.approx([rise for rise in lines if rise > 0.05], rel=0.05)


def test_keys(tab: Open, real: Path) -> None:
    page = tab(real)
    page.keyboard.press("/")
    page.keyboard.type("stage")
    assert page.inner_text("#found") == "2 of 4"
    page.keyboard.press("Escape")
    assert page.inner_text("#found") == "4 of 4"
    page.keyboard.press("j")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("k")
    focused = page.evaluate("() => document.activeElement.id")
    assert focused == "row-2"
    page.keyboard.press("Enter")
    assert page.locator("#launch-2[open]").count() == 1
    assert page.evaluate("() => document.activeElement.tagName") == "SUMMARY"


def test_a_link_from_outside_opens_its_launch(tab: Open, real: Path) -> None:
    page = tab(real, "#launch-3")
    assert page.locator("#launch-3[open] .body > .said").is_visible()
    assert not page.locator("#launch-2 .body > .said").is_visible()


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 2), (4, 1), (2, 2)])
def test_the_comparison_is_that_of_python(
    tab: Open, real: Path, runs: list[JudgedLaunch], before: int, after: int
) -> None:
    page = tab(real)
    page.select_option("#before", str(before))
    page.select_option("#after", str(after))
    one, other = runs[before - 1], runs[after - 1]
    said = compare_launches(
        {**one.values, "kernel": one.kernel},
        {**other.values, "kernel": other.kernel},
        (one.diagnosis, other.diagnosis),
    )
    assert _cells(page, "#compared .wide:not(.moved) tbody tr") == [
        list(_list_finding_cells(f)) for f in said.findings
    ]
    moved = _cells(page, "#compared .moved tbody tr")
    wanted = [list(list_move_cells(m)) for m in said.moved]
    assert [cells[:3] for cells in moved] == [cells[:3] for cells in wanted]
    for cells, want in zip(moved, wanted, strict=True):
        # JavaScript rounds halves up, Python to even: the last figure may be one off.
        step = 0.1 if want[3].endswith("points") else 0.01 if "." in want[3] else 1
        assert _number(cells[3]) == pytest.approx(_number(want[3]), abs=1.01 * step), want


def _list_finding_cells(change: FindingChange) -> tuple[str, ...]:
    """Return a finding's row: its state, what fixing it could gain on both sides, and why."""
    gains = [_format_gain_on_side(change, side) for side in (change.before, change.after)]
    has_amount = change.what in ("gone", "changed") and change.amount is not None
    if has_amount or change.what in ("hidden", "uncovered"):
        cause = change.why
    elif change.after.status == "fires":
        cause = change.after.cause
    else:
        cause = change.before.cause
    return describe_finding_state(change), change.rule, *gains, cause


def _format_gain_on_side(change: FindingChange, side: FindingSide) -> str:
    """Return what fixing a finding could gain on a side; "-" where its cause is there, unreported."""
    if side.status == "fires":
        return figures.format_speedup(side.gain) or "-"
    if side.status == "clear" and change.what in ("hidden", "uncovered"):
        return "-"
    return side.status


def _number(change: str) -> float:
    return (
        {"new": inf, "gone": 0.0}[change]
        if change in ("new", "gone")
        else float(change.split(maxsplit=1)[0].rstrip("x").replace(",", ""))
    )


def test_the_comparison_has_the_times_of_the_records(
    tab: Open, real: Path, runs: list[JudgedLaunch]
) -> None:
    page = tab(real)
    number = {run.variant: str(n) for n, run in enumerate(runs, 1)}
    page.select_option("#before", number["stage1"])
    page.select_option("#after", number["stage2"])
    before, after = (f"{1e6 * warm(v):.3g} µs ± " for v in ("stage1", "stage2"))
    assert re.search(rf"{before}[\d.]+ % → {after}[\d.]+ %", page.inner_text("#compared"))
    page.select_option("#after", number["copy"])
    assert "timed without a profiler" not in page.inner_text("#compared")


def warm(variant: str) -> float:
    """Seconds per call of a committed record at B."""
    said = json.loads((ROOT / f"artifacts/{variant}.B.json").read_text())
    return float(said["timing"]["l2"]["warm"]["median"])


def _cells(page: Any, rows: str) -> list[Any]:
    return page.eval_on_selector_all(
        rows, "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )


def test_hostile_names_stay_text(tab: Open, made: Made, tmp_path: Path) -> None:
    launches = [
        made(kernel=name, variant=name[:40] or None, report=name[:20], time=1e-4, index=n)
        for n, name in enumerate(HOSTILE)
    ]
    # Their files are not there, so each has a note about its source; names are what counts here.
    write_text(tmp_path / "page.html", pages.render_page(Reports(()), launches).html)
    page = tab(tmp_path / "page.html")
    assert page.locator("script").count() == 2
    assert page.locator("main img, main iframe, main b b").count() == 0
    text = page.evaluate("() => document.body.textContent")
    for name in HOSTILE:
        if 0 < len(name) < 200:
            assert escape_text(name) in text
    assert not set(text) & set("\x1b\u202e\u2066")
    page.select_option("#before", "3")
    page.click("#swap")
    assert page.locator("script").count() == 2


def test_the_policy_stops_a_script_that_is_not_ours(chromium: Any, real: Path) -> None:
    page = chromium.new_page()
    page.goto(real.as_uri())
    stopped = page.evaluate(
        """() => {
          const script = document.createElement('script');
          script.textContent = 'window.ran = true';
          document.body.append(script);
          return window.ran === undefined;
        }"""
    )
    page.close()
    assert stopped


def _shade(page: Any) -> int:
    colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return int(colour.split("(")[1].split(",")[0])


def test_light_and_dark(tab: Open, real: Path) -> None:
    assert _shade(tab(real, color_scheme="light")) > 200
    page = tab(real, color_scheme="dark")
    assert _shade(page) < 60
    page.click("#theme")  # light, whatever the system says
    assert _shade(page) > 200
    page.click("#theme")
    assert _shade(page) < 60


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_wider_than_the_screen(tab: Open, real: Path, width: int) -> None:
    page = tab(real, viewport={"width": width, "height": 800})
    page.click("#open-all")
    page.wait_for_timeout(300)
    over = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert over <= 0
    if width < 500:
        assert page.locator("#row-1 .verdict").is_visible()


def test_on_paper_stands_what_is_open(tab: Open, real: Path) -> None:
    """The answer and the table first; the first launch's details, and others on demand."""
    page = tab(real)
    page.emulate_media(media="print")
    assert page.locator(".answer").is_visible()
    assert page.locator("#launch-1 .chart svg").first.is_visible()
    assert not page.locator("#launch-2 .body > .said").is_visible()
    page.emulate_media(media="screen")
    page.click("#open-all")
    page.emulate_media(media="print")
    assert page.locator("#launch-2 .body > .said").is_visible()
    assert not page.locator("#search").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_what_is_folded_is_neither_laid_out_nor_drawn(tab: Open, real: Path) -> None:
    """A page of 190 launches opens at once because the browser draws only what is open."""
    page = tab(real)
    drawn = "[...document.querySelectorAll('.one .chart svg')].map(s => s.checkVisibility())"
    assert page.evaluate(drawn) == [True, False, False, False]
    page.click("#open-all")
    assert page.evaluate(drawn) == [True] * 4


def test_all_metrics_are_there_when_asked_for(
    tab: Open, real: Path, runs: list[JudgedLaunch]
) -> None:
    page = tab(real, "#launch-1")
    page.click("#launch-1 .metrics summary")
    rows = page.locator("#launch-1 .metrics tbody tr")
    rows.first.wait_for()  # they are written when the section says that it was opened
    cells = rows.all_inner_texts()
    assert len(cells) == len(CATALOGUE)
    said = make_diagnosis_document((), [runs[0]]).to_json()["launches"][0]["metrics"]
    name, value, _ = cells[0].split("\t")
    assert value == format_value_with_unit(said[name], CATALOGUE[name].unit)


def test_without_scripts_every_verdict_is_there(chromium: Any, real: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(real.as_uri())
    assert page.locator("#overview tbody tr").count() == 4
    assert "Without JavaScript" in page.inner_text("main")
    assert json.dumps(page.locator(".body > .said").all_text_contents()).count("of peak") >= 1
    context.close()


def test_what_axe_would_call_serious_is_not_there(tab: Open, real: Path) -> None:
    """Links look like links, what scrolls is reached by keyboard, no picture holds links."""
    opened = tab(real)
    opened.click("#open-all")
    opened.set_viewport_size({"width": 390, "height": 800})
    opened.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    opened.wait_for_timeout(300)
    looks = """[...document.querySelectorAll('.found a')].map(
        a => getComputedStyle(a).textDecorationLine)"""
    assert set(opened.evaluate(looks)) == {"underline"}
    stuck = """[...document.querySelectorAll('.wide')].filter(
        w => w.scrollWidth > w.clientWidth && w.tabIndex !== 0).length"""
    assert opened.evaluate(stuck) == 0
    assert opened.evaluate("[...document.querySelectorAll('.wide[tabindex]')].length") > 0
    assert opened.evaluate("document.querySelectorAll('[role=img] a').length") == 0
    assert opened.evaluate("document.querySelectorAll('th:empty').length") == 0
    points = "[...document.querySelectorAll('.roofline a')].map(a => a.tabIndex)"
    assert set(opened.evaluate(points)) == {-1}, "the table's rows lead there by keyboard"


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one step: a copy that holds the host, 400 kernels in turns, a wait."""

    def run(program: Program) -> None:
        program.copy(4_000_000, 8.0)
        for _ in range(100):
            for kernel in (GEMM, MUL, EXP, SOFTMAX):
                program.launch(kernel, 30.0)
        program.wait()

    folder = tmp_path_factory.mktemp("step")
    answer = triage_timeline(read_timeline(ran(run, 3).write(folder / "t.json")))
    path = folder / "page.html"
    write_text(
        path, render_program_page(PageProgram("t.json", answer, make_triage_document(answer)))
    )
    return path


BRIGHT = """() => [...document.querySelectorAll('.lanes .fill')].filter(
    bar => getComputedStyle(bar).opacity === '1').map(bar => bar.parentNode.textContent)"""


def test_a_finding_lights_what_it_covers(chromium: Any, step: Path) -> None:
    page = chromium.new_page(viewport={"width": 1440, "height": 900}, java_script_enabled=False)
    page.goto(step.as_uri())
    every = page.evaluate(BRIGHT)
    card = page.locator(".found", has_text="copy").first
    card.hover()
    lit = page.evaluate(BRIGHT)
    assert 0 < len(lit) < len(every)
    assert all("Memcpy" in text or text.startswith("idle, copy") for text in lit)
    page.mouse.move(1, 1)
    assert page.evaluate(BRIGHT) == every
    card.focus()  # the keyboard's way
    assert page.evaluate(BRIGHT) == lit
    row = page.locator("tr.lights", has_text="gemm").first
    row.hover()  # what is pointed at comes before what has the focus
    assert {text.split(":")[0] for text in page.evaluate(BRIGHT)} == {"gemm"}
    page.locator(".lanes .k-copy").first.hover()
    shade = "card => getComputedStyle(card).backgroundColor"
    assert card.evaluate(shade) != page.locator("body").evaluate(shade)
    page.close()


def test_tab_reaches_cards_and_rows_and_no_bar(chromium: Any, step: Path) -> None:
    page = chromium.new_page()
    page.goto(step.as_uri())
    reached = []
    stops = page.locator(".lights").count() + page.locator(".found a, .kernels a").count()
    for _ in range(stops):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.closest('.lanes') === null"))
    assert all(reached)
    assert page.evaluate("() => document.activeElement.matches('tr.lights')")
    page.close()


@pytest.mark.parametrize("width", [390, 1440])
def test_a_step_fits_the_screen_and_its_timeline_stays(
    chromium: Any, step: Path, width: int
) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 700}, color_scheme="dark")
    page.goto(step.as_uri())
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator("tr.lights").last.scroll_into_view_if_needed()
    assert page.locator(".lanes").bounding_box()["y"] >= 0
    over = "tables => tables.filter(x => x.scrollWidth > x.clientWidth).length"
    assert page.eval_on_selector_all(".wide", over) == 0
    assert _shade(page) < 60
    page.emulate_media(media="print")
    assert page.eval_on_selector(".lanes", "x => getComputedStyle(x).position") == "static"
    page.close()
