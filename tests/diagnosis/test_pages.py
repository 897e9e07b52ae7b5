"""The written part of an explanation: complete, honest about its sources, and its code compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.diagnosis.pages import (
    FOLDER,
    find_metric_range_over_probes,
    list_thresholds_in_check,
    read_named_page,
    read_probe_pairs,
    read_rule_page,
)
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.reports.metrics import CATALOGUE, FAMILIES
from profkit.show.text.words import BOUNDS
from tests.conftest import ROOT
from tests.found import find_files
from tests.kernels import passed

WORDS, METRICS = sorted(BOUNDS), sorted(set(FAMILIES.values()))


@pytest.mark.parametrize("rule", [r.id for r in ALL])
def test_a_rule_has_its_page(rule: str) -> None:
    page = read_rule_page(rule)
    assert page.before != page.after
    assert page.before.language == page.after.language
    assert all(alarm.endswith((".", "!")) for alarm in page.false_alarms)
    assert page.thresholds or list_thresholds_in_check(BY_ID[rule]), "say what decides"
    _holds_for_all(page.hardware, page.official)


@pytest.mark.parametrize("word", WORDS)
def test_a_bound_has_its_page(word: str) -> None:
    page = read_named_page(f"words/{word}.md")
    assert page.thresholds
    assert page.false_alarms
    _holds_for_all(page.hardware, page.official)


@pytest.mark.parametrize("family", METRICS)
def test_a_family_of_metrics_has_its_page(family: str) -> None:
    page = read_named_page(f"metrics/{family}.md")
    _holds_for_all(page.hardware, page.official)


def _holds_for_all(hardware: str, official: str) -> None:
    assert len(re.findall(r"\.(?= |$)(?<!\d\.\d)", hardware)) == 3, "three sentences"
    assert official.startswith("https://docs.nvidia.com/")


def test_no_page_is_of_nothing() -> None:
    assert {p.stem for p in find_files(FOLDER, "*.md")} == set(BY_ID)
    assert [p.stem for p in sorted((FOLDER / "words").iterdir())] == WORDS
    assert [p.stem for p in sorted((FOLDER / "metrics").iterdir())] == METRICS
    assert set(FAMILIES) == set(CATALOGUE)


def test_a_page_that_is_missing_is_named() -> None:
    with pytest.raises(ProfkitError, match=r"no page nothing\.md"):
        read_rule_page("nothing")


def test_thresholds_stand_with_their_reasons() -> None:
    found = {t.name: t for t in list_thresholds_in_check(BY_ID["atomics-contention"])}
    assert found["HOT_SLICE"].value == "0.25"
    assert "every 3 to 4 cycles" in found["HOT_SLICE"].reason
    assert "arXiv" in found["QUEUED_LOAD_CYCLES"].reason
    (peak,) = list_thresholds_in_check(BY_ID["issue-slots"])
    assert peak.value.startswith(
        "counts as full at 70 % of its peak, or at 55 % while warps spend 20 %"
    )
    assert all(t.reason for rule in ALL for t in list_thresholds_in_check(rule))


def test_only_rules_of_barriers_name_the_threshold_of_wgmma() -> None:
    name_it = {r.id for r in ALL if "PER_PRODUCT" in {t.name for t in list_thresholds_in_check(r)}}
    assert name_it == {"barrier-wait", "wgmma-wait"}


def test_pairs_are_the_rule_s_own() -> None:
    pairs = read_probe_pairs("uncoalesced-access")
    assert pairs[0].gain == max(pair.gain for pair in pairs)
    assert read_probe_pairs("clocks-unsteady") == ()
    ends = find_metric_range_over_probes("shared_busy")
    assert ends is not None
    assert ends.low[1] < ends.high[1] <= 1.0


def test_what_is_measured_is_what_was_recorded() -> None:
    """The pairs of each rule, worked out again from headers and times of the probes."""
    sys.path.insert(0, str(ROOT / "tools"))
    import explained

    for rule, pairs in explained.pairs().items():
        assert [vars(pair) for pair in read_probe_pairs(rule)] == pairs, "python tools/explained.py"


@pytest.mark.slow
@pytest.mark.slow
def test_the_ranges_are_those_of_the_reports() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    import explained

    assert (FOLDER / "measured.json").read_text("utf-8") == explained.document()


@pytest.mark.nvcc
def test_before_and_after_compile(tmp_path: Path) -> None:
    """All of them as one file, each in a namespace of its own."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    includes, bodies = set(), []
    for rule in ALL:
        page = read_rule_page(rule.id)
        for which, snippet in (("before", page.before), ("after", page.after)):
            if snippet.language != "cuda":
                continue
            found = re.findall(r"^#include .*\n", snippet.text, re.M)
            includes.update(found)
            body = re.sub(r"^#include .*\n", "", snippet.text, flags=re.M)
            name = f"{rule.id.replace('-', '_')}_{which}"
            bodies.append(f'#line 1 "{rule.id}.md {which}"\nnamespace {name} {{\n{body}}}\n')
    assert len(bodies) >= 100
    file = tmp_path / "pages.cu"
    file.write_text("".join([*sorted(includes), *bodies]), "utf-8")
    flags = ("-arch=sm_90a", "-std=c++17", "-O1", "-Werror", "all-warnings", "-Xcompiler", "-Wall")
    made_of = passed.hash_run(file.read_text("utf-8"), "compiles", flags)
    if passed.is_kept("pages of causes", made_of):
        return
    done = subprocess.run(
        [nvcc, *flags, "-cubin", "-o", str(tmp_path / "x"), str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000]
    passed.keep_pass("pages of causes", made_of)
