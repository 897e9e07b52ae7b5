"""The ladder's page: kernels/README.md and its two pictures, written from the committed records.

    python tools/ladder_page.py [--build]

Times, counters and verdicts come from artifacts/, prose from the headers of kernels/attention. With
--build the kernels are compiled for an L4 first (on_l4.py); --check only says, by its exit status,
whether the page is current.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from math import isclose, isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profkit.cli.sources import open_evidence
from profkit.evidence.compare import Policy
from profkit.evidence.ladder import Ladder, LadderStep, build_ladder
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.stats import TimeComparison
from profkit.files import read_json
from profkit.lab.measure.variants.problem import is_complete_problem_folder, load_problem
from profkit.records.record import SourceFile
from profkit.records.store import make_json_safe
from profkit.reports import figures
from profkit.show.numbers import get_reference_medians_by_name
from profkit.show.text.blocks import Grid, render_markdown

sys.path[:0] = [str(Path(__file__).parents[1] / "analyses"), str(Path(__file__).parent)]
from arithmetic import CASES  # noqa: E402
from on_l4 import BUILT, built, section  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[1]
KERNELS, ARTIFACTS = ROOT / "kernels", ROOT / "artifacts"
PAGE, PICTURE, HEATMAP = (KERNELS / x for x in ("README.md", "ladder.png", "heatmap.png"))
GRID = ARTIFACTS / "attention" / "grid.jsonl"
PROTOCOLS = ARTIFACTS / "protocols.json"
MAIN = "B"
HEAD = """\
# Kernels

`attention/` is a ladder: one idea a file, each against the one it comes `after`. So are `decode/`,
`gqa/`, `layernorm/`, `blocksparse/` and `fp8/`, shorter ones, at the end of this page. `probes/` are
kernels whose bottleneck is known by construction. `common/` is what they share, so that a diff of two
rungs shows the idea and little else.

This page is written by `make ladder` (`python tools/ladder_page.py`) from the records in
`artifacts/` and the headers of the kernels; a test fails when it is not current. Measured on one
{gpu}: medians of replayed CUDA graphs with a warm L2. SDPA is PyTorch's
`scaled_dot_product_attention`, the best backend of the case ({versions}).
Above 1x is faster.

![The ladder at case B: time, step from the parent, SDPA backends](ladder.png)
"""
COLD = """\
Warm: calls of the same kernel follow one another on the same arrays, as in every other table here. Cold:
before each call another kernel reads twice the size of L2, so that nothing of the tensors is left there;
its own time is taken off. Per case the rungs that come within a quarter of the fastest, warm or cold,
against the fastest SDPA backend that took turns with them in one process. The goals for cold calls (2.0,
2.2 and 1.7 over SDPA at A, B and V) are retired: six rungs were to reach them, and each says why it does
not (`coldstart`, `straight`, `selfoverlap`, `l2ahead`, `lineseach`, `codeahead`)."""
HEAT = """\
![Who is fastest at 160 shapes, and how far ahead of the fastest SDPA backend](heatmap.png)

