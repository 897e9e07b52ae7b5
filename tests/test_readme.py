"""README.md and docs/ keep their word: commands run, outputs are current, the workflow gates."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from profkit.cli.app import import_verbs
from tests import readme
from tests.conftest import ROOT
from tests.evidence import test_benchmarks as benchmarks
from tests.found import find_files

pytestmark = pytest.mark.slow

# What cannot be run on any machine is at least read by its parser here; tests/gpu runs it.
NEEDS_GPU = {"ablate", "check", "bench", "capture", "profile", "tune"}
# Exit status 1 is an answer too: a gate that is not met, a machine without a GPU.
MAY_ANSWER_BAD = {"claims", "compare", "report", "doctor"}
SERVES = {"mcp"}  # says nothing before it is asked, and ends where nobody asks
VERBS = import_verbs()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything lies that the page speaks of.

    The kernels are elsewhere, so records that are stale today are compared all the same.
    """
    folder = tmp_path_factory.mktemp("readme")
    prepare(folder)
    return folder


def prepare(folder: Path) -> None:
    for name in ("kernels", "analyses", "profkit", "tests", "Makefile", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "artifacts", folder / "artifacts", copy_function=os.symlink)
    shutil.copy(ROOT / "artifacts" / "copy.1GiB.ncu-rep", folder / "my.ncu-rep")
    shutil.copytree(ROOT / "notebooks" / "own", folder / "mine")
    (folder / "mine" / "common").mkdir()
    shutil.copy(ROOT / "kernels" / "common" / "variant.cuh", folder / "mine" / "common")
    (folder / "runs").mkdir()
    for report in find_files(ROOT / "artifacts", "sdpa-cudnn.[AB].ncu-rep*"):
        shutil.copy(report, folder / "runs")
    traces = ROOT / "tests" / "program" / "data"
    shutil.copy(traces / "elementwise_chain.planted.json.gz", folder / "trace.json.gz")
    (folder / "step.triage").symlink_to(traces / "slow_rank.triage")
    times = benchmarks.draw_times(1e-3, seed=1)
    benchmarks.write_pytest(folder / "base.json", times)
    benchmarks.write_pytest(folder / "head.json", times)
    (folder / "base").mkdir()
    (folder / "base" / "artifacts").symlink_to(folder / "artifacts")
    (folder / "train.py").write_text(
        "import torch\ntorch.softmax(torch.rand(999, 999, device='cuda'), 1).cpu()\n"
    )


# What a tool writes into a page is held by that tool's test.
WRITTEN = r"<!-- python .*?<!-- end -->"
# Those whose output stands on the page run where that is held.
OF_OUTPUTS = {output.command for output in readme.outputs()}


@pytest.mark.parametrize("command", [c for c in readme.commands() if c not in OF_OUTPUTS])
def test_command(command: str, place: Path, tmp_path: Path) -> None:
    program, *args = readme.words(command)
    if program == "make":
        _make(args)
    elif program in {"pip", "uv", "pipx"}:
        _installs(args)
    elif program == "python" and args[0].startswith("tools/"):
        # What a tool prints or writes into its page is held where that page is tested.
        assert command in (ROOT / args[0]).read_text("utf-8")
    elif program == "python" and args[:2] in (["-m", "build"], ["-m", "twine"]):
        pass  # in the fresh environment of a release, which has them: docs/howto/release.md
    elif program == "python":
        assert readme.run(command, place).returncode == 0
    else:
        assert program == "profkit", f"no test knows how to run {program}"
        _profkit(command, args, place, tmp_path)


def _profkit(command: str, args: list[str], place: Path, home: Path) -> None:
    verb = args[0]
    if verb == "--install-completion":
        _completion(home)
        return
    assert verb in VERBS
    builds = "--build-only" in args
    if (verb in NEEDS_GPU and not builds) or (verb == "triage" and "--" in args):
        VERBS[verb].make_context(verb, args[1:])
        return
    if builds and not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    done = readme.run(command, place)
    assert done.returncode in ({0, 1} if verb in MAY_ANSWER_BAD else {0}), done.stderr
    assert done.stdout or done.stderr or verb in SERVES


