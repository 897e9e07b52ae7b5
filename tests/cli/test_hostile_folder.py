"""A folder full of modules and configuration that somebody sent: nothing of it runs.

Tried: a module and a package for each of the 304 names of the standard library and for every package
that is installed here (some 180); 32 files of configuration; 20 programs of the names that profkit
starts; a repository whose configuration names a program in 21 places and 4 hooks. There, 43 commands of
every verb in its reading forms, five questions to mcp, others with PYTHON* variables, with the folder
on the path of this process under six names, and as `python -m profkit`.
"""

from __future__ import annotations

import gzip
import json
import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

from profkit.interpreter import list_import_folders_elsewhere
from tests.conftest import ROOT
from tests.reports import made
from tests.sweeps import take_part

# What Python itself imports for `python -m`, before any line of profkit: see SECURITY.md.
OF_PYTHON = set(
    subprocess.run(
        [sys.executable, "-I", "-c", "import runpy, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    .stdout.replace(".", " ")
    .split()
)
PROGRAMS = (
    "git",
    "nvcc",
    "ninja",
    "ncu",
    "nsys",
    "cuobjdump",
    "nvdisasm",
    "c++filt",
    "cu++filt",
    "cc",
    "gcc",
    "clang",
    "sh",
    "ps",
    "nvidia-smi",
    "compute-sanitizer",
    "gpg",
    "ssh",
    "ptxas",
    "fatbinary",
)
MORE = (
    "sitecustomize",
    "usercustomize",
    "conftest",
    "profkit",
    "tests",
    "tools",
    "kernels",
    "cupy",
)
CONFIGURATION = (
    "matplotlibrc",
    ".env",
    ".duckdbrc",
    ".sqliterc",
    "pytest.ini",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "profkit.toml",
    ".profkit",
    "pyvenv.cfg",
    "python311._pth",
    "hostile.pth",
    "nvcc.profile",
    "config.ncu-cfg",
    "config.ini",
    "dask.yaml",
    "distributed.yaml",
    ".netrc",
    "ipython_config.py",
    "jupyter_config.py",
    ".pdbrc",
    ".pythonrc.py",
    ".gitattributes",
    ".gitconfig",
    "build.ninja",
    "Makefile",
    "alembic.ini",
    "optuna.ini",
    "typer.ini",
    "libcuda.so.1",
    "libnvperf_host.so",
)


class Folder(NamedTuple):
    path: Path
    mark: Path  # where whatever runs leaves its name
    start: Path  # a script as pip makes one
    packages: str  # a PYTHONPATH without the folder


def hostile_python(mark: Path) -> str:
    return (
        "import posix\n"
        f"mark = posix.open({str(mark)!r}, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND)\n"
        "posix.write(mark, (__name__ + ' of ' + __file__ + '\\n').encode())\n"
        "posix.close(mark)\n"
    )


def module_names() -> set[str]:
    installed = {name.partition("/")[0] for name in packages_distributions()}
    names = set(sys.stdlib_module_names) | installed | set(MORE)
    return {name for name in names if name.isidentifier()} - {"__main__", "posix"}


def make_repository(path: Path, program: str) -> None:
    """Commit what is there; then let the configuration name a program wherever it can."""

    def git(*words: str, given: str | None = None) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        done = subprocess.run(
            ["git", *who, *words], cwd=path, capture_output=True, text=True, check=True, input=given
        )
        return done.stdout.strip()

    git("init", "-q")
    git("add", "artifacts", "kernels")
    git("commit", "-qm", "all")
    head, _, message = git("cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    signed = git(
        "hash-object", "-t", "commit", "-w", "--stdin", given=f"{head}\n{signature}\n\n{message}\n"
    )
    git("update-ref", "HEAD", signed)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.editor",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "diff.external",
        "diff.hostile.command",
        "diff.hostile.textconv",
        "filter.hostile.smudge",
        "filter.hostile.clean",
        "filter.hostile.process",
        "gpg.program",
        "gpg.ssh.program",
        "pager.log",
        "pager.show",
        "interactive.diffFilter",
        "credential.helper",
        "tar.tar.command",
        "tar.tar.gz.command",
        "alias.log",
        "alias.status",
        "uploadpack.packObjectsHook",
    ):
        git("config", key, program)
    git("config", "log.showSignature", "true")
    git("config", "core.attributesFile", str(path / ".gitattributes"))
    (path / ".git" / "info" / "attributes").write_text("* filter=hostile diff=hostile\n")
    for hook in (
        "post-index-change",
        "post-checkout",
        "reference-transaction",
        "fsmonitor-watchman",
    ):
        shutil.copy(program, path / ".git" / "hooks" / hook)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    outside = tmp_path_factory.mktemp("outside")
    path = tmp_path_factory.mktemp("hostile")
    mark = outside / "mark"
    (path / "artifacts").mkdir()
    for name in ("stage1.B.json", "stage1.B.ncu-rep", "stage2.B.json", "stage2.B.ncu-rep"):
        shutil.copy(ROOT / "artifacts" / name, path / "artifacts")
    shutil.copytree(ROOT / "kernels" / "attention", path / "kernels" / "attention")
    (path / "kernels" / "attention" / "problem.py").write_text(hostile_python(mark))
    whole = (ROOT / "artifacts" / "stage2.B.ncu-rep").read_bytes()
    (path / "good.ncu-rep").write_bytes(whole)
    (path / "cut.ncu-rep").write_bytes(whole[:-1000])
    (path / "large.ncu-rep").write_bytes(made.repeated(whole, 7 << 20))
    (path / "many").mkdir()
    for number in range(10):
        (path / "many" / f"{number}.ncu-rep").write_bytes(made.report())
    trace = ROOT / "tests" / "program" / "data" / "attention_with_bias.planted.json.gz"
    shutil.copy(trace, path / "trace.json.gz")
    (path / "trace.json").write_bytes(gzip.decompress(trace.read_bytes()))

    shell = f'#!/bin/sh\necho "$0 $*" >> {shlex.quote(str(mark))}\n'
    for name in PROGRAMS:
        (path / name).write_text(shell)
        (path / name).chmod(0o755)
    make_repository(path, str(path / "sh"))
    for name in CONFIGURATION:
        (path / name).write_text("hostile: hostile\n")
    (path / "matplotlibrc").write_text("hostile: hostile\nbackend: module://hostile\n")
    (path / "hostile.pth").write_text("import hostile\n")
    (path / ".gitattributes").write_text("* filter=hostile diff=hostile\n")
    (path / "kernels" / "__init__.py").write_text(hostile_python(mark))
    for name in module_names() - {"kernels"}:
        (path / f"{name}.py").write_text(hostile_python(mark))
        if name not in PROGRAMS:
            (path / name).mkdir(exist_ok=True)
            (path / name / "__init__.py").write_text(hostile_python(mark))
    start = outside / "profkit"
    start.write_text("from profkit.cli import main\nmain()\n")
    return Folder(path, mark, start, os.pathsep.join([str(ROOT), *list_import_folders_elsewhere()]))


COMMANDS = (
    "diagnose cut.ncu-rep",
    "diagnose large.ncu-rep",
    "diagnose good.ncu-rep cut.ncu-rep many --json",
    "diagnose many --csv ../outside/x.csv --parquet ../outside/x.parquet",
    "diagnose many --history ../outside/history",
    "diagnose artifacts --brief",
    "diagnose artifacts/stage2.B.ncu-rep --with header",
    "good.ncu-rep",
    "report good.ncu-rep cut.ncu-rep -o ../outside/page.html",
    "roofline good.ncu-rep cut.ncu-rep -o ../outside/roof.png",
    "roofline good.ncu-rep -o ../outside/roof.svg",
    "compare good.ncu-rep large.ncu-rep --anyway",
    "compare good.ncu-rep cut.ncu-rep --all",
    "compare stage1 stage2 --case B",
    "decide stage2.B",
    "ladder --case B -o ../outside/ladder.png",
    "compare artifacts artifacts",
    "gate artifacts artifacts --case B",
    "history --add --history ../outside/added",
    "history --log --history ../outside/logged",
    "history --add --commit HEAD --history ../outside/named",
    "query 'SELECT variant, commit FROM runs' --history ../outside/logged",
    "history stage2 --case B --history ../outside/logged -o ../outside/history.png",
    "ladder --case B -o ../outside/ladder.svg",
    "decide stage2 --case B",
    "whatif artifacts/stage2.B.ncu-rep header",
    "query 'SELECT variant, commit FROM runs' --history ../outside/logged",
    "compare trace.json.gz trace.json",
    "triage trace.json.gz",
    "triage trace.json --json",
    "triage trace.json.gz --page ../outside/step.html",
    "triage trace.json.gz -o ../outside/step.triage",
    "list",
    "list --problem attention --json",
    "explain",
    "explain shared-bank-conflicts",
    "new row-sum --kernels ../outside/kernels",
    "doctor",
    "--help",
    "--version",
    "--show-completion bash",
)
ASKED = [
    {"method": "tools/call", "params": {"name": name, "arguments": arguments}}
    for name, arguments in (
        ("diagnose", {"reports": ["good.ncu-rep", "cut.ncu-rep"]}),
        ("roofline", {"reports": "good.ncu-rep"}),
        ("lines", {"report": "large.ncu-rep"}),
        ("triage", {"trace": "trace.json.gz"}),
        ("compare", {"before": "good.ncu-rep", "after": "cut.ncu-rep"}),
    )
]
BEGIN = [
    {
        "method": "initialize",
        "params": {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "x", "version": "1"},
        },
    }
]