`torch.ops.profkit.attention` ([torch_op.py](attention/torch_op.py)) picks by shape from times like
these: `profkit roofline artifacts/attention/grid.jsonl` draws them."""
PROTOCOL_TEXT = """\
The same calls as four benchmarks time them, opponents beside them in one process, in microseconds:
in replayed graphs with a warm L2 (ours, the median); single shots by the profiler after 256 MB were
cleared (cudnn-frontend, the median of ten); events around each call after as much, for 10 ms after a
second's rest (FlashAttention) and for 100 ms (Triton's `do_bench`), the means. Graphs hide the
launch and cold caches; single shots and rests hide what power costs calls in a row; the sum of
kernels' times hides the launch, and counts a kernel that waits beside another twice (decode).
Events count the host where it is late. `profkit claims analyses/by_their_protocol.py` says what
holds under all four."""
NEAR = 1.25


def main(words: list[str]) -> int:
    """Write the page, or only say whether it is current."""
    if "--build" in words:
        BUILT.write_text(json.dumps(built(MAIN), indent=1) + "\n", "utf-8")
    text, made_of = page(), shown()
    drawn = same(json.loads(drawn_of()), made_of), drawn_of(HEATMAP) == grid_digest()
    if "--check" in words:
        return 0 if PAGE.read_text("utf-8") == text and all(drawn) else 1
    PAGE.write_text(text, "utf-8")
    if not drawn[0]:
        draw(made_of)
    if not drawn[1]:
        draw_grid(grid_digest())
    return 0


# --- the page ------------------------------------------------------------------------------------


@functools.cache
def evidence() -> Evidence:
    """The committed artifacts with the headers of today."""
    return open_evidence(ARTIFACTS)


def page() -> str:
    """All of kernels/README.md."""
    found = evidence()
    rungs = ladder_headers(found)
    ladders = {c: build_ladder(found, c, Policy(anyway=True)) for c in recorded(found, rungs)}
    first = next(r for r in found.load_all_usable_runs(lambda name: name[1] == MAIN)[0] if r.record)
    gpu = first.record.gpu.name if first.record and first.record.gpu else None
    parts = [HEAD.format(gpu=gpu, versions=_versions(found))]
    parts += ["", f"## Case {MAIN}: {shape(MAIN)}", "", *main_table(ladders[MAIN], found, rungs)]
    parts += ["", "## Warm and cold", "", COLD, "", *temperatures(list(ladders), found, rungs)]
    parts += ["", "## By other benchmarks' protocols", "", *protocols()]
    parts += ["", "## What was to move, and did it", "", *promises(ladders, rungs)]
    for case, steps in ladders.items():
        if case != MAIN:
            parts += ["", f"## Case {case}: {shape(case)}", "", *small_table(steps, found)]
    parts += ["", *section(CASES[MAIN], MAIN, order(ladders[MAIN], rungs))]
    parts += ["", "## What each rung teaches", *prose(ladders[MAIN], rungs)]
    parts += ["", "## Shapes between", "", HEAT]
    parts += other_problems(found)
    return "\n".join(parts).rstrip() + "\n"


def _versions(found: Evidence) -> str:
    """Which torch, driver and, where a record says it, cuDNN the references' records name."""
    records = (found.load(variant, case).record for variant, case in found.list_names())
    library = [r for r in records if r and r.is_reference and r.gpu]
    torch = {f"torch {r.versions.torch}" for r in library if r.versions.torch}
    cudnn = {f"cuDNN {r.versions.cudnn}" for r in library if r.versions.cudnn}
    driver = {f"driver {r.gpu.driver}" for r in library if r.gpu and r.gpu.driver}
    return ", ".join(sorted(torch) + sorted(cudnn) + sorted(driver))


def ladder_headers(found: Evidence) -> dict[str, SourceFile]:
    """Variant -> its file, of the ladder only."""
    start = "attention/"
    return {k.removeprefix(start): h for k, h in found.headers.items() if k.startswith(start)}


def recorded(found: Evidence, rungs: Mapping[str, SourceFile]) -> list[str]:
    """Cases at which a rung has a record, the main one first."""
    names = [name for name in found.list_names() if name[0] in rungs]
    cases = {
        case for v, case in names if (files := found.find_files_of_run(v, case)) and files.record
    }
    return sorted(cases, key=lambda case: (case != MAIN, case))


def order(found: Ladder, rungs: Mapping[str, SourceFile]) -> dict[str, SourceFile]:
    """The rungs in ladder order, those without a record last."""
    there = [s.variant for s in found.steps if s.variant in rungs]
    return {v: rungs[v] for v in [*there, *(v for v in rungs if v not in there)]}


def shape(case: str) -> str:
    """(B, H, S, D) of a case."""
    name, _, causal = case.partition("-")
    work = CASES[name]
    sizes = f"({work.batch}, {work.heads}, {work.length}, {work.dim})"
    return f"{sizes}, causal" if causal else sizes


def link(variant: str, depth: int = 0, file: str = "") -> str:
    """A variant as a link to its file, indented."""
    name = f"[`{variant}`]({file})" if file else f"`{variant}`"
    return "&nbsp;" * 3 * depth + name


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A Markdown table whose first column is Markdown already."""
    lines = render_markdown([Grid(head, tuple(("@", *row[1:]) for row in rows))]).splitlines()
    top, body = lines[:2], lines[2:]
    return top + [f"| {row[0]}{line[3:]}" for row, line in zip(rows, body, strict=True)]


def time_of(step: LadderStep, run: Run) -> str:
    """Median and interval; a run of other code than the file's says so."""
    if step.time is None:
        faults = [*run.record.sanitizer_errors] if run.record else []
        faults += ["wrong"] if run.record and run.record.correct is False else []
        return f"no time: {', '.join(faults)}" if faults else "not timed"
    half = (step.time.high - step.time.low) / 2 / step.time.median
    stale = " (stale)" if run.stale else ""
    interval = "" if isnan(half) else f" ± {100 * half:.1f} %"
    return f"{figures.format_seconds(step.time.median)}{interval}{stale}"


def against(step: LadderStep) -> tuple[str, str]:
    """Speed-up over the parent and over the best reference."""
    return factor(step.change.time if step.change else None), factor(
        step.compare_with_fastest_reference
    )


def factor(found: TimeComparison | None) -> str:
    """A speed-up; one that could be none has a tilde."""
    if found is None:
        return ""
    return f"{'~' if found.answer == 'cannot tell' else ''}{found.speedup.median:.2f}x"


