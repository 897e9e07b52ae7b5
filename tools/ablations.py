"""What was ablated and recorded  ->  the table of docs/why/ablation.md: how often it is right.

    python tools/ablations.py           the table
    python tools/ablations.py --write   into the page

A probe's planted cause is in its header; what fixing it really brings is its fixed copy,
timed in turns with it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verdicts import main_launches

from profkit.files import write_text
from profkit.records.ablation import AblationRecord, AblationVerdict
from profkit.records.header import parse_header, split_into_ids
from profkit.records.record import parse_record
from profkit.reports import figures
from profkit.reports.figures import format_percent
from profkit.reports.reader import read_report_files
from profkit.show.text.terminal import make_console, render_text
from profkit.show.views.ablation import show_ablations

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "artifacts" / "probes" / "ablations.json.xz"
PUBLIC = ROOT / "artifacts" / "probes" / "public.json.xz"
LISTED = ROOT / "tests" / "ablation" / "public.toml"
# Pairs of other repositories that were measured once, by code that was made without them.
UNSEEN = ROOT / "artifacts" / "probes" / "unseen.json.xz"
# The same, by the code of 740.
AGAIN = ROOT / "artifacts" / "probes" / "again.json.xz"
UNSEEN_LISTED = ROOT / "tests" / "ablation" / "unseen.toml"
# Pairs of one more repository, and captured Triton kernels with the change of each.
LATER = ROOT / "artifacts" / "probes" / "later.json.xz"
LATER_LISTED = ROOT / "tests" / "ablation" / "later.toml"
TRITON = ROOT / "artifacts" / "probes" / "triton.json.xz"
TRITON_LISTED = ROOT / "tests" / "ablation" / "triton.toml"
# Pairs whose change gives a block more work, listed before blocks were joined.
JOINED = ROOT / "artifacts" / "probes" / "joined.json.xz"
JOINED_LISTED = ROOT / "tests" / "ablation" / "joined.toml"
VERDICTS = ROOT / "artifacts" / "probes" / "verdicts.json.xz"
STEPS = ROOT / "artifacts" / "probes" / "steps.json.xz"
CHECKED = ROOT / "artifacts" / "probes" / "memcheck.json"
ADVICE = ROOT / "artifacts" / "probes" / "cuxray.json"
PAGE = ROOT / "docs" / "why" / "ablation.md"
BEGIN, END = "<!-- python tools/ablations.py --write -->", "<!-- end -->"
SHOWN = "transpose-conflict"
_WITHIN = 1.25
_WITHIN_PUBLIC = 1.3
_WORTH = 1.1
BROUGHT = 1.05  # the speed-up of a change, below which the kernel is a control
_FIXED = " fixed"  # behind the name of a kernel in the records: as it was fixed
_OURS = "ours: "  # a fix that we wrote, where nobody published one


def read_records(file: Path = KEPT) -> dict[str, Any]:
    return dict(json.loads(lzma.decompress(file.read_bytes())))


def read_checked() -> dict[str, Any]:
    """Probe -> the ablations that ran under memcheck, and its exit status."""
    if not CHECKED.exists():
        return {}
    return dict(json.loads(CHECKED.read_text("utf-8")))


def read_planted() -> dict[str, set[str]]:
    """Probe -> the causes that count as right: the planted one, and those its header allows beside."""
    planted = {}
    for path in sorted((ROOT / "kernels" / "probes").rglob("*.cu")):
        keys = parse_header(path.read_text("utf-8"), path.name).keys
        planted[path.stem.split("_")[0]] = {keys["cause"], *split_into_ids(keys.get("also", ""))}
    return planted


def judge_probes(records: Mapping[str, Any]) -> dict[str, str]:
    """Probe -> right, wrong or cannot tell."""
    answers = {}
    for probe, causes in read_planted().items():
        said = records.get(probe, {}).get("verdict", {}).get("cause", "")
        answers[probe] = "cannot tell" if not said else "right" if said in causes else "wrong"
    return answers


# Which causes the first item of `cuxray advise` stands for, decided before it was run on any probe but
# conflict8; each reading that could be right counts.
_ADVICE = {
    "eliminate register spills": {"register-spills"},
    "cut registers": {"occupancy-registers"},
    "cut shared": {"occupancy-shared"},
    "cut threads": {"occupancy-blocks"},
    "remove shared-memory bank conflicts": {"shared-bank-conflicts"},
    "coalesce or stage global accesses": {"uncoalesced-access"},
    "stage block-invariant reads": {"l2-bandwidth", "dram-bandwidth"},
    "consider staging block-invariant reads": {"l2-bandwidth", "dram-bandwidth"},
    "loop is issue/latency-bound": {"issue-slots", "fixed-latency", "short-scoreboard"},
    "SIMT datapath": {"tensor-idle"},
}


def judge_advice() -> dict[str, str]:
    """Probe -> whether cuxray's first item names its cause; without a GPU, from the machine code."""
    answers = {}
    said: dict[str, str] = json.loads(ADVICE.read_text("utf-8"))["first"]
    for probe, causes in read_planted().items():
        answers[probe] = "cannot tell" if not said[probe] else "wrong"
        for beginning, meant in _ADVICE.items():
            if said[probe].startswith(beginning) and causes & meant:
                answers[probe] = "right"
    return answers


