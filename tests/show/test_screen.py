"""What `profkit diagnose` prints where nobody asked for more: one screen, the answer on it."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.cells import cell_len
from rich.console import Console

from profkit.diagnosis.launches import JudgedLaunch, LaunchRow, group_and_rank_launches
from profkit.diagnosis.rule import LaunchFinding
from profkit.judge import Estimate
from profkit.show.text.terminal import make_console, render_text
from profkit.show.text.words import (
    describe_finding_gain,
    find_larger_gains,
    say_total_time,
    write_headline,
)
from profkit.show.views.screen import format_gain_cell, show_screen
from profkit.show.views.triage import make_kernels_table

from .conftest import HOSTILE, Made

CLOCKS = {"sm_clock": 0.8e9, "sm_clock_max": 2e9, "dram_clock": 6e9, "dram_clock_max": 6e9}


def show(rows: list[LaunchRow]) -> str:
    on = Console(file=io.StringIO(), width=80, markup=False, emoji=False, highlight=False)
    return render_text(show_screen(rows, rows[0]), on)


def test_five_launches_fit_thirty_lines_with_a_line_each(made: Made) -> None:
    """Whatever the names: four in a real report of a transpose."""
    names = ["naiveGmem", "transposeSmemUnrollPad<float, 32>(float *)", "copyGmem", "k", "f<1>"]
    rows = group_and_rank_launches([made(name, (5 - i) * 1e-4) for i, name in enumerate(names)])
    lines = show(rows).splitlines()
    assert len(lines) <= 30
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == "# kernel time saves top finding expected".split()
    for number, line in enumerate(table[1:6], 1):
        assert line.startswith(f"{number}  "), "one short name and one line per row"
    assert table[6] == ""


def test_a_screen_has_the_details_of_the_first_row_only(made: Made) -> None:
    shown = show(group_and_rank_launches([made("slow", 3e-3), made("quick", 1e-3)]))
    assert shown.count("excess_shared_wavefronts 87.5 %") == 1
    assert "\nslow: " in shown
    assert "\nquick: " not in shown


def test_what_is_open_is_said_once_and_last(made: Made) -> None:
    runs = [made(f"k{i}", index=i, values=CLOCKS) for i in range(3)]
    shown = show(group_and_rank_launches(runs))
    assert shown.count("clocks: ") == 1
    said = "clocks: in all 3 launches the SM clock was 800 of 2,000 MHz (40 %); ncu locked it"
    assert said in " ".join(shown.split())
    detail, _, after = shown.partition("clocks: ")
    assert "shared-bank-conflicts" in detail or "k0: " in detail
    assert after.splitlines()[2].startswith(("  not collected: ", "  not checked: "))


def test_one_of_several_launches_with_a_doubt_is_counted(made: Made) -> None:
    shown = show(group_and_rank_launches([made("f", 3e-3, values=CLOCKS), made("g", 1e-3)]))
    assert "clocks: in f the SM clock was 800 of 2,000 MHz" in " ".join(shown.split())
    other = made("g", 1e-3, device="NVIDIA L4")
    shown = show(group_and_rank_launches([made("f", 3e-3, values=CLOCKS), other]))
    assert "clocks: in f the SM clock was 800" in " ".join(shown.split())


def test_a_doubt_of_all_launches_has_the_figures_of_the_first(made: Made) -> None:
    faster = {**CLOCKS, "sm_clock": 1e9}
    shown = show(
        group_and_rank_launches([made("f", 3e-3, values=CLOCKS), made("g", 1e-3, values=faster)])
    )
    said = " ".join(shown.split())
    assert "clocks: in both launches; in the first, the SM clock was 800 of 2,000 MHz" in said
    assert (
        "; ncu locked it (--clock-control none prevents that), or a power limit lowered it" in said
    )


def test_of_many_gpus_three_have_their_time(made: Made) -> None:
    runs = [made(f"k{i}", (i + 1) * 1e-3, device=f"GPU {i}") for i in range(6)]
    said = say_total_time(group_and_rank_launches(runs))
    assert said == "6.00 ms on GPU 5, 5.00 ms on GPU 4, 4.00 ms on GPU 3 and 3 other GPUs"
    assert (
        say_total_time(group_and_rank_launches(runs[:2])) == "2.00 ms on GPU 1 and 1.00 ms on GPU 0"
    )


def test_reports_are_named_only_where_there_are_several(made: Made) -> None:
    one = show(group_and_rank_launches([made("f", 3e-3), made("g", 1e-3, index=1)]))
    assert "a.ncu-rep #" not in one
    two = show(group_and_rank_launches([made("f", 3e-3), made("g", 1e-3, report="b.ncu-rep")]))
    said = " ".join(two.split())
    assert "g b#0" in said  # a letter in the row, and below the table which file that is
    assert "a: a.ncu-rep b: b.ncu-rep" in said


def test_hostile_names_fit_and_obey_nothing(made: Made) -> None:
    rows = group_and_rank_launches([made(name, index=i) for i, name in enumerate(HOSTILE)])
    shown = show(rows)
    prose = [line for line in shown.splitlines() if not line.startswith(("  profkit ", "  ncu "))]
    assert max(map(cell_len, prose)) <= 80
    assert not [c for c in shown if ord(c) < 32 and c != "\n"]


# --- the largest expected gain ---


def add_finding(run: JudgedLaunch, finding: LaunchFinding) -> JudgedLaunch:
    first = make_finding("tail-effect", expecting(1.2, bound=1.5))
    return replace(run, diagnosis=replace(run.diagnosis, findings=(first, finding)))


def expecting(gain: float, bound: float | None = None) -> Estimate:
    return Estimate(gain * 0.9, gain, gain * 1.1, bound)


def make_finding(rule: str, saving: Estimate) -> LaunchFinding:
    return LaunchFinding(rule=rule, status="fires", cause="it is", advice="Do.", saving=saving)


def test_a_clearly_larger_gain_is_named_in_the_answer(made: Made) -> None:
    larger = make_finding("occupancy-shared", expecting(2.2, bound=3.0))
    run = add_finding(made(time=1e-3), larger)
    assert find_larger_gains(run) == [larger]
    assert write_headline(group_and_rank_launches([run]))[1:] == [
        "Most is gained by another fix, occupancy-shared: it is.",
        "Do: expect 2.20x (1.98 to 2.42), at most 3.00x, saving about 545 µs of 1.00 ms.",
        "Next: tail-effect 1.20x (1.08 to 1.32).",
    ]


def test_details_and_commands_are_about_the_fix_that_the_answer_names(made: Made) -> None:
    larger = make_finding("occupancy-shared", expecting(2.2, bound=3.0))
    rows = group_and_rank_launches([add_finding(made(time=1e-3), larger)])
    text = render_text(show_screen(rows, rows[0]), make_console(width=200))
    assert "- occupancy-shared: expect 2.20x" in text
    assert "- tail-effect, expect 1.20x (1.08 to 1.32), at most 1.50x: Do" in text
    assert "profkit explain occupancy-shared" in text


def test_the_table_marks_a_lead_that_another_finding_should_beat(made: Made) -> None:
    larger = make_finding("occupancy-shared", expecting(2.2, bound=3.0))
    rows = group_and_rank_launches([add_finding(made(time=1e-3), larger), made("quick", 1e-4)])
    shown = show(rows)
    assert "1.20x*" in shown
    assert "* more is expected in row 1 from occupancy-shared 2.20x" in shown
    assert "*" not in show(group_and_rank_launches([made("f", 1e-3), made("g", 1e-4)]))


def test_a_further_finding_that_may_gain_nothing_says_so(made: Made) -> None:
    doubtful = make_finding(
        "occupancy-shared", Estimate(low=0.9, expected=1.1, high=1.3, bound=2.0)
    )
    (row,) = group_and_rank_launches([add_finding(made(time=1e-3), doubtful)])
    assert "occupancy-shared, expect 1.10x (0.900 to 1.30), at most 2.00x: it is" in show([row])


def test_a_gain_has_one_form_wherever_its_interval_ends(made: Made) -> None:
    top = made().top
    assert top
    ends = replace(top, saving=Estimate(low=2.0, expected=3.0, high=4.0, bound=4.0))
    assert describe_finding_gain(ends) == "expect 3.00x (2.00 to 4.00), at most 4.00x"
    apart = replace(top, saving=Estimate(low=2.0, expected=3.0, high=4.0, bound=9.0))
    assert describe_finding_gain(apart) == "expect 3.00x (2.00 to 4.00), at most 9.00x"


def test_times_of_several_reports_are_not_added(made: Made) -> None:
    one = show(group_and_rank_launches([made("f", 3e-3), made("g", 1e-3, index=1)]))
    assert "2 launches, 4.00 ms in all" in one
    several = show(group_and_rank_launches([made("f", 3e-3), made("g", 1e-3, report="b.ncu-rep")]))
    assert "2 launches in 2 reports" in several
    assert "in all" not in several


def test_about_the_same_gain_is_not(made: Made) -> None:
    other = make_finding("occupancy-shared", expecting(1.3, bound=3.0))
    assert not find_larger_gains(add_finding(made(time=1e-3), other))


def test_a_larger_gain_that_may_be_none_is_not_named(made: Made) -> None:
    wide = Estimate(low=0.99, expected=2.2, high=2.6, bound=3.0)
    other = make_finding("occupancy-shared", wide)
    assert not find_larger_gains(add_finding(made(time=1e-3), other))


def test_beside_a_bound_alone_no_expectation_is_named(made: Made) -> None:
    """Of a launch that is too short: at most 1.27x, and then 1.74x, contradict one another."""
    larger = make_finding("occupancy-shared", expecting(2.2, bound=3.0))
    run = add_finding(made(time=1e-3), larger)
    lead = run.diagnosis.findings[0]
    lead = replace(lead, saving=Estimate(bound=lead.gain))
    findings = (lead, *run.diagnosis.findings[1:])
    bounded = replace(run, diagnosis=replace(run.diagnosis, findings=findings))
    assert bounded.top == lead
    assert not find_larger_gains(bounded)


def test_an_expectation_in_a_few_characters(made: Made) -> None:
    top = made().top
    assert top
    assert format_gain_cell(replace(top, saving=expecting(2.0))) == "2.00x"
    assert format_gain_cell(replace(top, saving=Estimate(bound=1.24))) == "<= 1.24x"
    assert format_gain_cell(replace(top, saving=Estimate())) == "unknown"
    wide = replace(top, saving=Estimate(low=2.0, expected=4.0, high=8.0))
    assert format_gain_cell(wide) == "2.00-8.00x"
    assert format_gain_cell(None) == ""


def test_names_are_short_and_reports_named_on_one_line(made: Made) -> None:
    """Several reports at 80 columns: where names tell launches apart, variants give way."""
    kernels = ["attention_scalar", "transposeSmemUnrollPad<float, 32>(float *)", "copyGmem"]
    runs = [
        replace(
            made(name, (5 - i) * 1e-4),
            variant=f"variant{i}",
            case="B-causal",
            report=f"r{i}.ncu-rep",
        )
        for i, name in enumerate(kernels)
    ]
    lines = show(group_and_rank_launches(runs)).splitlines()
    table = lines[lines.index("") + 1 :]
    assert table[0].split() == "# kernel time saves top finding expected".split()
    assert table[1].startswith("1  attention_scalar")
    assert table[4] == ""


def list_kernel(number: int, line: str, module: str) -> dict[str, object]:
    """Return a row of the table of kernels of a "profkit.triage/1" document."""
    return {
        "id": f"k{number}",
        "name": f"void at::native::vectorized_elementwise_kernel<4, at::native::f{number}>(int)",
        "line": line,
        "module": module,
        "category": "elementwise",
        "op": None,
        "calls": 128 * number,
        "ms": 1.5 / number,
        "share": 0.3 / number,
        "bound": None,
        "limiter": None,
        "headroom": None,
    }


def test_a_line_of_python_is_whole_and_its_row_one_line() -> None:
    places = ("model.py:187", "modeling_qwen3_moe_layers.py:1222", "train.py:7")
    rows = [list_kernel(i, place, "transformer.h.0.mlp.c_fc") for i, place in enumerate(places, 1)]
    for width in (80, 100, 160):
        on = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False)
        lines = render_text([make_kernels_table(rows)], on).splitlines()
        assert len(lines) == 1 + len(places)
        assert all(place in line for place, line in zip(places, lines[1:], strict=True))
    assert "transformer.h.0.mlp.c_fc" in lines[1]