def run_there(
    folder: Folder, command: list[str], words: list[str], given: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    (folder.path.parent / "outside").exists() or (folder.path.parent / "outside").symlink_to(
        folder.mark.parent
    )
    env = {**os.environ, "PYTHONPATH": folder.packages, "SHELL": "/bin/bash", **more}
    return subprocess.run(
        [*command, *words],
        cwd=folder.path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        input=given,
        timeout=300,
    )


def check_nothing_ran(folder: Folder, done: subprocess.CompletedProcess[str]) -> None:
    ran = folder.mark.read_text().splitlines() if folder.mark.exists() else []
    folder.mark.unlink(missing_ok=True)
    assert ran == []
    assert "Traceback" not in done.stderr
    assert "matplotlibrc" not in done.stderr
    assert done.returncode in (0, 1, 2), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", take_part(COMMANDS, one_of=11))
def test_nothing_of_the_folder_runs(folder: Folder, command: str) -> None:
    done = run_there(folder, [sys.executable, str(folder.start)], shlex.split(command))
    check_nothing_ran(folder, done)


@pytest.mark.parametrize(
    "command",
    take_part(
        ["diagnose cut.ncu-rep good.ncu-rep large.ncu-rep", "roofline many -o ../outside/x.png"],
        one_of=2,
    ),
)
def test_variables_that_name_the_folder_are_not_handed_on(folder: Folder, command: str) -> None:
    """PYTHON* that are set in this process: its children are to see none of them."""
    start = folder.mark.with_name("with_variables")
    hostile = {
        "PYTHONPATH": str(folder.path),
        "PYTHONHOME": str(folder.path),
        "PYTHONINSPECT": "1",
        "PYTHONSTARTUP": str(folder.path / "json.py"),
        "PYTHONUSERBASE": str(folder.path),
        "PYTHONPLATLIBDIR": "hostile",
        "PYTHONBREAKPOINT": "json.x",
        "PYTHONWARNINGS": "error",
    }
    start.write_text(
        f"import os\nos.environ.update({hostile!r})\nfrom profkit.cli import main\nmain()\n"
    )
    check_nothing_ran(folder, run_there(folder, [sys.executable, str(start)], shlex.split(command)))


def test_an_empty_entry_of_pythonpath_is_not_handed_on(folder: Folder, tmp_path: Path) -> None:
    """It means the current folder. This process is in another one until it has begun."""
    start, link = tmp_path / "start", tmp_path / "link"
    link.symlink_to(folder.path)
    entries = ["", ".", str(folder.path), f"{folder.path}/", str(link), f"../{folder.path.name}"]
    start.write_text(f"""
import os, sys
from profkit.reports.isolated import end_servers, run_in_child_processes
from profkit.reports.reader import recover_metrics_after_crash

def read():
    function, files = "profkit.reports.reader:read_report_unless_large", ["good.ncu-rep", "cut.ncu-rep"]
    parts = run_in_child_processes(function, files, 2, recover_metrics_after_crash)
    return [part.file.status for part in parts]

os.chdir({str(folder.path)!r})
read()  # and what this process itself needs is imported
for entry in {entries!r}:
    end_servers()
    sys.path.insert(0, entry)
    print(*read())
""")
    done = run_there(folder, [sys.executable, str(start)], [])
    check_nothing_ran(folder, done)
    assert done.stdout == "ok damaged\n" * len(entries)


def test_mcp_answers_without_the_folder(folder: Folder) -> None:
    pytest.importorskip("mcp")
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, **message})
        for number, message in enumerate([*BEGIN, *take_part(ASKED, one_of=2)])
    ]
    given = "\n".join([lines[0], json.dumps(told), *lines[1:], ""])
    process = [sys.executable, str(folder.start)]
    check_nothing_ran(folder, run_there(folder, process, ["mcp"], given))


@pytest.mark.parametrize("command", take_part([*COMMANDS[:2], COMMANDS[9]], one_of=2))
def test_python_m_profkit_looks_there_for_nothing_more(folder: Folder, command: str) -> None:
    """What Python imports before it knows of profkit is its own; from there on nothing is."""
    apart = folder.path.parent / "apart"
    if not apart.exists():
        shutil.copytree(folder.path, apart, symlinks=True)
        for name in OF_PYTHON:
            (apart / f"{name}.py").unlink(missing_ok=True)
            shutil.rmtree(apart / name, ignore_errors=True)
        for name in ("profkit", "profkit.py"):  # that is what would be run: it was asked for
            shutil.rmtree(apart / name, ignore_errors=True)
            (apart / name).unlink(missing_ok=True)
    done = run_there(
        folder._replace(path=apart), [sys.executable, "-m", "profkit"], shlex.split(command)
    )
    check_nothing_ran(folder, done)
