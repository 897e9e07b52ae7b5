"""Pictures: what stands in them, that words do not cover each other, that nothing leaks."""

import subprocess
import sys
from itertools import combinations, product
from math import nan

import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from profkit.errors import ProfkitError
from profkit.reports.figures import format_value_with_unit
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import STATES
from profkit.show import plots
from profkit.show.numbers import PIPES, format_range, format_rate_tick, list_log_ticks
from profkit.show.plots.bars import STATE_LOOKS
from profkit.show.plots.base import cut_middle_of_plain_text, group_alike_launches, name_launches
from tests.sweeps import take_part

ALL = [plots.roofline, plots.stalls, plots.pipes, plots.occupancy]
MACHINE = {
    "peak_dram": 1e12,
    "peak_l2": 4e12,
    "peak_l1": 10e12,
    "peak_fp32": 20e12,
    "peak_fp16": 40e12,
    "peak_tensor_fp16": 160e12,
    "sm_clock": 1.5e9,
    "dram_clock": 3e9,
    "time": 1e-3,
    "fp64_rate": 0.0,
    "fp16_rate": 0.0,
    "tensor_ops": 0.0,
    "tensor_ops_fp16": 0.0,
}


def frame(*rows):
    whole = [
        dict.fromkeys(CATALOGUE, nan)
        | {
            "report": "r.ncu-rep",
            "launch": i,
            "kernel": f"kernel{i}(int)",
            "device": "GPU",
            "cc": "9.0",
            "grid": (i, 1, 1),
            "block": (32, 1, 1),
            "variant": None,
            "case": None,
            "status": "ok",
        }
        | row
        for i, row in enumerate(rows)
    ]
    return pd.DataFrame(whole)