def _make(args: list[str]) -> None:
    """The target is there, and what it starts of profkit is what the parser takes."""
    done = subprocess.run(
        ["make", "--dry-run", *args], cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines = done.stdout.replace("\\\n", " ").splitlines()
    started = [line for line in lines if line.startswith(".venv/bin/profkit ")]
    for line in started:
        verb, *rest = shlex.split(line.partition(" > ")[0])[1:]
        VERBS[verb].make_context(verb, rest)
    assert started or ".venv/bin/python " in done.stdout


def _installs(args: list[str]) -> None:
    """It installs this folder, with extras that there are."""
    found = re.fullmatch(r"\.(?:\[([\w,]+)\])?", args[-1])
    assert "install" in args[:2]
    assert found
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set((found[1] or "gpu").split(",")) <= set(project["optional-dependencies"])


def _completion(home: Path) -> None:
    """bash, started for this, is told how to complete, in a home of its own."""
    if not shutil.which("bash"):
        pytest.skip("no bash")
    command = f"{shlex.quote(sys.executable)} -m profkit --install-completion; exit $?"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home)}
    done = subprocess.run(
        ["bash", "-c", command], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "profkit" in (home / ".bashrc").read_text()


def test_every_block_is_of_a_kind_that_is_tested() -> None:
    assert readme.languages() <= {"", "text", "python", "yaml", "toml", "cuda"}
    assert all(map(tomllib.loads, readme.blocks("toml")))
    written_by_tools = "".join(
        part for page in readme._texts() for part in re.findall(WRITTEN, page, re.S)
    )
    kept = [
        body
        for body in readme.blocks("text")
        if not body.startswith(("fixes:", "tune:")) and body not in written_by_tools
    ]
    recorded = sum(page.count("\n<!-- recorded on ") for page in readme._texts())
    assert len(kept) == len(readme.outputs()) + recorded, "say where an output comes from"
    assert recorded <= 4  # of what needs a GPU and a program that is not ours
    assert len(readme.outputs()) >= 10


def test_readme_is_one_screen_of_what_there_is() -> None:
    assert len(readme.README.read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize("output", readme.outputs(), ids=lambda o: f"{o.page}: {o.command}")
def test_outputs_are_what_the_commands_print(output: readme.Output) -> None:
    assert output.shown == output.made(), "make readme writes it anew"


@pytest.mark.forks  # what they register and import is gone afterwards
@pytest.mark.parametrize("code", readme.blocks("python"), ids=lambda code: code[:40])
def test_the_lines_for_a_notebook_run(
    code: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a notebook runs them, in a process that has imported profkit and read reports before."""
    monkeypatch.chdir(place)
    exec(compile(code, "lines of a page", "exec"), {"__name__": "__main__"})


def list_links(page: Path) -> list[str]:
    """Return the places in the repository that a page links to, without what is in code."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
    return re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text)


def test_links_lead_somewhere_on_github() -> None:
    """Of every document: relative to the file that it is in, as GitHub reads it."""
    names = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    pages = [ROOT / name for name in names]
    assert list_links(readme.README)
    broken = []
    for page in pages:
        for link in list_links(page):
            if not (page.parent / link).exists():
                broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_documents_have_no_markup_that_github_shows_as_text() -> None:
    for page in readme.PAGES:
        assert not re.findall(r"^(?::::|```\{).*", page.read_text("utf-8"), re.M), page


def test_a_file_that_is_shown_is_the_file() -> None:
    shown = 0
    for page in readme.PAGES:
        text = page.read_text("utf-8")
        for name, code in re.findall(r"<!-- file (\S+) -->\n```\w*\n(.*?)^```", text, re.M | re.S):
            assert code == (ROOT / name).read_text("utf-8"), (page, name)
            shown += 1
    assert shown


# The workflow: a repository with records, a pull request that changes one of them.


def _steps() -> list[str]:
    """The shell of each step, in order, as a runner reads it."""
    (workflow,) = [block for block in readme.blocks("yaml") if "profkit gate" in block]
    (job,) = yaml.safe_load(workflow)["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def _git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


RECORDED = Path("artifacts/attention/B")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone, as actions/checkout makes it, of a repository with one record and its report."""
    if not shutil.which("git"):
        pytest.skip("no git")
    origin = tmp_path / "origin"
    (origin / RECORDED).mkdir(parents=True)
    for file in find_files(ROOT / RECORDED, "stage2swizzle.*"):
        shutil.copy(file, origin / RECORDED)
    _git(origin, "init")
    _git(origin, "add", "--all")
    _git(origin, "commit", "--message", "base")
    _git(tmp_path, "clone", "origin", "clone")
    return tmp_path / "clone"


def _scaled(value: object, factor: float) -> object:
    if isinstance(value, dict):
        return {key: _scaled(x, factor) for key, x in value.items()}
    if isinstance(value, list):
        return [_scaled(x, factor) for x in value]
    return value * factor if isinstance(value, float) else value


@pytest.mark.parametrize(("factor", "status"), [(1.2, 1), (0.8, 0), (1.0, 0)])
def test_the_workflow_gates(checkout: Path, tmp_path: Path, factor: float, status: int) -> None:
    record = checkout / RECORDED / "stage2swizzle.json"
    measured = json.loads(record.read_text())
    measured["timing"]["l2"] = _scaled(measured["timing"]["l2"], factor)
    if factor != 1.0:  # the gate does not look at the time of machine code that did not change
        measured["source"]["sass"] = "0" * 64
    record.write_text(json.dumps(measured))
    _git(checkout, "commit", "--all", "--allow-empty", "--message", "head")
    program = tmp_path / "bin" / "profkit"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m profkit "$@"\n')
    program.chmod(0o755)
    summary = tmp_path / "summary.md"
    env = {
        **os.environ,
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    steps = _steps()
    assert [step for step in steps if "profkit gate" in step] == steps[-1:]
    found = 0
    for step in steps:
        if step.startswith("pip "):
            _installs(shlex.split(step)[1:])
            continue
        assert found == 0, step
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step],
            cwd=checkout,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        found = done.returncode
    assert found == status, done.stderr
    first = summary.read_text().splitlines()[0]
    state, answer = {1.2: ("closed", "1 slower"), 0.8: ("open", "1 faster")}.get(
        factor, ("open", "0 slower, 0 faster")
    )
    assert first.startswith(f"## Gate {state}: ")
    assert answer in first
    assert ("| stage2swizzle.B |" in summary.read_text()) is (factor != 1.0)
