"""Every committed input in every form  ->  what profkit answers, held against what it answered before.

    python tools/goldens.py                  # compare; exit 1 and the differences where there are any
    python tools/goldens.py --only triage    # groups whose name begins so
    python tools/goldens.py --accept         # write the answers of today, in the commit that says why
    python tools/goldens.py --text           # after a merge: write the text of what is accepted

Everything goes through the command line, as a user has it. Computed floats are written to nine
significant digits, then texts are compared byte for byte. tests/goldens/ has a file a group; in
tests/goldens/text/ are the short ones as text, which a pull request shows.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gzip
import hashlib
import json
import lzma
import os
import re
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import cycle
from math import nan
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from profkit.reports.frame import ReportLaunches, Reports

ROOT = Path(__file__).resolve().parents[1]
GOLDENS = ROOT / "tests" / "goldens"
TRACES = ROOT / "tests" / "program" / "data"
FORMS = {"json": ["--json"], "markdown": ["--markdown"], "brief": ["--brief"], "text": []}
SHOWN_MOST = 4_000  # characters of a document that a pull request shows
# What `ncu --set basic` collects.
BASIC = {"", "SpeedOfLight", "LaunchStats", "Occupancy", "WorkloadDistribution"}
FLOAT = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]?\d+)?(?![\w.])|(?<![\w.])-?\d+e[+-]?\d+(?![\w.])")
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/\w+")

Task = tuple[str, tuple[str, ...]]  # the name of a maker below, and its arguments
Documents = dict[str, str]


def main() -> None:
    """Compare, or accept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="GROUP", help="groups whose name begins so")
    parser.add_argument("--accept", action="store_true", help="write what is answered today")
    parser.add_argument("--text", action="store_true", help="write the text of what is accepted")
    parser.add_argument("--lines", type=int, default=12, help="of each difference")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    asked = parser.parse_args()
    groups = {name: tasks for name, tasks in GROUPS.items() if name.startswith(asked.only)}
    if asked.text:
        for name in groups:
            write_text(name, read(name))
        return
    changed = 0
    # NVIDIA's library never gives back the memory that a report took: a worker ends after some.
    with get_context("spawn").Pool(asked.jobs, _begin, maxtasksperchild=25) as pool:
        # All tasks at once, so that no processor waits for the end of a group.
        made = {name: pool.map_async(make, tasks(), chunksize=1) for name, tasks in groups.items()}
        for name, parts in made.items():
            documents = {k: v for part in parts.get() for k, v in part.items()}
            if asked.accept:
                write(name, documents)
            else:
                changed += differences(name, read(name), documents, asked.lines)
    print(f"{changed} documents differ" if changed else "every document is as it was")
    sys.exit(bool(changed))


def read(group: str) -> Documents:
    """The accepted documents of a group; none where it is new."""
    file = GOLDENS / f"{group}.json.xz"
    return json.loads(lzma.decompress(file.read_bytes())) if file.is_file() else {}


def write(group: str, documents: Documents) -> None:
    """Accept the documents of a group."""
    GOLDENS.mkdir(exist_ok=True)
    text = json.dumps(dict(sorted(documents.items())), indent=0, ensure_ascii=False)
    (GOLDENS / f"{group}.json.xz").write_bytes(lzma.compress(text.encode(), preset=4))
    write_text(group, documents)
    print(f"{group}: {len(documents)} documents, {len(text):,} characters")


def write_text(group: str, documents: Documents) -> None:
    """Write what a pull request shows of a group; no file where that is nothing."""
    file = find_text_file(group)
    shown = join_shown(group, documents)
    if shown:
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, "utf-8")


def find_text_file(group: str) -> Path:
    """The file of what a pull request shows of a group."""
    return GOLDENS / "text" / f"{group}.txt"


def join_shown(group: str, documents: Documents) -> str:
    """The documents of a group that a pull request shows, one below the other."""
    parts = []
    for name, text in sorted(documents.items()):
        if is_shown(group, name, text):
            lines = (f"  {line}".rstrip() for line in text.splitlines())
            parts.append("\n".join((f"$ {name}", *lines, "")))
    return "\n".join(parts)


def is_shown(group: str, name: str, text: str) -> bool:
    """Whether a pull request shows a document: one form of an answer, where it is short.

    Pages of `explain` are in profkit/REFERENCE.md.
    """
    if len(text) > SHOWN_MOST:
        return False
    if group in ("reports", "ladder"):
        return name.endswith(" brief") and not name.endswith(" basic brief")
    if group == "triage":
        return name.endswith(" text")
    if group == "recorded":
        return not name.endswith(" --json")
    return group in ("help", "gate")


def differences(group: str, before: Documents, after: Documents, lines: int) -> int:
    """Print what differs in a group, the first lines of each; how many documents do."""
    changed = [n for n in sorted({*before, *after}) if before.get(n) != after.get(n)]
    for name in changed:
        old, new = (texts.get(name, "").splitlines() for texts in (before, after))
        diff = list(difflib.unified_diff(old, new, "before", "after", lineterm="", n=0))[2:]
        print(f"{group}: {name}: {len(diff)} lines", *diff[:lines], sep="\n    ")
    print(f"{group}: {len(changed)} of {len({*before, *after})} documents differ")
    return len(changed)