def crowd(n):
    """Launches close to each other, some of them on the very same place."""
    return frame(
        *(
            MACHINE
            | {
                "fp32_rate": 1e12 * 1.1 ** (i // 2),
                "dram_rate": 2e11,
                "l2_rate": 4e11,
                "l1_rate": 9e11,
                "kernel": f"a_rather_long_kernel_name_{i}(int)",
            }
            for i in range(n)
        )
    )


def labels(ax):
    """The texts that name launches."""
    return [t for t in ax.texts if isinstance(t, Annotation) and "kernel" in t.get_text()]


def boxes(ax, texts):
    ax.figure.draw_without_rendering()
    return [Text.get_window_extent(t) for t in texts]


@pytest.mark.slow
@pytest.mark.parametrize("n", take_part([20, 4, 1], one_of=2))
def test_labels_of_a_crowd_cover_neither_each_other_nor_leave_the_frame(n):
    ax = plots.roofline(crowd(n))
    written = labels(ax)
    assert len(written) == n
    found = boxes(ax, written)
    assert not [1 for a, b in combinations(found, 2) if a.overlaps(b)]
    inside = ax.get_window_extent()
    assert all(inside.x0 <= b.x0 and b.x1 <= inside.x1 and inside.y0 <= b.y0 for b in found)


@pytest.mark.slow
def test_labels_keep_off_the_ceilings_words_and_the_legend():
    ax = plots.roofline(crowd(20))
    ceilings = [t for t in ax.texts if t.get_text().startswith(("DRAM", "L1", "L2", "FP32"))]
    assert len(ceilings) == 4
    fixed = [*boxes(ax, ceilings), ax.get_legend().get_window_extent()]
    assert not [1 for a in boxes(ax, labels(ax)) for b in fixed if a.overlaps(b)]


@pytest.mark.slow
def test_real_launches_are_all_named_without_overlap(own_runs):
    ax = plots.roofline(own_runs)
    found = boxes(ax, [t for t in ax.texts if t.get_text().endswith(" %")])
    assert len(found) == 20
    assert not [1 for a, b in combinations(found, 2) if a.overlaps(b)]
    assert "20 of" in ax.get_title(loc="right")


def test_the_label_says_rate_and_share():
    (label,) = labels(plots.roofline(crowd(1)))
    assert label.get_text() == "a_rather_long_kernel_name_0\n1.00 TFLOP/s, 20 % of DRAM"


def test_the_longest_running_are_named():
    runs = crowd(5).assign(time=[1e-3, 5e-3, 2e-3, 4e-3, 3e-3])
    ax = plots.roofline(runs, labels=2)
    named = {t.get_text().splitlines()[0][-1] for t in labels(ax)}
    assert named == {"1", "3"}
    assert ax.get_title(loc="right") == "2 of 5 named"


def test_ceilings_are_drawn_at_their_value():
    ax = plots.roofline(crowd(1))
    tops = {line.get_ydata()[-1] for line in ax.get_lines()}
    assert 20e12 in tops
    words = {t.get_text() for t in ax.texts}
    assert {"DRAM 1.00 TB/s", "L2 4.00 TB/s", "L1 10.0 TB/s", "FP32 20.0 TFLOP/s"} <= words
    assert ax.get_title(loc="left") == "Roofline of GPU  ·  SM 1.50 GHz  ·  DRAM 3.00 GHz"
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_levels_are_markers_on_one_line():
    ax = plots.roofline(crowd(1))
    marks = {line.get_marker() for line in ax.get_lines()}
    assert {"o", "s", "^"} <= marks
    joined = [line for line in ax.get_lines() if len(line.get_xdata()) == 3]
    assert [sorted(line.get_xdata()) for line in joined] == [
        [pytest.approx(1e12 / r) for r in (9e11, 4e11, 2e11)]
    ]


def test_a_copy_stands_at_the_left_edge_as_far_below_the_roof_as_its_bandwidth():
    copy = MACHINE | {"fp32_rate": 0.0, "dram_rate": 0.8e12, "l2_rate": 8e11, "l1_rate": 8e11}
    ax = plots.roofline(frame(copy))
    (mark,) = [line for line in ax.get_lines() if line.get_marker() == "o"]
    x, y = mark.get_xdata()[0], mark.get_ydata()[0]
    assert y / (x * 1e12) == pytest.approx(0.8)
    assert x < 1.2 * ax.get_xlim()[0]
    assert "no arithmetic" in labels(ax)[0].get_text()


def test_no_position_is_hollow():
    resident = MACHINE | {
        "fp32_rate": 1e12,
        "dram_rate": 1e9,
        "dram_bytes": 9.0,
        "threads": 99.0,
        "l2_hit": 0.99,
    }
    ax = plots.roofline(frame(resident, MACHINE | {"fp32_rate": 1e12, "dram_rate": 1e11}))
    faces = {line.get_markerfacecolor() for line in ax.get_lines() if line.get_marker() == "o"}
    assert "white" in faces
    assert len(faces) == 2
    assert any(t.get_text().startswith("hollow: ") for t in ax.get_legend().get_texts())


def test_no_launch_with_a_point_disappears():
    far = MACHINE | {"fp32_rate": 1e12, "dram_rate": 1.0}  # 1e12 operations per byte
    ax = plots.roofline(frame(far, MACHINE | {"fp32_rate": 1e12, "dram_rate": 1e11}))
    marks = [line for line in ax.get_lines() if line.get_marker() == "o"]
    assert len(marks) == 2
    assert all(line.get_xdata()[0] < ax.get_xlim()[1] for line in marks)
    assert ">" in {line.get_marker() for line in ax.get_lines()}


def test_the_workloads_own_point_is_tied_to_the_measured_one():
    declared = {"declared_operations": 5e8, "declared_bytes": 1e8}
    ax = plots.roofline(frame(MACHINE | {"fp32_rate": 1e12, "dram_rate": 2e11} | declared))
    (star,) = [line for line in ax.get_lines() if line.get_marker() == "*"]
    assert (star.get_xdata()[0], star.get_ydata()[0]) == (5, 5e11)
    (tie,) = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    assert list(zip(tie.get_xdata(), tie.get_ydata(), strict=True)) == [(5, 5e11), (5, 1e12)]


def test_without_a_point_the_picture_says_what_to_collect():
    basic = {
        "peak_dram_device": 9e11,
        "dram_clock_max": 3e9,
        "sm_count": 10.0,
        "sm_clock": 1e9,
        "time": 1e-3,
    }
    ax = plots.roofline(frame(basic))
    text = "\n".join(t.get_text() for t in ax.texts)
    assert "ncu --section SpeedOfLight_RooflineChart" in text
    assert "by the device attributes: DRAM at 3.00 GHz, FP32 at 1.00 GHz" in text


def test_launches_without_a_point_are_counted_and_the_reason_said():
    runs = frame(MACHINE | {"fp32_rate": 1e12, "dram_rate": 2e11}, {"time": 1e-3}, {"time": 1e-3})
    small = " ".join(" ".join(t.get_text() for t in plots.roofline(runs).texts).split())
    assert "Without a point: 2 of 3 launches, floating-point operations not counted (ncu" in small
    failed = plots.roofline(frame({"status": "failed"}))
    assert "No point:\nthe launch failed under ncu" in {t.get_text() for t in failed.texts}


def test_several_devices_are_refused_with_the_query_to_make():
    runs = frame({"device": "A"}, {"device": "B"})
    with pytest.raises(ProfkitError, match="2 devices") as caught:
        plots.roofline(runs)
    assert caught.value.hint == "draw one device at a time: runs[runs.device == 'A']"


@pytest.mark.parametrize("draw", ALL)
def test_an_empty_frame_is_refused(draw):
    with pytest.raises(ProfkitError, match="no launches to draw"):
        draw(frame({}).iloc[:0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "row"), take_part(product(ALL, [{}, {"status": "failed"}]), one_of=3)
)
def test_a_launch_of_which_nothing_is_known_is_a_picture_too(draw, row, tmp_path):
    ax = draw(frame(row))
    text = "\n".join(t.get_text() for t in ax.texts)
    assert "not collected" in text or "failed" in text
    assert plots.save(ax, tmp_path / "nothing.png").stat().st_size > 5000


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("draw", ALL)
def test_draws_on_the_callers_axes_and_returns_it(draw):
    ax = Figure().add_subplot()
    assert draw(crowd(2), ax=ax) is ax
    subfigure = Figure(figsize=(16, 5), layout="constrained").subfigures(1, 2)[0]
    assert isinstance(draw(crowd(2), ax=subfigure.add_subplot()), Axes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draw", "ending"), take_part(product(ALL, ["png", "svg", "pdf"]), one_of=5)
)
def test_saves(draw, ending, tmp_path):
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    path = plots.save(draw(crowd(3)), tmp_path / f"picture.{ending}")
    assert path.read_bytes().startswith(start)


@pytest.mark.slow
def test_saves_at_twice_the_readmes_size(tmp_path):
    path = plots.save(plots.roofline(crowd(1)), tmp_path / "roof.png")
    width, height = (int.from_bytes(path.read_bytes()[i : i + 4]) for i in (16, 20))
    assert (width, height) == (2400, 1500)


def test_save_says_what_it_can_write(tmp_path):
    ax = plots.roofline(crowd(1))
    with pytest.raises(ProfkitError, match=r"cannot draw a \.gif file"):
        plots.save(ax, tmp_path / "roof.gif")
    (tmp_path / "file").write_text("")
    with pytest.raises(ProfkitError, match=r"roof\.png"):
        plots.save(ax, tmp_path / "file" / "roof.png")


HOSTILE = [
    "$\\frac{$",
    "a$b$c(int)",
    "\N{CJK UNIFIED IDEOGRAPH-65E5}(int)",
    "x\x1b[31m\ny",
    "k" * 10_000,
    "[red]<script>",
    "",
    "<<<>>>((",
    "\u202egnp",
]


@pytest.mark.slow
@pytest.mark.parametrize("draw", ALL)
@pytest.mark.filterwarnings("error")
def test_hostile_names_are_only_letters(draw, tmp_path):
    rows = [
        MACHINE
        | {
            "fp32_rate": 1e12 * 1.3**i,
            "dram_rate": 2e11,
            "kernel": name,
            "variant": name or None,
            "device": HOSTILE[0],
            "case": HOSTILE[3],
        }
        for i, name in enumerate(HOSTILE)
    ]
    ax = draw(frame(*rows))
    for ending in ("png", "svg", "pdf"):
        plots.save(ax, tmp_path / f"hostile.{ending}")
    shown = "\n".join(t.get_text() for t in ax.findobj(Text))
    assert "a$b$c" in shown
    assert "\x1b" not in shown
    assert "k" * 40 not in shown


def test_clip_leaves_nothing_that_acts():
    assert cut_middle_of_plain_text("a\x1b[0m\u202e\ud800b") == "a�[0m��b"
    assert cut_middle_of_plain_text("x" * 40, 20) == "x" * 12 + "…" + "x" * 7


@pytest.mark.slow
def test_nothing_of_pyplot_is_touched():
    code = (
        "import sys, pandas as pd; from profkit.show import plots;"
        "plots.stalls(pd.DataFrame([{'kernel': 'k', 'device': 'd'}]));"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot was loaded'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_notebook_shows_the_axes_itself():
    assert plots.roofline(crowd(1))._repr_png_().startswith(b"\x89PNG")


@pytest.mark.slow
def test_drawing_changes_neither_the_frame_nor_the_settings(own_runs):
    from matplotlib import rcParams

    before, settings = own_runs.copy(deep=True), dict(rcParams)
    for draw in ALL:
        draw(own_runs)
    pd.testing.assert_frame_equal(before, own_runs)
    assert dict(rcParams) == settings


STALLS = {f"stall_{state}": 0.0 for state in STATES} | {
    "stall_selected": 0.25,
    "stall_long_scoreboard": 0.5,
    "stall_wait": 0.24,
    "stall_misc": 0.01,
}


def test_stalls_put_issuing_left_and_waiting_right():
    ax = plots.stalls(frame(STALLS))
    bars = {round(b.get_x(), 6): round(b.get_width(), 6) for b in ax.patches}
    assert bars == {-0.25: 0.25, 0.0: 0.5, 0.5: 0.24, 0.74: 0.01}
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [
        "issuing",
        "long scoreboard",
        "wait",
        "other",
    ]


def test_every_warp_state_has_a_look_of_its_own():
    assert set(STATE_LOOKS) == set(STATES) - {"selected"}
    assert len(set(STATE_LOOKS.values())) == len(STATE_LOOKS)


def test_pipes_keep_elapsed_and_active_apart_and_unknown_unknown():
    row = {"tensor_busy": 0.06, "tensor_busy_active": 0.32, "xu_busy": 0.07, "fp64_busy": 0.0}
    ax = plots.pipes(frame(row, row))
    text = [t.get_text() for t in ax.texts]
    assert text.count("6 | 32") == 2
    assert text.count("7 | ?") == 2
    small = " ".join(next(t for t in text if "Not collected" in t).split())
    assert "Lightly used or idle: FP64." in small
    assert "tensor" in PIPES


def test_occupancy_names_what_decides_and_the_step():
    row = {
        "occupancy": 0.146,
        "occupancy_limit": 0.1875,
        "limit_registers": 1.0,
        "limit_shared": 2.0,
        "limit_warps": 5.0,
        "limit_blocks": 32.0,
        "registers_step": 88.0,
        "shared_step": 2048.0,
    }
    ax = plots.occupancy(frame(row, row | {"limit_registers": 5.0, "limit_shared": 5.0}))
    text = [t.get_text() for t in ax.texts]
    assert "15 | 19" in text
    assert "−88 registers" in text  # shared memory allows two blocks: it is not what decides
    assert text.count("–") == 3  # no barriers twice; warps decide too and no step gives more
    bold = [t.get_text() for t in ax.texts if t.get_fontweight() == "bold"]
    assert bold == ["1", "5", "5", "5"]


def test_like_launches_are_named_once():
    rows = [
        MACHINE | {"kernel": "same(int)", "grid": (1, 1, 1), "time": t} for t in (1.0, 3.0, 2.0)
    ]
    (group,) = group_alike_launches(frame(*rows).to_dict("records"))
    assert group.name == "same ×3"
    assert [row["time"] for row in group.rows] == [3.0, 2.0, 1.0]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("v1", "A", "f"), ("v2", "A", "f")], ["v1", "v2"]),
        ([("v1", "A", "f"), ("v1", "B", "f")], ["v1 A", "v1 B"]),
        ([("v1", "A", "f"), ("v1", "A", "g")], ["v1 f", "v1 g"]),
        ([("v1", "A", "f"), ("v1", "A", "f")], ["v1 f #0", "v1 f #1"]),
        ([(None, None, "ns::f<int>(int)"), (nan, nan, "void g()")], ["ns::f<int>", "g"]),
    ],
)
def test_names_are_as_short_as_tells_them_apart(rows, expected):
    launches = [
        {"variant": v, "case": c, "kernel": k, "launch": i, "report": "r"}
        for i, (v, c, k) in enumerate(rows)
    ]
    assert name_launches(launches) == expected


