"""Every rule and every metric has its page, made from itself."""

from __future__ import annotations

import pytest

from profkit.diagnosis.pages import list_thresholds_in_check
from profkit.diagnosis.rule import LaunchRule
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.verdict import judge_launch
from profkit.errors import ProfkitError
from profkit.program.rules import BY_ID, RULES
from profkit.reports.metrics import CATALOGUE
from profkit.show.text import words
from profkit.show.text.blocks import Code, get_plain_text, render_markdown
from profkit.show.text.escape import escape_markdown
from profkit.show.text.labels import NCU_LABELS
from profkit.show.text.terminal import make_console, render_text
from profkit.show.text.thresholds import get_compared_quantity
from profkit.show.views.explain import explain, explain_threshold, show_index, show_reference
from tests.conftest import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(r.id for r in ALL), *CATALOGUE])
def test_everything_has_a_page(name: str) -> None:
    page = explain(name)
    assert page.name == name
    assert page.title
    assert all(part and all(part) for part in page.parts.values())
    assert "To collect" in page.parts
    assert str(page).startswith(f"{name}\n")
    assert page.markdown.startswith(f"## {escape_markdown(name)}\n")


def test_a_rule_shows_its_example_with_the_gain() -> None:
    parts = explain("grid-too-small").parts
    assert "32 blocks for 132 SMs" in parts["An example that fires"][0]
    assert "at most" in parts["An example that fires"][0]
    for rule in ALL:
        said = next(f for f in judge_launch(rule.fires[0]).findings if f.rule == rule.id)
        shown = explain(rule.id).parts["An example that fires"][0]
        assert shown == f"{said.cause}: {words.describe_finding_gain(said)}", (
            "what diagnose says of it"
        )
    assert any(
        get_plain_text(text).startswith("grid_size: Blocks in the grid")
        for text in parts["Metrics it uses"]
    )


def test_a_metric_shows_where_it_comes_from() -> None:
    parts = explain("sm_busy").parts
    assert parts["Unit"] == ("share: 0 to 1, where 1 is 100 %",)
    assert "sm__throughput.avg.pct_of_peak_sustained_elapsed" in str(parts)
    assert parts["To collect"] == ("ncu --section SpeedOfLight",)


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ("long_scoreboard", "rule"),
        ("LONG-SCOREBOARD", "rule"),
        ("dram", "limiter"),
        ("gpu__time_duration.sum", "ncu metric"),
        ("sm-busy", "metric"),
    ],
)
def test_people_need_not_know_the_exact_name(asked: str, kind: str) -> None:
    assert explain(asked).kind == kind


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("long-scorebord", "long-scoreboard"),
        ("ocupancy", "occupancy"),
        ("shred-bank-conflicts", "shared-"),
    ],
)
def test_the_nearest_name_is_suggested(asked: str, meant: str) -> None:
    with pytest.raises(ProfkitError) as error:
        explain(asked)
    assert asked in error.value.message
    assert meant in error.value.hint


def test_a_name_near_nothing_gets_the_list() -> None:
    with pytest.raises(ProfkitError) as error:
        explain("xyzzy 12345")
    assert "lists" in error.value.hint


def test_index_and_reference_hold_everything() -> None:
    listed, written = (
        render_text(show_index(), make_console(width=80)),
        render_markdown(show_reference()),
    )
    for name in (*(r.id for r in ALL), *CATALOGUE, *words.BOUNDS, *words.WAITS):
        assert f"- {name}:" in listed
    for name in (*(r.id for r in ALL), *CATALOGUE):
        assert f"## {name}\n" in written or f"| `{name}` |" in written


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("shared-bank-conflicts", "times the kernel without it (conflict-free)"),
        (
            "long-scoreboard",
            "(hits-l1 and hits-l2) gives an upper bound: it removes more than any fix could",
        ),
        ("tail-effect", "detects it from how the launch runs"),
        ("xu-pipe", "by counting instructions: xu"),
        ("redundant-exp", "does not measure it: only the workload's own count"),
    ],
)
def test_a_rule_says_which_ablation_measures_it(rule: str, says: str) -> None:
    assert says in " ".join(render_text(explain(rule).blocks(), make_console(width=200)).split())


def test_the_committed_reference_is_current() -> None:
    page = ROOT / "profkit" / "REFERENCE.md"
    assert page.read_text("utf-8") == render_markdown(show_reference()), (
        "make readme writes it anew"
    )


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("latency", "verdict", "nothing is near its peak"),
        ("balanced", "verdict", "at once"),
        ("unknown", "verdict", "ncu --set full"),
        ("barrier", "limiter", "the warps wait for the other warps of the block at a barrier"),
        ("dram", "limiter", "the resource that is full is DRAM bandwidth"),
        ("tail", "limiter", "the launch is limited by a last wave of blocks"),
    ],
)
def test_every_word_of_the_verdict_has_a_page(name: str, kind: str, says: str) -> None:
    page = explain(name)
    assert page.kind == kind
    assert says in " ".join(str(page).split())