# The documented reading of kernoscope 0.2.3, by shares: many issue slots used, else DRAM busy, else few
# slots used. It names no cause.
_KERNOSCOPE_ISSUES, _KERNOSCOPE_DRAM, _KERNOSCOPE_WAITS = 0.60, 0.50, 0.20


def judge_kernoscope() -> dict[str, str]:
    """Probe -> whether kernoscope's rule names its bound, by counters in the place of its estimates."""
    launches = main_launches(read_report_files(sorted(KEPT.parent.glob("probes-*.ncu-rep*"))))
    answers = {}
    for path in sorted((ROOT / "kernels" / "probes").rglob("*.cu")):
        launch = launches.get(path.stem.split("_")[0])
        if launch is None:
            continue
        bound = parse_header(path.read_text("utf-8"), path.name).keys["bound"]
        said = ""
        if launch["issue_busy"] >= _KERNOSCOPE_ISSUES:
            said = "compute"
        elif launch["dram_busy"] >= _KERNOSCOPE_DRAM:
            said = "memory"
        elif launch["issue_busy"] <= _KERNOSCOPE_WAITS:
            said = "latency"
        answers[path.stem.split("_")[0]] = "cannot tell" if not said else "wrong"
        if said == bound:
            answers[path.stem.split("_")[0]] = "right"
    return answers


def judge_bounds(records: Mapping[str, Any]) -> dict[str, str]:
    """Probe -> whether the bound is the one that its header says."""
    answers = {}
    for path in sorted((ROOT / "kernels" / "probes").rglob("*.cu")):
        name = path.stem.split("_")[0]
        said = records[name]["verdict"]["bound"]
        answers[name] = "cannot tell" if said == "unknown" else "wrong"
        if said == parse_header(path.read_text("utf-8"), path.name).keys["bound"]:
            answers[name] = "right"
    return answers


def count_answers(answers: Mapping[str, str]) -> str:
    counted = Counter(answers.values())
    return " / ".join(str(counted[name]) for name in ("right", "wrong", "cannot tell"))


def compare_twins(records: Mapping[str, Any]) -> dict[str, tuple[str, float, float]]:
    """Probe -> the ablation that is worth most of those a fix can reach, its gain, and its twin's."""
    compared = {}
    for probe, record in records.items():
        twin = record.get("others", {}).get("twin")
        reachable = [row for row in record.get("measured", ()) if row["reachable"]]
        worth = [row for row in reachable if row["gain"] >= _WORTH]
        if twin and worth:
            best = max(worth, key=lambda row: row["gain"])
            compared[probe] = (best["ablation"], best["gain"], record["base"] / twin)
    return compared


def is_within(gain: float, real: float, factor: float = _WITHIN) -> bool:
    return 1 / factor <= gain / real <= factor


