"""The project's own files: the lock, what git tracks, and what must never be in it."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from profkit.errors import EXTRAS, suggest_install_command
from tests.found import find_files
from tools import goldens

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==[A-Za-z0-9.!+]+")
# Put together here so that this file does not hold what it looks for.
PATHS = [f"/{top}/".encode() for top in ("root", "work", "home")]
HOSTS = [".".join(host).encode() for host in (("pypi", "org"), ("pythonhosted", "org"))]
PATH = re.compile(rb"(?<![\w./-])(?:" + b"|".join(PATHS) + rb")\w")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert not [p for p in pins if not PIN.fullmatch(p)], "exact pins only, no index, no URL"
    return {_normal(p.split("==")[0]): p.split("==")[1] for p in pins}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _brings(extra: str) -> set[str]:
    """What an extra names, and what those name that it names of ours."""
    named = set()
    for wanted in PROJECT["optional-dependencies"][extra]:
        ours = re.fullmatch(r"profkit\[([\w,]+)\]", wanted)
        named |= set().union(*map(_brings, ours[1].split(","))) if ours else {_named(wanted)}
    return named


def _named(requirement: str) -> str:
    return _normal(re.match(r"[\w.-]+", requirement)[0])


def _wanted() -> set[str]:
    return {_named(n) for n in PROJECT["dependencies"]} | _brings("dev")


def test_extras_bring_what_their_hint_says() -> None:
    of = {"pynvml": "nvidia-ml-py"}
    for package, extra in EXTRAS.items():
        assert _named(of.get(package, package)) in _brings(extra), package
        assert extra in suggest_install_command(package)
    assert set(PROJECT["optional-dependencies"]) - {"all", "dev", "site"} <= {
        name for name in PROJECT["optional-dependencies"] if _brings(name) <= _brings("all")
    }


def test_everything_that_tests_need_is_pinned() -> None:
    assert _wanted() - set(_pins()) == set()


def test_the_tests_need_no_torch() -> None:
    assert "torch" not in _pins()
    assert "torch" not in _wanted()


def _tracked() -> list[Path]:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        [git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return [p for name in listed.stdout.split("\0") if name and (p := ROOT / name).is_file()]


def _names_a_place(content: bytes) -> bytes | None:
    host = next((h for h in HOSTS if h in content), None)
    path = PATH.search(content) if any(p in content for p in PATHS) else None
    return host or (path.group() if path else None)


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    found = {p.name: where for p in _tracked() if (where := _names_a_place(p.read_bytes()))}
    assert found == {}


def test_the_search_finds_what_it_looks_for() -> None:
    assert _names_a_place(b"in /" + b"root/x") == b"/" + b"root/x"
    assert _names_a_place(b"https://files.pythonhosted" + b".org/a")
    assert _names_a_place(b"a/" + b"work/b and /usr/local/cuda") is None


def test_continuous_integration_finds_a_browser_and_calls_make_test() -> None:
    script = ROOT / ".ci" / "run"
    lines = [x for x in script.read_text().splitlines() if x and not x.startswith("#")]
    assert script.stat().st_mode & 0o111
    assert lines[:2] == ["set -eu", 'cd "$(dirname "$0")/.."']
    assert lines[-4:] == ["browser &", "make .venv/.ready # meanwhile", "wait", "make test"]
    assert lines[2] == "browser() {"
    assert lines[3].startswith("  if ! command -v chromium")  # all of it is conditional
    assert lines[-6:-4] == ["  fi", "}"]
    assert "sudo" not in script.read_text()


def test_the_top_level_is_what_was_agreed() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("no checkout")
    folders = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    assert {name for name in folders if not name.startswith(".")} == {
        "analyses",
        "artifacts",
        "docs",
        "kernels",
        "notebooks",
        "profkit",
        "tests",
        "tools",
    }


WAITS = {"run", "wait", "communicate", "verify_output_can_be_written", "check_call"}
OWN_WAITS = {  # not waits for a process that a busy machine could make late
    (
        "tests/measure/test_signals.py",
        "run",
    ),  # what is stopped there never ends; it is tried longer
    ("tests/tune/test_resume.py", "connect"),
}


def test_a_pull_request_shows_the_answers_that_were_accepted() -> None:
    for group in goldens.GROUPS:
        file = goldens.find_text_file(group)
        text = file.read_text("utf-8") if file.is_file() else ""
        same = text == goldens.join_shown(group, goldens.read(group))
        assert same, f"{file.name}: python tools/goldens.py --text"


def test_no_test_waits_for_a_process_less_than_two_minutes() -> None:
    """A test's outcome does not depend on load: 40 s were seen where one takes two seconds alone."""
    short = []
    for path in find_files(ROOT / "tests", "**/*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("tests/gpu/", "tests/programs/")):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            given = [word.value for word in node.keywords if word.arg == "timeout"]
            if node.func.attr == "wait":
                given += node.args
            seconds = [x.value for x in given if isinstance(x, ast.Constant)]
            is_wait = node.func.attr in WAITS and (name, node.func.attr) not in OWN_WAITS
            if is_wait and any(isinstance(x, int | float) and x < 120 for x in seconds):
                short.append(f"{name}:{node.lineno}")
    assert short == []


def test_the_long_description_has_no_dead_link() -> None:
    """A package index knows no files of the repository; its address is in pyproject.toml, or nowhere."""
    sys.path.insert(0, str(ROOT / "tools"))
    from long_description import describe

    readme = (ROOT / "README.md").read_text("utf-8")
    assert "](docs/" in readme
    without = describe(readme, "")
    assert not re.findall(r"\]\((?!https?:)", without)
    assert "What a gain means".lower() in without.lower()
    assert "(which)" not in without, "a link between brackets leaves nothing behind"
    assert 'pip install "profkit[plots,evidence]"' in without
    assert "clone" not in without
    address = "https://example.org/who/profkit"
    leads = re.findall(r"\]\(([^)]+)\)", describe(readme, address))
    assert f"{address}/blob/main/docs/why/gains.md" in leads
    assert f"{address}/raw/main/docs/_static/page.png" in leads
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "readme" in project["dynamic"]