def normal(text: str) -> str:
    """A text with floats of nine significant digits, without this checkout's and temporary folders."""
    return _TEMPORARY.sub("TMP", FLOAT.sub(_rounded, text.replace(f"{ROOT}/", "")))


def _rounded(match: re.Match[str]) -> str:
    digits = sum(c.isdigit() for c in match[0].partition("e")[0])
    return f"{float(match[0]):.9g}" if digits > 9 else match[0]


def _begin() -> None:
    os.chdir(ROOT)
    # `list` says what is built: nothing, whatever tests have compiled in this checkout.
    os.environ["PROFKIT_BUILD"] = "/nonexistent"
    sys.path.insert(0, str(ROOT))


def make(task: Task) -> Documents:
    """The documents of a task as they are today."""
    maker, args = task
    return {name: normal(text) for name, text in _MAKERS[maker](*args)}


def said(*args: str) -> str:
    """What a command prints on both streams, 80 columns wide, and how it ends."""
    from typer.testing import CliRunner

    from profkit.cli.app import app

    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "FORCE_COLOR": None})
    done = runner.invoke(app, list(args), prog_name="profkit")
    if done.exception and not isinstance(done.exception, SystemExit):
        return f"{type(done.exception).__name__}: {done.exception}\n"
    text = done.stdout
    with contextlib.suppress(ValueError):  # a document on one line would be one difference
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return f"{text}\n-- stderr\n{done.stderr}-- exit {done.exit_code}\n"


# Makers: the arguments of a task -> (the document's name, its text).


def _command(*args: str) -> Iterator[tuple[str, str]]:
    yield " ".join(args), said(*args)


@contextmanager
def reads_once(change: Callable[[ReportLaunches], ReportLaunches] | None = None) -> Iterator[None]:
    """Every form of an answer from one reading of its reports, each part changed first if asked."""
    from profkit.reports import reader
    from profkit.reports.frame import Reports

    reads = reader.read_report_files

    @cache
    def once(paths: tuple[str, ...]) -> Reports:
        reports = reads(list(paths))
        return Reports(tuple(map(change, reports.parts))) if change else reports

    with mock.patch.object(
        reader, "read_report_files", lambda paths, *_, **__: once(tuple(map(str, paths)))
    ):
        yield


def _forms(*args: str) -> Iterator[tuple[str, str]]:
    with reads_once():
        for form, flags in FORMS.items():
            yield f"{' '.join(args)} {form}", said(*args, *flags)


def _basic(path: str) -> Iterator[tuple[str, str]]:
    """A report as if ncu had collected its basic set alone."""
    from profkit.reports.metrics import CATALOGUE

    kept = [metric.section in BASIC for metric in CATALOGUE.values()]

    def cut(part: ReportLaunches) -> ReportLaunches:
        values = zip(array("d", part.values), cycle(kept))
        return replace(part, values=array("d", [v if k else nan for v, k in values]).tobytes())

    with reads_once(cut):
        for form, flags in FORMS.items():
            yield f"{path} basic {form}", said("diagnose", path, *flags)


def _trace(path: str, without: str) -> Iterator[tuple[str, str]]:
    if not without:
        yield f"{path} text", said("triage", path)
        yield f"{path} json", said("triage", path, "--json")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        file.write_text(_leave_out(without, Path(path)))
        yield f"{path} without {without}", said("triage", str(file), "--json")


SHAPES = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
OPERATORS = {"cpu_op", "user_annotation", "python_function"}


def _leave_out(what: str, file: Path) -> str:
    """Return a trace that lacks shapes, or all that names operators; the steps' marks stay."""
    trace: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    if what == "operators":
        trace["traceEvents"] = [
            e
            for e in trace["traceEvents"]
            if e.get("cat") not in OPERATORS or e["name"].startswith("ProfilerStep")
        ]
    for event in trace["traceEvents"]:
        for key in SHAPES:
            event.get("args", {}).pop(key, None)
    return json.dumps(trace)


def _gate(change: str) -> Iterator[tuple[str, str]]:
    """The gate of the artifacts against a copy of their records of which every third was changed."""
    with tempfile.TemporaryDirectory() as folder:
        for index, file in enumerate(sorted(Path("artifacts").rglob("*.json"))):
            record = json.loads(file.read_text())
            if index % 3 == 0 and isinstance(record.get("timing"), dict):
                CHANGES[change](record)
            copy = Path(folder) / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(json.dumps(record))
        yield f"gate {change}", said("gate", "artifacts", f"{folder}/artifacts")
        yield f"gate {change} json", said("gate", "artifacts", f"{folder}/artifacts", "--json")


