"""Are the verdicts right, and do the gains come true? Scored on kernels whose truth is known.

    python tools/score.py verdicts [--json]
    python tools/score.py verdicts REPORT...  only where the diagnosis and ncu's rule disagree on these

For every probe of kernels/probes: what its header says it is bound by and why, what the diagnosis
says, what Nsight Compute's own bottleneck rule and the plain comparison of SM and memory throughput
say on the same report; and for those with a twin, the bound on the gain, the gain that was expected
and the one that came.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path
from types import ModuleType
from typing import Any

from profkit.diagnosis.verdict import judge_launch
from profkit.evidence.users_code import import_python_file_as
from profkit.model.scenario import Expectation
from profkit.reports.reader import Reports, read_report_files

ROOT = Path(__file__).parents[1]
PROBES = ROOT / "kernels" / "probes"
RECORDED = ROOT / "artifacts" / "probes"
WITHIN = 2.0  # a bound is tight if the measured gain is at least it / WITHIN
CLOSE = 1.5  # an expectation is good if the measured speed-up is within this factor of it
NOISE = 1.02  # a measured gain this much above an estimate is not above it


@dataclass(frozen=True)
class Row:
    """One probe: the truth of its header, the verdict on its report, the gain of its twin."""

    probe: str
    bound: str  # the true one, as its header says; so are limiter and cause
    limiter: str
    cause: str  # the rule that must be named first
    said: tuple[str, str | None, str | None]  # bound, limiter and first rule of the diagnosis
    missed: tuple[str, ...]  # rules of the header's `also:` that do not fire
    estimate: float | None  # gain of the first finding, an upper bound; None where none is given
    expect: Expectation | None  # of removing its cause; None where it is full, or never measured
    gain: float | None  # measured: time of the probe over that of its twin; None without a twin
    ncu: str  # class that Nsight Compute's bottleneck rule names
    ncu_estimate: float | None  # the largest gain that its rules promise for the whole workload
    naive: str  # the larger of SM and memory throughput

    @property
    def right(self) -> tuple[bool, bool, bool]:
        """Bound, limiter with bound, cause named first."""
        bound = self.said[0] == self.bound
        limiters = sorted((self.said[1] or "").split("+")) == sorted(self.limiter.split("+"))
        return bound, bound and limiters, self.said[2] == self.cause


def truths() -> ModuleType:
    """kernels/probes/problem.py, which is not in a package."""
    return import_python_file_as(PROBES / "problem.py", "probes_problem")


def main_launches(reports: Reports) -> dict[str, Any]:
    """Probe -> its row of the frame; the last launch of a name counts, so reports can be added."""
    rows = reports.launches.to_dict("records")
    return {row["variant"]: row for row in rows if row["case"] == "main"}


def ncu_class(rules: Any) -> str:
    """What SOLBottleneck says, in our words: its advice names the section to look at."""
    found = rules[rules["rule"] == "SOLBottleneck"]
    if found.empty:
        return "unknown"
    title, message = str(found["title"].iloc[0]), str(found["message"].iloc[0])
    words = {"Small Grid": "launch", "Latency Issue": "latency", "Balanced Throughput": "balanced"}
    if title in words:
        return words[title]
    if "grid is too small" in message:  # before 2022 every title was the same
        return "launch"
    return "memory" if "Memory Workload Analysis" in message else "compute"


def ncu_gain(rules: Any) -> float | None:
    """The largest decrease in runtime that NVIDIA's rules promise for the workload, as a factor."""
    shares = rules[rules["scope"] == "global"]["speedup"].dropna()
    return None if shares.empty else float(1 / (1 - min(shares.max(), 0.999)))


def rows(folder: Path = RECORDED) -> list[Row]:
    """Every recorded probe."""
    known = truths()
    reports = read_report_files(sorted(folder.glob("probes-*.ncu-rep*")))
    timed = folder / "times.json"
    times = json.loads(timed.read_text("utf-8"))["times"] if timed.exists() else None
    launches, found = main_launches(reports), []
    for name, path in known.probes(PROBES).items():
        if name in launches and (times is None or name in times):
            launch, keys = launches[name], known.header(path)
            same = (reports.rules["report"] == launch["report"]) & (
                reports.rules["launch"] == launch["launch"]
            )
            took = times[name] if times else {}
            found.append(_row(name, keys, launch, reports.rules[same], took))
    return found


def declared(keys: Mapping[str, str]) -> dict[str, float]:
    """What a probe's header says of its workload, as metrics."""
    pairs = (d.partition("=") for d in keys.get("declares", "").split())
    return {name: float(number) for name, _, number in pairs}