def test_launches_of_two_reports_are_told_apart():
    rows = [{"kernel": "f", "launch": 0, "report": f"/x/{r}.ncu-rep"} for r in ("before", "after")]
    assert name_launches(rows) == ["f #0 before", "f #0 after"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (4.81e12, "4.81 TB/s"),
        (999.6e9, "1.00 TB/s"),
        (0.0, "0 B/s"),
        (nan, "not collected"),
        (512.0, "512 B/s"),
        (1.07e15, "1,070 TB/s"),
    ],
)
def test_rates_have_three_figures_and_a_prefix(value, text):
    assert format_value_with_unit(value, "byte/s") == text


def test_figures():
    assert format_value_with_unit(1.07e15, "FLOP/s") == "1,070 TFLOP/s"
    assert format_range(833e12, 1092e12, "FLOP/s") == "833–1,092 TFLOP/s"
    assert format_range(4.80e12, 4.81e12, "byte/s") == "4.81 TB/s"
    assert list(map(format_rate_tick, (1e11, 2e12, 1e15))) == ["100 G", "2 T", "1000 T"]


def test_ticks_are_powers_of_ten_or_closer_on_a_short_axis():
    assert list_log_ticks(0.5, 1e4) == [1, 10, 100, 1e3, 1e4]
    assert list_log_ticks(3e-6, 3e-5) == pytest.approx([5e-6, 1e-5, 2e-5])
    assert list_log_ticks(3.1, 4.9) == [3.1]
