"""Every figure in the prose of README and docs is worked out of what is committed, or is not there.

Decisions are dated, and so is what hardware did: their figures are of that day and are not computed.

Outputs stand in blocks that test_readme holds. What stands in a sentence is computed here, or by the
test that is named here and asserts it beside what it computes anyway.
"""

from __future__ import annotations

import json
import re

import pytest

from profkit.evidence.noise import SITTING
from profkit.evidence.stats import PROCESS_SPREAD, THRESHOLDS
from profkit.lab.ablation.comparison import REBUILT
from profkit.lab.ablation.judge import WORTH
from profkit.lab.ablation.lab import WATCH
from profkit.lab.ablation.preparation import EXECUTED
from profkit.lab.tune.trial import PROMOTE
from profkit.model.resources import DRAM, STREAMS
from profkit.model.scenario import COVERAGE, RELIEVED_ONCHIP, USUAL_STREAM
from tests import readme
from tools import programs

# What reads as measured: a ratio, a part of a whole, a quantity with its unit; no version, date, name.
_COUNT = r"\d+(?:,\d{3})*"
FIGURE = re.compile(
    rf"(?<![\w.,/`-])(?:{_COUNT}(?:\.\d+)?x(?!\w)|{_COUNT} of (?:the |all |these )?{_COUNT}"
    rf"|{_COUNT}(?:\.\d+)?[ -](?:%|(?:per cent|times|[mµun]?s|[kMG]B)\b))"
)
# Page -> figures, and the test that computes them.
ELSEWHERE = {
    "README.md": {
        "177 of 185": "kernels/test_gains.py::test_pages_say_of_intervals",
        "1.87x": "evidence/test_causes.py::test_the_estimate_of_what_the_change_fixed",
        "1.53x": "evidence/test_causes.py::test_the_estimate_of_what_the_change_fixed",
    },
    "statistics.md": {
        "107 of 546": "evidence/test_causes.py::test_what_another_session_finds",
        "542 of 546": "evidence/test_causes.py::test_what_another_session_finds",
    },
    "verdict.md": {
        "29 of 74": "kernels/test_verdicts.py::test_the_page_has_the_score",
        "60 of 68": "kernels/test_verdicts.py::test_the_page_has_the_score",
        "1.5x": "kernels/test_verdicts.py::test_the_page_has_the_score",
        "91 of 94": "kernels/test_thresholds.py::test_no_probe_hangs_on_its_own_number",
    },
    "nvidia.md": {
        "47 of these 51": "test_nvidia.py::test_the_shares_are_counted",
        "96 %": "test_nvidia.py::test_the_shares_are_counted",
    },
    "ablation.md": {
        "1.05x": "ablation/test_recorded.py::test_a_control_is_known_by_what_its_change_did",
    },
    "gains.md": {
        "5 %": "kernels/test_gains.py::test_pages_say_of_intervals",
        "80 %": "kernels/test_gains.py::test_what_few_instructions_remain",
    },
}


def prose(text: str) -> str:
    """A page without blocks, code, links' targets and what a tool writes into it."""
    block = r"^(`{3,}).*?^\1$"
    written = r"<!-- (?P<made>\w+) -->.*?<!-- /(?P=made) -->|<!-- python .*?<!-- end -->"
    cut = rf"{block}|{written}|<!--.*?-->"
    text = re.sub(cut, "", text, flags=re.M | re.S)
    return " ".join(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text).split())


def computed(page: str) -> set[str]:
    """The figures that a page may have."""
    truths = json.loads((programs.DATA / "truth.json").read_text())["programs"]
    (blind,) = programs._counted("", [(t["blind"], t) for t in truths.values() if "blind" in t])
    bias = truths["attention_with_bias"]
    share = "{:.3g} %".format
    two = share(100 * THRESHOLDS.process_spread)
    here = {
        "README.md": {
            "{} of {}".format(*COVERAGE),
            f"{bias['planted_ms'] - bias['mended_ms']:.1f} ms",
        },
        "limits.md": {
            *re.findall(r"\d+ of \d+|\d+ %", blind),
            two,
            share(100 * SITTING),
            share(100 * PROCESS_SPREAD),
        },
        "statistics.md": {two, share(100 * THRESHOLDS.session_ratio)},
        "gains.md": {
            *(share(100 * reached) for _, reached in STREAMS),
            share(100 * USUAL_STREAM),
            share(100 * RELIEVED_ONCHIP),
            share(100 * DRAM.sure),
        },
        "tune.md": {share(100 * PROMOTE - 100)},
        "ablation.md": {
            share(100 * REBUILT),
            share(100 * EXECUTED),
            share(100 - 100 * EXECUTED),
            f"{WATCH:g} times",
            f"{WORTH:g}x",
        },
    }
    return here.get(page, set()) | set(ELSEWHERE.get(page, {}))


CURRENT = [page for page in readme.PAGES if page.name != "hardware.md"]


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_a_figure_in_a_sentence_is_computed(page) -> None:
    found = set(FIGURE.findall(prose(page.read_text("utf-8"))))
    assert found - computed(page.name) == set(), "generate it, hold it with a test, or leave it out"
    assert set(ELSEWHERE.get(page.name, {})) <= found


def test_the_tests_that_hold_figures_are_there() -> None:
    for holder in {test for several in ELSEWHERE.values() for test in several.values()}:
        file, _, name = holder.partition("::")
        assert f"def {name}" in (readme.ROOT / "tests" / file).read_text("utf-8")


def test_what_reads_as_measured_is_found_and_what_does_not_is_not() -> None:
    text = "1.80x of 3 of 5 in 2.1 us, 15 % and 305 MB; ncu 2025.3, `4.0x`, H200, 12 layers, v3"
    assert FIGURE.findall(prose(text)) == ["1.80x", "3 of 5", "2.1 us", "15 %", "305 MB"]
    assert prose("a <!-- $ x -->\n```text\n9.0x\n```\nb") == "a b"