def _page(*args: str) -> Iterator[tuple[str, str]]:
    """A page: its visible text, and a digest of each script's data."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        answer = said("report", *args, "-o", str(page))
        html = normal(page.read_text("utf-8"))
    scripts = re.findall(r"(?s)<script[^>]*>(.*?)</script>", html)
    digests = [hashlib.sha256(text.encode()).hexdigest() for text in scripts]
    text = re.sub(r"(?s)<(script|style|svg)\b.*?</\1>|<[^>]+>", "\n", html)
    shown = [line.strip() for line in text.splitlines() if line.strip()]
    yield f"page {' '.join(args)}", "\n".join([answer, *digests, *shown])


# How a record is changed for the gate.


def _scaled(record: dict[str, Any], by: float) -> None:
    for timing in _timings(record):
        timing["samples"] = _times(timing["samples"], by)


def _times(value: Any, by: float) -> Any:
    return [_times(v, by) for v in value] if isinstance(value, list) else value * by


def _timings(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("samples"), list):
            yield node
        for value in node.values():
            yield from _timings(value)
    elif isinstance(node, list):
        for value in node:
            yield from _timings(value)


def _set(record: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for key in parents:
        record = record.setdefault(key, {}) or {}
    record[last] = value


def _wrong(record: dict[str, Any]) -> None:
    if record.get("check"):
        record["check"]["status"] = "wrong"
        for case in record["check"]["cases"]:
            case["status"] = "wrong"


def _other_code(record: dict[str, Any], by: float) -> None:
    _scaled(record, by)
    source = record.get("source")
    if isinstance(source, dict):
        for key in ("sass", "host", "sha256"):
            if isinstance(source.get(key), str):
                source[key] = source[key][::-1]


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "nothing": lambda _: None,
    "slower by a tenth, same code": lambda record: _scaled(record, 1.1),
    "slower by a tenth, other code": lambda record: _other_code(record, 1.1),
    "slower by a thousandth, other code": lambda record: _other_code(record, 1.001),
    "faster by a tenth, other code": lambda record: _other_code(record, 0.9),
    "other code, same times": lambda record: _other_code(record, 1.0),
    "check is wrong": _wrong,
    "other GPU": lambda record: _set(record, "gpu.name", "NVIDIA A100-SXM4-80GB"),
    "not checked": lambda record: _set(record, "check", None),
    "no times": lambda record: _set(record, "timing", None),
    "three times as slow, other code": lambda record: _other_code(record, 3.0),
}


# Groups: name -> the tasks that make its documents.


def _reports() -> list[Task]:
    files = sorted(p for p in (ROOT / "artifacts").rglob("*.ncu-rep*") if p.is_file())
    paths = [str(p.relative_to(ROOT)) for p in files]
    return [("forms", ("diagnose", path)) for path in paths] + [("basic", (p,)) for p in paths]


def _triage() -> list[Task]:
    names = {".gz", ".json", ".timeline", ".own", ".triage"}
    files = sorted(p for p in TRACES.iterdir() if p.suffix in names and p.name != "truth.json")
    paths = [str(p.relative_to(ROOT)) for p in files]
    lacking = ("shapes", "operators")
    return [("trace", (p, "")) for p in paths] + [
        ("trace", (p, what)) for p in paths if p.endswith(".json.gz") for what in lacking
    ]


def _cases() -> list[str]:
    records = [json.loads(p.read_text()) for p in (ROOT / "artifacts").rglob("*.json")]
    return sorted({r["case"] for r in records if r.get("schema", "").startswith("profkit.run/")})


def _ladder() -> list[Task]:
    return [("forms", ("ladder", "--case", case)) for case in _cases()]


def _recorded() -> list[Task]:
    analyses = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "analyses").glob("*.py"))
    commands: list[tuple[str, ...]] = [("list",), ("list", "--json"), ("history",)]
    commands += [("history", "--case", case) for case in _cases()]
    commands += [("claims", path, *flags) for path in analyses for flags in ([], ["--json"])]
    return [("command", args) for args in commands]


def _explain() -> list[Task]:
    from profkit.cli.options import list_explainable_names

    return [("command", ("explain",))] + [
        ("command", ("explain", name, *flags))
        for name, _ in list_explainable_names()
        for flags in ([], ["--markdown"])
    ]


def _help() -> list[Task]:
    from profkit.cli.app import list_verbs_alphabetically

    return [("command", ("--help",))] + [
        ("command", (verb, "--help")) for verb in list_verbs_alphabetically()
    ]


def _pages() -> list[Task]:
    folders = ("artifacts/attention/B", "artifacts/layernorm", "artifacts/probes/memory")
    return [("page", (folder,)) for folder in folders if (ROOT / folder).is_dir()] + [
        ("page", ("artifacts/attention/B", "artifacts/history"))
    ]


_MAKERS: dict[str, Callable[..., Iterator[tuple[str, str]]]] = {
    "command": _command,
    "forms": _forms,
    "basic": _basic,
    "trace": _trace,
    "gate": _gate,
    "page": _page,
}
GROUPS: dict[str, Callable[[], list[Task]]] = {
    "ladder": _ladder,
    "page": _pages,
    "recorded": _recorded,
    "reports": _reports,
    "triage": _triage,
    "gate": lambda: [("gate", (change,)) for change in CHANGES],
    "explain": _explain,
    "help": _help,
}

if __name__ == "__main__":
    main()