def main_table(found: Ladder, known: Evidence, rungs: Mapping[str, SourceFile]) -> list[str]:
    """Time, steps, verdict and what a block takes, of every rung."""
    rows = []
    for step in found.steps:
        run = known.load(step.variant, found.case)
        file = rungs[step.variant].file if step.variant in rungs else ""
        rows.append(
            (
                link(step.variant, step.depth, file),
                time_of(step, run),
                *against(step),
                step.bound,
                *taken(run),
            )
        )
    head = (
        "rung",
        ">time",
        ">vs parent",
        ">vs SDPA",
        "bound: limiter",
        ">registers",
        ">shared KB",
        ">blocks/SM",
    )
    return table(head, rows)


def taken(run: Run) -> tuple[str, str, str]:
    """Registers, shared memory per block in KB, blocks per SM, of the longest launch."""
    shared = [
        run.get_value_of_longest_launch("shared_static"),
        run.get_value_of_longest_launch("shared_dynamic"),
    ]
    numbers = (
        run.get_value_of_longest_launch("registers"),
        sum(shared) / 1024 if None not in shared else None,
        run.get_value_of_longest_launch("blocks_per_sm"),
    )
    known = [n for n in numbers if isinstance(n, float) and not isnan(n)]
    if len(known) < len(numbers):
        return ("?", "?", "?")
    return f"{known[0]:.0f}", f"{known[1]:.1f}", f"{known[2]:.0f}"


def small_table(found: Ladder, known: Evidence) -> list[str]:
    """Time, steps and verdict."""
    rows = [
        (link(s.variant), time_of(s, known.load(s.variant, found.case)), *against(s), s.bound)
        for s in found.steps
    ]
    return table(("rung", ">time", ">vs parent", ">vs SDPA", "bound: limiter"), rows)


def temperatures(cases: list[str], found: Evidence, rungs: Mapping[str, SourceFile]) -> list[str]:
    """Warm and cold times, and how far ahead they are of what took turns with them."""
    rows = []
    for case in sorted(cases):
        timed = {}
        for variant, at in found.list_names():
            record = found.load(variant, case).record if at == case else None
            if record and record.warm_samples and record.cold_samples:
                timed[variant] = (
                    record.timing_session,
                    (median(record.warm_samples), median(record.cold_samples)),
                )
        ours = {v: t for v, t in timed.items() if v in rungs}
        if not ours:
            continue
        best = [min(t[i] for _, t in ours.values()) for i in (0, 1)]
        near = [v for v, (_, t) in ours.items() if any(t[i] <= NEAR * best[i] for i in (0, 1))]
        for n, variant in enumerate(sorted(near, key=lambda v: ours[v][1][1])):
            session, times = ours[variant]
            theirs = [t for s, t in timed.values() if s == session and (s, t) not in ours.values()]
            ahead = [
                f"{min(t[i] for t in theirs) / times[i]:.2f}x" if theirs else "" for i in (0, 1)
            ]
            rows.append(("" if n else case, variant, *map(figures.format_seconds, times), *ahead))
    head = ("case", "rung", ">warm", ">cold", ">vs SDPA, warm", ">vs SDPA, cold")
    return table(head, rows)


def promises(ladders: Mapping[str, Ladder], rungs: Mapping[str, SourceFile]) -> list[str]:
    """Each prediction of a header and what the counters said, at the case that it speaks of."""
    did = {"moves": "did", "moves-not": "did not", "fixes": "gone", "fixes-not": "still there"}
    rows = []
    for variant, file in order(ladders[MAIN], rungs).items():
        case = file.header.case or MAIN
        steps = ladders[case].steps if case in ladders else ()
        change = next((s.change for s in steps if s.variant == variant), None)
        at = f" at {case}" if case != MAIN else ""
        for i, p in enumerate(change.promises if change else ()):
            answer = did[p.said] if p.kept else "broken" if p.kept is False else "unknown"
            rows.append((link(variant) + at if not i else "", p.rule, answer, p.because))
    return table(("rung", "counter or rule", "", "from its parent to it"), rows)


def protocols() -> Iterator[str]:
    """The same calls by four protocols, as tools/protocols.py wrote them."""
    kept: dict[str, Any] = read_json(PROTOCOLS)
    names = tuple(kept["rows"][0]["times"])
    said = sorted({_session(session) for session in kept["sessions"]})
    yield from (PROTOCOL_TEXT, "", f"On {'; '.join(said)}.", "")
    rows, before = [], ""
    for row in kept["rows"]:
        name, kernel = row["name"], row["kernel"]
        times = (f"{row['times'][p]['seconds'] * 1e6:.1f}" for p in names)
        rows.append(
            (
                "" if name == before else name,
                f"{kernel}{'' if row['mine'] else ' (theirs)'}",
                *times,
            )
        )
        before = name
    yield from table(("call", "kernel", *(f">{p}" for p in names)), rows)