@dataclass(frozen=True)
class Public:
    """A public kernel: what was listed of it before it was measured, and what came."""

    name: str
    fix: str
    ablation: str  # that stands for the change; empty where none does
    gain: float | None  # that it measured; where none stands for the change, the largest reachable
    largest: str  # which ablation that is of
    shown: float  # the most that is sure of any reachable one
    real: float  # how much faster the changed one is
    of: str = ""  # the kernel that is the same before: a change of ours stands for what was claimed
    helped: float = (
        1.0  # how much faster a change of ours makes it, which stands for what was claimed
    )

    @property
    def is_ours(self) -> bool:
        return self.fix.startswith(_OURS)

    @property
    def is_faster(self) -> bool:
        """Whether its own change made it faster."""
        return self.real >= BROUGHT

    @property
    def is_control(self) -> bool:
        """Whether the change brought nothing, whatever was thought of it before."""
        return not self.is_faster and self.helped < BROUGHT

    @property
    def is_right(self) -> bool:
        if self.is_control:
            return self.shown < _WORTH
        return self.gain is not None and is_within(self.gain, self.real, _WITHIN_PUBLIC)


def read_public(listed: Path = LISTED, kept: Path = PUBLIC) -> list[Public]:
    records, found = read_records(kept), []
    for kernel in tomllib.loads(listed.read_text("utf-8"))["kernel"]:
        record = records.get(kernel["name"])
        if record is None:
            continue
        measured = AblationRecord.from_record(record)
        rows = {row.ablation: row for row in measured.measured if row.reachable}
        largest = max(rows, key=lambda name: rows[name].sure_gain, default="")
        row = rows.get(kernel["ablation"] or largest)
        found.append(
            Public(
                name=kernel["name"],
                fix=kernel["fix"],
                ablation=kernel["ablation"],
                gain=row.gain if row else None,
                largest=largest,
                shown=max((row.sure_gain for row in rows.values()), default=1.0),
                real=record["base"] / record["others"][f"{kernel['name']}-after"],
                of=kernel.get("of", ""),
            )
        )
    helped = {kernel.of: kernel.real for kernel in found if kernel.of}
    return [replace(kernel, helped=helped.get(kernel.name, 1.0)) for kernel in found]


def judge_unseen(listed: Path = UNSEEN_LISTED, kept: Path = UNSEEN) -> dict[str, str]:
    """Pair whose change helped -> whether the cause is one of those that were written down before."""
    records, answers = read_records(kept), {}
    causes = {}
    for kernel in tomllib.loads(listed.read_text("utf-8"))["kernel"]:
        causes[kernel["name"]] = kernel["causes"]
    for kernel in read_public(listed, kept):
        if not kernel.is_faster or kernel.is_ours or not causes[kernel.name]:
            continue
        said = records[kernel.name]["verdict"]["cause"]
        answers[kernel.name] = "cannot tell" if not said else "wrong"
        if said in causes[kernel.name]:
            answers[kernel.name] = "right"
    return answers


def read_fixed(listed: Path = LISTED, kept: Path = PUBLIC) -> dict[str, tuple[str, float]]:
    """Fixed kernel -> the ablation that its fix stands for, and what is sure of its gain again."""
    records, found = read_records(kept), {}
    helped = {kernel.name for kernel in read_public(listed, kept) if kernel.is_faster}
    for kernel in tomllib.loads(listed.read_text("utf-8"))["kernel"]:
        record = records.get(f"{kernel['name']}{_FIXED}")
        if record is None or kernel["name"] not in helped:
            continue
        shown = 1.0
        for row in AblationRecord.from_record(record).measured:
            if row.ablation == kernel["ablation"]:
                shown = row.sure_gain
        found[kernel["name"]] = (kernel["ablation"], shown)
    return found


def write_public(kernels: Sequence[Public]) -> Iterator[str]:
    yield "| public kernel | its change | removed | gain | sure of any | the changed one's |"
    yield "|---|---|---|--:|--:|--:|"
    for kernel in sorted(kernels, key=lambda kernel: kernel.is_control):
        what = kernel.ablation or f"none stands for it; {kernel.largest or 'nothing'}"
        if kernel.is_control:
            what = f"control; {kernel.largest or 'nothing'}"
        gain = "refused" if kernel.gain is None else f"{kernel.gain:.3g}x"
        if kernel.helped >= BROUGHT:
            what = f"listed as a control; {kernel.largest}"
        mark = " (off)"
        if (
            kernel.is_right
            or kernel.helped >= BROUGHT
            or not (kernel.ablation or kernel.is_control)
        ):
            mark = ""
        yield (
            f"| {kernel.name} | {kernel.fix} | {what} | {gain} | {kernel.shown:.3g}x "
            f"| {kernel.real:.3g}x{mark} |"
        )


def count_right(kernels: Sequence[Public]) -> str:
    return f"{sum(kernel.is_right for kernel in kernels)} of {len(kernels)}"