def test_a_rule_is_told_from_the_hardware_to_the_official_page() -> None:
    page = explain("shared-bank-conflicts")
    headings = list(page.parts)
    wanted = [
        "What happens in the hardware",
        "How to fix it",
        "Before",
        "After",
        "How it is detected",
        "Measured on NVIDIA H200",
        "Expected gain",
        "False alarms",
        "Official page",
    ]
    assert [heading for heading in headings if heading in wanted] == wanted
    assert isinstance(page.parts["Before"][0], Code)
    assert "27.1x faster" in str(page)
    assert "at least 20 % of the wavefronts are conflicts" in " ".join(str(page).split())
    address = "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#shared-memory-and-memory-banks"
    assert address in str(page), "on one line"
    assert f"<{address}>" in page.markdown
    assert f'<a href="{address}">' in page._repr_html_()
    assert "```cuda\n// A column" in page.markdown
    assert "<pre><code>// A column" in page._repr_html_()


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_every_threshold_of_a_rule_is_a_quantity(rule: LaunchRule) -> None:
    """SEES and CYCLES are names of the code: a reader wants what is compared, with its unit."""
    for threshold in list_thresholds_in_check(rule):
        if threshold.number is None:
            continue
        quantity = get_compared_quantity(threshold.name, threshold.family)
        assert quantity is not None, threshold.name
        assert quantity.text.count("{}") == 1
        assert threshold.name not in get_plain_text(explain_threshold(threshold))


def test_another_name_than_the_one_asked_for_is_said() -> None:
    page = explain("shared-bank-conflict")
    assert (page.name, page.asked) == ("shared-bank-conflicts", "shared-bank-conflict")
    assert "asked for: shared-bank-conflict\n" in str(page)
    for same in ("Long Scoreboard", "long_scoreboard", "memory bound", "shared-bank-conflicts"):
        assert explain(same).asked == ""


def test_sentences_of_triage_have_no_holes() -> None:
    said = str(explain("elementwise-chain"))
    assert "…" not in said
    assert "N elementwise kernels of N µs each" in said


def test_a_limiter_names_the_border_and_every_rule_behind_it() -> None:
    page = explain("dram")
    assert "counts as full at 75 % of its peak" in " ".join(str(page).split())
    assert "uncoalesced-access" in str(page)
    assert "2.07x faster" in str(page)


def test_a_metric_says_where_it_goes_on_the_probes() -> None:
    assert "99.1 % (conflict8)" in str(explain("shared_busy"))


@pytest.mark.parametrize("typed", ["memory bound", "latency-bound", "Launch Bound"])
def test_a_bound_is_known_with_its_noun(typed: str) -> None:
    page = explain(typed)
    assert (page.name, page.kind) == (typed.lower()[:-6], "verdict")


@pytest.mark.parametrize("label", NCU_LABELS)
def test_what_ncu_s_pages_call_a_metric_is_known(label: str) -> None:
    assert explain(label.title()).name == NCU_LABELS[label]


@pytest.mark.parametrize("state", words.WAITS)
def test_a_stall_may_be_written_with_blanks(state: str) -> None:
    assert explain(state.replace("_", " ")).name.replace("-", "_") == explain(state).name.replace(
        "-", "_"
    )


@pytest.mark.parametrize("category", BY_ID)
def test_every_category_of_triage_has_a_page(category: str) -> None:
    page = explain(category)
    word_of_a_launch = {"unknown": "verdict", "atomics": "limiter"}
    assert page.kind == word_of_a_launch.get(category, "rule of a step")
    assert "{" not in page.markdown.replace("```python", "")
    prefix = "For a step: " if category in word_of_a_launch else ""
    for heading in (
        "What happens",
        "How it is detected",
        "False alarms",
        "An example",
        "Official page",
    ):
        assert page.parts[prefix + heading]
    if category not in {"healthy", "unknown"}:
        assert isinstance(page.parts[prefix + "Before"][0], Code)
        assert page.parts[prefix + "What it says"]
        assert page.parts[prefix + "What it advises"]


def test_the_index_and_the_reference_hold_the_rules_of_a_step() -> None:
    listed, written = (
        render_text(show_index(), make_console(width=80)),
        render_markdown(show_reference()),
    )
    for rule in RULES:
        assert f"- {rule.id}:" in listed
        assert f"## {rule.id}\n" in written
