"""README.md and docs/ as data: commands, outputs, the workflow. Run it to write the outputs anew.

An output is a block after a comment that says where it comes from: <!-- $ profkit ... -->. Behind
the command may stand, each after a |: `part 2` (of the output parted at blank lines), `first 20`
(lines), `only A B` (lines that begin with one of these words).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from glob import glob
from pathlib import Path

from typer.testing import CliRunner

from profkit.cli.app import app
from tests.forks import compute_in_fork
from tests.found import find_files

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
# Decisions are dated: what they quote ran on their day.
DATED = ROOT / "docs" / "decisions"
PAGES = (README, *(p for p in find_files(ROOT / "docs", "**/*.md") if p.parent != DATED))
# Verbs that read stdin to its end, or start processes that outlive what this one catches.
OF_ITS_OWN = {"mcp", "check"}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_OUTPUT = re.compile(
    r"(?P<head><!-- \$ (?P<asked>.+?) -->\n```text\n)(?P<body>.*?)(?=^```$)", re.M | re.S
)
_SPAN = re.compile(r"(?<!`)`((?:profkit|make|pip|python) [^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Output:
    """An output in a page: the command, what is left of what it prints, and what stands there."""

    page: str
    command: str
    filters: tuple[str, ...]
    shown: str

    def made(self) -> str:
        """What the command prints today, cut as asked."""
        text = run(self.command).stdout
        for one in self.filters:
            text = _cut(text, *shlex.split(one))
        return text


def _texts() -> list[str]:
    return [page.read_text("utf-8") for page in PAGES]


def blocks(language: str) -> list[str]:
    """The contents of the pages' code blocks of a language; "" is a block of commands."""
    return [body for page in _texts() for tag, body in _FENCE.findall(page) if tag == language]


def languages() -> set[str]:
    """The languages of all code blocks."""
    return {tag for page in _texts() for tag, _ in _FENCE.findall(page)}


def commands() -> list[str]:
    """Every command of the pages in their order, without its comment: blocks, then code in prose."""
    lines = [line for block in blocks("") for line in block.replace("\\\n", "").splitlines()]
    prose = "\n".join(_FENCE.sub("", page) for page in _texts())
    spans = [span for span in _SPAN.findall(prose) if len(span.split()) > 2 or span[:4] == "make"]
    return list(dict.fromkeys(filter(None, map(_bare, [*lines, *spans]))))


def _bare(line: str) -> str:
    return re.sub(r"\s+#\s.*", "", line).strip()


def outputs() -> list[Output]:
    """Every output of the pages."""
    return [
        _output(page.relative_to(ROOT).as_posix(), match)
        for page in PAGES
        for match in _OUTPUT.finditer(page.read_text("utf-8"))
    ]


def _output(page: str, match: re.Match[str]) -> Output:
    command, *filters = (part.strip() for part in match["asked"].split(" | "))
    return Output(page, command, tuple(filters), match["body"])


def words(command: str) -> list[str]:
    """The arguments of a command as a shell would make them: patterns expanded, here."""
    return [w for word in shlex.split(command) for w in (sorted(glob(word)) or [word])]


@cache
def run(command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command of a page, 80 columns wide; what it printed is kept, not run again.

    A verb runs in this process: most of a second of each is importing pandas and scipy. That profkit
    starts as a process of its own is held by tests/cli.
    """
    with contextlib.chdir(cwd):
        program, *args = words(command)
        if program == "profkit" and args[0] not in OF_ITS_OWN:
            runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1", "FORCE_COLOR": None})
            done = runner.invoke(app, args, prog_name="profkit", catch_exceptions=False)
            return subprocess.CompletedProcess(args, done.exit_code, done.stdout, done.stderr)
    if args[:1] == ["tools/score.py"]:
        return compute_in_fork(partial(run_script_here, args))
    start = {"profkit": [sys.executable, "-m", "profkit"], "python": [sys.executable]}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    env.pop("FORCE_COLOR", None)
    return subprocess.run(
        [*start.get(program, [program]), *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def run_script_here(args: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a script of ours as a program, in this process, which has imported most of it already."""
    with (
        contextlib.chdir(ROOT),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        sys.argv = list(args)
        status = 0
        try:
            runpy.run_path(args[0], run_name="__main__")
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(args, status, out.getvalue(), err.getvalue())


def _cut(text: str, what: str, *asked: str) -> str:
    lines = text.splitlines()
    if what == "part":
        kept = text.strip("\n").split("\n\n")[int(asked[0]) - 1].splitlines()
    elif what == "first":
        kept = lines[: int(asked[0])]
    elif what == "only":
        kept = [line for line in lines if line.split()[:1] and line.split()[0] in asked]
    else:
        raise ValueError(f"{what}: part, first and only are known")
    return "".join(f"{line.rstrip()}\n" for line in kept)


def written(page: Path) -> str:
    """A page with every output as it is today."""
    name = page.relative_to(ROOT).as_posix()
    made: Iterator[str] = iter([output.made() for output in outputs() if output.page == name])
    return _OUTPUT.sub(lambda match: match["head"] + next(made), page.read_text("utf-8"))


if __name__ == "__main__":
    for file in PAGES:
        file.write_text(written(file), "utf-8")
