"""Pictures of a ladder: what is drawn is what was measured."""

from __future__ import annotations

import re
from itertools import combinations
from math import log

import pytest
from matplotlib.text import Annotation, Text

from profkit.errors import ProfkitError
from profkit.evidence.ladder import build_ladder
from profkit.show import plots
from profkit.show.draw import draw_ladder
from tests.evidence.made import run, samples
from tests.evidence.test_ladder import folder


@pytest.fixture
def made():
    return build_ladder(
        folder(
            run("stage0", warm=samples(2e-4)),
            run("stage1", after="stage0", warm=samples(1e-4)),
            run("slow", after="stage1", warm=samples(3e-4, seed=2)),
            run("lost", after="stage1", warm=()),
            run("sdpa", source=None, sass=None, warm=samples(5e-5, seed=5)),
            run("sdpa-cudnn", source=None, sass=None, warm=samples(5.02e-5, seed=6)),
            run("sdpa-math", source=None, sass=None, warm=samples(4e-4, seed=7)),
        ),
        "B",
    )


def test_the_page_draws_every_time_in_the_colour_of_its_verdict(made):
    text = str(draw_ladder(made))
    found = re.findall(r'class="(\w+)"><title>([\w-]+),.*?cx="([\d.]+)%"', text)
    assert {name: kind for kind, name, _ in found} == {
        "stage0": "waiting",
        "stage1": "faster",
        "slow": "slower",
        **dict.fromkeys(("sdpa", "sdpa-cudnn", "sdpa-math"), "reference"),
    }
    places = {name: float(x) for _, name, x in found}
    assert places["stage0"] - places["stage1"] == pytest.approx(
        log(2) / log(8) * (places["sdpa-math"] - places["sdpa"]), rel=0.02
    )
    untimed = build_ladder(folder(run("lost", warm=())), "B")
    assert draw_ladder(untimed) == ""
    named = build_ladder(folder(run("<b>", warm=samples(2e-4))), "B")
    assert "<b>" not in draw_ladder(named)


def words(ax) -> list[str]:
    return [t.get_text() for t in ax.texts if isinstance(t, Annotation)]


def test_every_variant_has_its_row_and_its_time(made):
    ax = plots.ladder(made)
    names = [t.get_text().strip() for t in ax.get_yticklabels()]
    assert names == [s.variant for s in made.steps] == ["stage0", "stage1", "lost", "slow"]
    dots = {
        round(float(line.get_ydata()[0])): float(line.get_xdata()[0])
        for line in ax.get_lines()
        if line.get_marker() == "o"
    }
    medians = {y: s.time.median for y, s in enumerate(made.steps) if s.time}
    assert dots == pytest.approx(medians)
    assert "not timed" in words(ax)


def test_steps_come_from_their_parent_in_the_colour_of_their_verdict(made):
    ax = plots.ladder(made)
    times = {s.variant: s.time.median for s in made.steps if s.time}
    steps = {
        tuple(map(float, line.get_xdata())): line.get_color()
        for line in ax.get_lines()
        if len(line.get_xdata()) == 2 and line.get_linewidth() == 2.2
    }
    assert steps == {
        (times["stage0"], times["stage1"]): "#009E73",
        (times["stage1"], times["slow"]): "#D55E00",
    }
    assert {"2.00x", "0.50x", "0.33x", "0.17x"} <= set(words(ax))


def test_references_are_lines_and_those_alike_share_one(made):
    ax = plots.ladder(made)
    upright = [line.get_xdata()[0] for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert upright == pytest.approx([5e-5, 4e-4], rel=0.01)
    named = [w for w in words(ax) if w.startswith("sdpa")]
    assert named[0].startswith("sdpa, sdpa-cudnn 50.")
    assert named[1].startswith("sdpa-math 40")
    ax.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(t) for t in ax.texts if t.get_text().startswith("sdpa")]
    assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]


def test_a_ladder_without_times_is_refused():
    with pytest.raises(ProfkitError, match="no variant was timed at case B"):
        plots.ladder(build_ladder(folder(run("stage0", warm=())), "B"))


def test_names_from_elsewhere_are_drawn_as_they_stand(tmp_path):
    hostile = run("a$b$_x", title="$x^2$", warm=samples(2e-4))
    ax = plots.ladder(build_ladder(folder(hostile), "B"))
    assert plots.save(ax, tmp_path / "ladder.png").stat().st_size > 5000
    assert "a$b$_x" in [t.get_text() for t in ax.get_yticklabels()]