def write_public_goals() -> Iterator[str]:
    """Rows of the table: what came of the public kernels, by what their changes brought."""
    public = [kernel for kernel in read_public() if not kernel.is_ours]
    fixes = [kernel for kernel in public if kernel.ablation and kernel.is_faster]
    controls = [kernel for kernel in public if kernel.is_control]
    others = [kernel for kernel in public if not kernel.ablation and kernel.is_faster]
    disproved = [kernel for kernel in public if kernel.helped >= BROUGHT]
    fixed = read_fixed()
    gone = sum(shown < _WORTH for _, shown in fixed.values())
    yield (
        f"| public kernels whose published change made them {BROUGHT}x as fast or more: within "
        f"{_WITHIN_PUBLIC}x | 70 % | {count_right(fixes)} |"
    )
    yield (
        f"| controls, which their published change made less than that faster: no gain is claimed "
        f"| 90 % | {count_right(controls)} |"
    )
    if fixed:
        yield (
            f"| fixed kernels{_OLDER}: no gain is claimed from removing again what the fix removed "
            f"| 90 % | {gone} of {len(fixed)} |"
        )
    brought = ", ".join(f"{kernel.name} {kernel.real:.2f}x" for kernel in others)
    yield (
        f"| changes that no ablation stands for, and that made the kernel faster "
        f"| | {len(others)}: {brought} |"
    )
    yield write_disproved(disproved)


# Of the kernels as they were fixed: the last run did not measure them.
_OLDER = ", by older code on an H100"


def write_unseen(
    listed: Path, kept: Path, what: str, when: str, fixed_when: str = ""
) -> Iterator[str]:
    """Rows of the table: what came of pairs that were listed before they were measured."""
    kernels = [kernel for kernel in read_public(listed, kept) if not kernel.is_ours]
    fixes = [kernel for kernel in kernels if kernel.ablation and kernel.is_faster]
    controls = [kernel for kernel in kernels if kernel.is_control]
    disproved = [kernel for kernel in kernels if kernel.helped >= BROUGHT]
    fixed = read_fixed(listed, kept)
    gone = sum(shown < _WORTH for _, shown in fixed.values())
    answers = judge_unseen(listed, kept)
    off = [_say_miss(kernel) for kernel in (*fixes, *controls) if not kernel.is_right]
    yield (
        f"| {len(kernels)} {what}, {when}: gain of what stands for the change, within "
        f"{_WITHIN_PUBLIC}x | 70 % | {count_right(fixes)} |"
    )
    if controls:
        yield f"| controls among them: no gain is claimed | 90 % | {count_right(controls)} |"
    if disproved:
        yield write_disproved(disproved)
    if fixed:
        yield (
            f"| their fixed kernels{fixed_when}: no gain is claimed from removing again what the fix "
            f"removed | 90 % | {gone} of {len(fixed)} |"
        )
    yield (
        f"| {len(answers)} of them that the change helped: cause right / wrong / cannot tell "
        f"| | {count_answers(answers)} |"
    )
    yield f"| what was off of them | | {', '.join(off) or 'nothing'} |"


def write_disproved(kernels: Sequence[Public]) -> str:
    """Return the row of kernels whose claim a change of ours bears out."""
    claims = ", ".join(f"{k.name} {k.shown:.2f}x, brought {k.helped:.2f}x" for k in kernels)
    return (
        "| listed as controls, and none: our change of what was claimed makes them faster "
        f"| | {len(kernels)}: {claims} |"
    )


def _say_miss(kernel: Public) -> str:
    if kernel.is_control:
        return f"{kernel.name} {kernel.shown:.2f}x by {kernel.largest}, brought {kernel.real:.2f}x"
    gain = "refused" if kernel.gain is None else f"{kernel.gain:.2f}x"
    return f"{kernel.name} {gain}, brought {kernel.real:.2f}x"


def compare_verdicts() -> str:
    """How much of the time of all kernels has the bound that counters say, and of how many kernels."""
    records = read_records(VERDICTS)
    total = same = 0.0
    equal = 0
    for record in records.values():
        seconds = record["ablation"]["base"]
        is_same = record["ablation"]["verdict"]["bound"] == record["counters"]["bound"]
        total += seconds
        same += seconds * is_same
        equal += is_same
    return f"{format_percent(same / total)} of the time, {equal} of {len(records)} kernels"