def disagreements(paths: Iterable[Path]) -> tuple[list[tuple[str, str, str, str]], int]:
    """Launches of any reports that ncu's rule puts into another class than the diagnosis does.

    Returns:
        (report, kernel, ncu's class, bound and limiter with the sentence that says why) of each, and
        how many launches both had an answer for.
    """
    found, asked = [], 0
    for path in paths:
        reports = read_report_files([path])
        for launch in reports.launches.to_dict("records"):
            said = judge_launch(launch)
            theirs = ncu_class(reports.rules[reports.rules["launch"] == launch["launch"]])
            asked += "unknown" not in (theirs, said.bound)
            if theirs != said.bound and "unknown" not in (theirs, said.bound):
                why = f"{said.bound}/{said.limiter}: {said.because}"
                found.append((path.name, str(launch["kernel"]).split("(")[0], theirs, why))
    return found, asked


def _row(name: str, keys: dict[str, str], launch: Any, rules: Any, took: Any) -> Row:
    diagnosis = judge_launch({**launch, **declared(keys)})
    fires = [f for f in diagnosis.findings if f.status == "fires"]
    also = set(keys.get("also", "").replace(",", " ").split())
    sm, memory = launch["sm_busy"], launch["memory_busy"]
    return Row(
        name,
        keys["bound"],
        keys["limiter"],
        keys["cause"],
        (diagnosis.bound, diagnosis.limiter, fires[0].rule if fires else None),
        tuple(sorted(also - {f.rule for f in fires})),
        fires[0].gain if fires else None,
        fires[0].expect if fires else None,
        took["main"] / took["twin"] if "twin" in took else None,
        ncu_class(rules),
        ncu_gain(rules),
        "unknown" if isnan(sm) or isnan(memory) else "memory" if memory >= sm else "compute",
    )


def good(estimates: Iterable[tuple[float | None, float | None]]) -> tuple[int, int, int]:
    """How many of (estimate, measured) are kept: at or below it and within a factor of two of it.

    Returns:
        Kept, measured gains at or below their estimate, all that have both.
    """
    pairs = [(e, g) for e, g in estimates if e is not None and g is not None]
    below = [(e, g) for e, g in pairs if g <= e * NOISE]
    return sum(e <= g * WITHIN for e, g in below), len(below), len(pairs)


def score(found: list[Row]) -> dict[str, tuple[int, int]]:
    """Name -> (right, of how many)."""
    count = len(found)
    kept, held, bounded = good((r.estimate, r.gain) for r in found)
    hopes = [(r.expect, r.gain) for r in found if r.expect is not None and r.gain is not None]
    theirs, _, their_estimates = good((r.ncu_estimate, r.gain) for r in found)
    return {
        "bound": (sum(r.right[0] for r in found), count),
        "limiter": (sum(r.right[1] for r in found), count),
        "cause first": (sum(r.right[2] for r in found), count),
        "bound held": (held, bounded),
        "bound held and within 2x": (kept, bounded),
        "expected within 1.5x": (
            sum(1 / CLOSE <= hope.gain / gain <= CLOSE for hope, gain in hopes),
            len(hopes),
        ),
        "inside the interval": (
            sum(hope.low <= gain <= hope.high for hope, gain in hopes),
            len(hopes),
        ),
        "ncu's rule: bound": (sum(r.ncu == r.bound for r in found), count),
        "ncu's rules: held and within 2x": (theirs, their_estimates),
        "larger of SM and memory: bound": (sum(r.naive == r.bound for r in found), count),
    }


def show(found: list[Row]) -> None:
    """One line per probe, misses marked, then the totals."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    titles = "probe truth verdict cause at-most expected gain ncu its-gain naive"
    for title in titles.split():
        table.add_column(title.replace("-", " "), no_wrap=True)
    for r in found:
        bound, limiter, cause = r.right
        verdict = f"{r.said[0]}/{r.said[1]}"
        table.add_row(
            r.probe,
            f"{r.bound}/{r.limiter}",
            verdict if bound and limiter else f"[red]{verdict} <-[/red]",
            str(r.said[2]) if cause else f"[red]{r.said[2]} <- {r.cause}[/red]",
            _factor(r.estimate),
            _factor(r.expect.gain if r.expect else None),
            _factor(r.gain),
            r.ncu if r.ncu == r.bound else f"[yellow]{r.ncu}[/yellow]",
            _factor(r.ncu_estimate),
            r.naive if r.naive == r.bound else f"[yellow]{r.naive}[/yellow]",
        )
    console = Console(width=170)
    console.print(table)
    for name, (right, of) in score(found).items():
        console.print(f"{name}: {right} of {of} ({right / max(of, 1):.0%})", highlight=False)


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}x"


def main(words: list[str]) -> int:
    """Print the scores of the probes, or where reports and ncu disagree."""
    if others := [Path(word) for word in words if not word.startswith("--")]:
        differing, asked = disagreements(others)
        for report, kernel, theirs, why in differing:
            print(f"{report}: {kernel}\n  ncu says {theirs}; we say {why}")
        print(f"{len(differing)} of {asked} launches")
        return 0
    judged = rows()
    if "--json" in words:
        print(json.dumps({"score": score(judged), "probes": [asdict(r) for r in judged]}, indent=1))
    else:
        show(judged)
    return 0