def _session(session: dict[str, Any]) -> str:
    """The GPU and the versions that decide."""
    versions, gpu = session["versions"], session["gpu"]
    return (
        f"{gpu['name']} ({session['power_limit']:.0f} W, driver {gpu['driver']}), torch "
        f"{versions['torch']} with CUDA {versions['cuda']} and cuDNN {versions['cudnn']}, Triton "
        f"{versions['triton']}"
    )


def other_problems(known: Evidence) -> Iterator[str]:
    """The problems beside attention, with the rungs of each at every recorded case."""
    for folder in sorted(
        d for d in KERNELS.iterdir() if d.name != "attention" and is_complete_problem_folder(d)
    ):
        problem = load_problem(folder)
        of_this = {k.partition("/")[2] for k in known.headers if k.startswith(f"{folder.name}/")}
        said = ast.get_docstring(ast.parse(problem.path.read_text("utf-8"))) or ""
        yield from ("", f"## The problem {folder.name}", "", said.splitlines()[0])
        for case in problem.cases:
            if of_this & {variant for variant, at in known.list_names() if at == case}:
                yield from ("", f"### {folder.name} at {case}", "")
                yield from other_table(build_ladder(known, case, Policy(anyway=True)), known)


def other_table(found: Ladder, known: Evidence) -> list[str]:
    """Time, steps, every reference and verdict of a shorter ladder's rungs."""
    references = sorted({name for step in found.steps for name in step.references})
    rows = []
    for step in found.steps:
        run = known.load(step.variant, found.case)
        key = next(k for k in known.headers if k.endswith(f"/{step.variant}"))
        name = link(step.variant, step.depth, known.headers[key].file)
        versus = (factor(step.references.get(r)) for r in references)
        rows.append((name, time_of(step, run), against(step)[0], *versus, step.bound))
    head = ("rung", ">time", ">vs parent", *(f">vs {r}" for r in references), "bound: limiter")
    return table(head, rows)


def prose(found: Ladder, rungs: Mapping[str, SourceFile]) -> Iterator[str]:
    """Title and text of each header, in ladder order; rungs without a record last."""
    there = {s.variant for s in found.steps}
    for variant, file in order(found, rungs).items():
        yield f"\n### `{variant}`: {plain(file.header.title)}\n"
        yield plain(file.header.text)
        if variant not in there:
            yield f"\nNot recorded at {MAIN} yet."


def plain(text: str) -> str:
    """Prose of a header as Markdown that renders as it stands."""
    for char in "\\*_[]":
        text = text.replace(char, f"\\{char}")
    return text.replace("&", "&amp;").replace("<", "&lt;")


# --- the picture ---------------------------------------------------------------------------------


def shown() -> Any:
    """Everything that the picture shows."""
    steps = build_ladder(evidence(), MAIN, Policy(anyway=True)).steps
    rows = []
    for step in steps:
        time = step.time and (step.time.median, step.time.low, step.time.high)
        ahead = [
            c and (c.answer, c.speedup.median)
            for c in (step.change and step.change.time, step.compare_with_fastest_reference)
        ]
        rows.append((step.variant, step.depth, step.parent, time, ahead))
    return make_json_safe([rows, get_reference_medians_by_name([s for s in steps if s.time])])


def same(one: Any, other: Any) -> bool:
    """Whether they differ by no more than a float's last bits, which depend on the processor.

    No hash can say that: of numbers that are rounded first, some lie at the edge of a rounding.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return same([*one.items()], [*other.items()])  # in their order, as they are drawn
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other)  # to 9 significant digits
    return bool(one == other)


def draw(made_of: Any) -> None:
    """The picture, with what it was made of inside."""
    from profkit.show import plots

    _draw(
        plots.ladder(build_ladder(evidence(), MAIN, Policy(anyway=True))),
        PICTURE,
        json.dumps(made_of),
    )


def grid_digest() -> str:
    """Of the grid that the heat map shows."""
    return hashlib.sha256(GRID.read_bytes()).hexdigest()


def draw_grid(made_of: str) -> None:
    """The heat map of the recorded grid."""
    from profkit.records.grid import read_time_grid
    from profkit.show import plots

    _draw(plots.heatmap(read_time_grid(GRID)), HEATMAP, made_of)


def _draw(ax: Axes, path: Path, made_of: str) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    from profkit.show import plots

    plots.save(ax, path)
    with Image.open(path) as image:
        said = PngInfo()
        said.add_text("made of", made_of, zip=True)
        half = image.convert("P", palette=Image.Palette.ADAPTIVE)
        half.save(path, optimize=True, pnginfo=said)


def drawn_of(path: Path = PICTURE) -> str:
    """What a picture says that it was made of; null without one."""
    from PIL import Image

    if not path.is_file():
        return "null"
    with Image.open(path) as image:
        return str(image.info["made of"])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