@dataclass(frozen=True)
class Step:
    """A step of a ladder: what fixing its cause was measured to be worth before, and what it brought."""

    before: str
    after: str
    gain: float | None  # None where no ablation stands for what the step says that it fixes
    bound: (
        float | None
    )  # what SMs that are never idle would bring, where the step is about the grid
    real: float


def read_steps() -> list[Step]:
    fixed = {}
    for path in sorted((ROOT / "kernels").glob("[!p]*/**/*.cu")):
        keys = parse_header(path.read_text("utf-8"), path.name).keys
        fixed[path.stem.split("_")[0]] = split_into_ids(keys.get("fixes", ""))
    steps = []
    for record in json.loads(lzma.decompress(STEPS.read_bytes())):
        found = AblationRecord.from_record(record["ablation"])
        for after, seconds in found.others.items():
            rules = set(fixed[after])
            gain, real = find_largest_gain(found, rules), found.base / seconds
            bound = None
            if _OF_THE_GRID & rules and found.shape.idle is not None:
                bound = 1 / (1 - found.shape.idle)
            steps.append(Step(record["variant"], after, gain, bound, real))
    return steps


def find_largest_gain(found: AblationRecord, rules: Set[str]) -> float | None:
    """The largest gain that a fix can reach, of what stands for one of the rules."""
    gains = [row.gain for row in found.measured if row.reachable and set(row.rules) & rules]
    return max(gains, default=None)


_OF_THE_GRID = {"grid-too-small", "tail-effect", "workload-imbalance"}


def write_captured() -> Iterator[str]:
    """A row for each captured Triton kernel: its answer, and the bound that counters say."""
    yield "| captured Triton kernel | time | answer | removed | by counters |"
    yield "|---|--:|---|---|---|"
    for name, kept in read_records(VERDICTS).items():
        if name.startswith("captured/"):
            counters = kept["counters"]
            by_counters = f"{counters['bound']}: {counters['cause']}"
            yield write_answer(name.partition("/")[2], kept["ablation"], by_counters)
    yield ""
    yield "| first kernel of a pair in Triton | time | answer | removed | the change brought |"
    yield "|---|--:|---|---|--:|"
    records = read_records(TRITON)
    for kernel in read_public(TRITON_LISTED, TRITON):
        yield write_answer(kernel.name, records[kernel.name], f"{kernel.real:.2f}x")


def write_answer(name: str, record: Mapping[str, Any], last: str) -> str:
    """Return the row of one ablated kernel."""
    found = AblationRecord.from_record(record)
    rows = [row for row in found.measured if row.reachable and row.sure_gain >= _WORTH]
    removed = "nothing that a fix reaches"
    if rows:
        removed = f"{rows[0].ablation} {rows[0].gain:.3g}x"
    time = figures.format_seconds(found.base)
    return f"| {name} | {time} | {say_answer(found.verdict)} | {removed} | {last} |"


def say_answer(verdict: AblationVerdict) -> str:
    """Return a verdict's bound and cause in words."""
    if verdict.bound == "unknown":
        return "cannot tell"
    return f"{verdict.bound}: {verdict.cause or 'cannot tell the cause'}"


def write_steps() -> Iterator[str]:
    steps = read_steps()
    reached, bounded, others = [], [], []
    near = held = 0
    for step in steps:
        if step.gain is not None:
            reached.append(f"{step.after} {step.gain:.2f}x, brought {step.real:.2f}x")
            near += is_within(step.gain, step.real)
        elif step.bound is not None:
            bounded.append(f"{step.after} {step.bound:.2f}x, brought {step.real:.2f}x")
            held += step.real <= step.bound
        else:
            others.append(step.after)
    yield (
        f"| steps of the ladder, of which a reachable ablation measures what the step fixes: within "
        f"{_WITHIN}x | 70 % | {near} of {len(reached)}: {', '.join(reached)} |"
    )
    yield (
        f"| steps about the grid: no more than what SMs that are never idle would bring, a bound | all "
        f"| {held} of {len(bounded)}: {', '.join(bounded)} |"
    )
    yield (
        f"| steps whose cause nothing reachable stands for | | {len(others)}: {', '.join(others)} |"
    )


def list_unchecked(records: Mapping[str, Any]) -> list[str]:
    """Ablations that were measured of probes where memcheck has not seen them."""
    checked, newer = read_checked(), set()
    for probe, record in records.items():
        for row in record["measured"]:
            if row["ablation"] not in checked[probe]["ablations"]:
                newer.add(row["ablation"])
    return sorted(newer)


def write_table() -> Iterator[str]:
    records = read_records()
    twins = compare_twins(records)
    near = sum(is_within(gain, real) for _, gain, real in twins.values())
    slowest = max(record.get("seconds", 0.0) for record in records.values())
    rebuilt = max(abs(record.get("rebuilt", 1.0) - 1) for record in records.values())
    counts = count_answers(judge_probes(records))
    checked = read_checked()
    yield "| on | goal | measured |"
    yield "|---|---|---|"
    yield f"| {len(records)} probes: cause right / wrong / cannot tell | 85 / 3 / rest | {counts} |"
    yield (
        "| the same by cuxray 0.6.0, first item of `advise`, from machine code alone | "
        f"| {count_answers(judge_advice())} |"
    )
    yield (
        f"| their bound: right / wrong / cannot tell | | {count_answers(judge_bounds(records))} |"
    )
    yield (
        "| the same by what kernoscope 0.2.3 documents, read and not run: many issue slots used, else "
        "DRAM busy, else few slots used; by counters in the place of its estimates "
        f"| | {count_answers(judge_kernoscope())} |"
    )
    yield (
        f"| gain of what a fix can reach, within {_WITHIN}x of its fixed copy's | 80 % "
        f"| {near} of {len(twins)} |"
    )
    if checked:
        clean = sum(row["status"] == 0 for row in checked.values())
        runs = sum(len(row["ablations"]) for row in checked.values())
        yield (
            f"| probes whose ablations, {runs} in all, memcheck finds nothing in | all "
            f"| {clean} of {len(checked)} |"
        )
    most = format_percent(rebuilt, 1)
    yield f"| the same code assembled here, over the original | within 2 % | {most} at most |"
    yield f"| one probe with its compilations, seconds | 20 | {slowest:.0f} at most |"
    yield from write_public_goals()
    pairs = "pairs of ten other repositories"
    yield from write_unseen(UNSEEN_LISTED, UNSEEN, pairs, "the first time that they were seen")
    yield from write_unseen(UNSEEN_LISTED, AGAIN, pairs, "by the code of 740", _OLDER)
    pairs = "pairs of one more repository"
    yield from write_unseen(LATER_LISTED, LATER, pairs, "the first time that they were seen")
    pairs = "pairs in Triton, the first of each captured"
    yield from write_unseen(TRITON_LISTED, TRITON, pairs, "the first time that they were seen")
    pairs = "pairs whose change gives each block more work, two blocks in one"
    yield from write_unseen(JOINED_LISTED, JOINED, pairs, "the first time that they were joined")
    yield from write_steps()
    yield (
        f"| the bound that counters say, of the ladder and of captured Triton kernels "
        f"| 90 % of the time | {compare_verdicts()} |"
    )
    yield ""
    yield from write_public(read_public())
    yield ""
    yield from write_captured()
    yield ""
    yield "| probe | removed | gain | its fixed copy's |"
    yield "|---|---|--:|--:|"
    for probe, (ablation, gain, real) in sorted(twins.items()):
        mark = "" if is_within(gain, real) else " (off)"
        yield f"| {probe} | {ablation} | {gain:.3g}x | {real:.3g}x{mark} |"
    yield ""
    yield f"What was measured of `{SHOWN}`, as `--recorded` shows it:"
    yield ""
    yield "```text"
    yield from show_record(SHOWN, records[SHOWN])
    yield "```"


def show_record(probe: str, ablation: Mapping[str, Any]) -> list[str]:
    """What a verb prints of a probe's record, line by line."""
    document = {"variant": probe, "case": "probe", "problem": "probes", "ablation": ablation}
    shown = render_text(show_ablations([parse_record(document)]), make_console(width=100))
    return [line.rstrip() for line in shown.strip().splitlines()]


def put_into(page: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n" + "\n".join(write_table()) + f"\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="put it into the page")
    if parser.parse_args().write:
        write_text(PAGE, put_into(PAGE.read_text("utf-8")))
    else:
        print("\n".join(write_table()))


if __name__ == "__main__":
    main()
