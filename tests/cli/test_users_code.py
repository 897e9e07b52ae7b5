"""Code that a user wrote never answers in profkit's name: by what it prints, or by how it ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.sweeps import take_part

HEAD = "from profkit.evidence.claims import *\n"
CLAIM = '@claim("me")\ndef c(e):\n    "a sentence"\n    '
TRUE = "return decide(True, 'because')\n"
# How a program ends, raises and prints. Each stands at the top of a file and inside of a function.
ENDS = {
    "os._exit": "import os; os._exit(0)",
    "sys.exit": "import sys; sys.exit(0)",
    "sys.exit of nothing": "import sys; sys.exit()",
    "exit": "exit(0)",
    "SystemExit": "raise SystemExit(0)",
    "SystemExit of a text": "raise SystemExit('')",
    "GeneratorExit": "raise GeneratorExit",
    "an exception of its own": "raise type('Own', (BaseException,), {})",
    "a text that fails": "raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})",
    "a group": "raise ExceptionGroup('several', [SystemExit(0)] and [ValueError(1)])",
    "recursion": "(lambda f: f(f))(lambda f: f(f))",
    "an assertion": "assert False",
    "an import": "import no_such_package_anywhere",
    "memory": "raise MemoryError",
    "the system": "open('no such file')",
    "a division": "1 / 0",
    "a thread": "import threading, os; t = threading.Thread(target=os._exit, args=(0,)); t.start(); "
    "t.join(); raise SystemExit(0)",
    "an exit that is caught late": "import os\ntry: os._exit(0)\nfinally: os._exit(0)",
}
AT_TOP = {"syntax": "def (", "an indent": "  x = 1\n y", "NUL": "\0", "no UTF-8": "\udcff"}
PRINTS = {
    "print": "print('debugging')",
    "the stream": "import sys; sys.stdout.write('debugging\\n')",
    "the first stream": "import sys; sys.__stdout__.write('debugging\\n'); sys.__stdout__.flush()",
    "the descriptor": "import os; os.write(1, b'debugging\\n')",
    "a program": "import subprocess; subprocess.run(['echo', 'debugging'])",
    "a stream that is replaced": "import sys, io; sys.stdout = io.StringIO(); print('debugging')",
    "late": "import sys; sys.stdout.write('debugging, without an end of line')",
    "at the end": "import atexit; atexit.register(print, 'debugging')",
    "a fork": "import os; os.fork()",
}
# What a claim returns, and what one is made of, of other types than it should be.
WRONG = {
    "a number": "return 5",
    "nothing": "return None",
    "a text": "return 'holds'",
    "another verdict": "return Answer('maybe', 'because')",
    "a verdict of lists": "return Answer(['holds'], 'because')",
    "a number for a reason": "return Answer('holds', 5)",
    "no reason": "return Answer('holds', None)",
    "numbers that are none": "return decide(True, 'b', x=object())",
    "numbers of lists": "return decide(True, 'b', x=[1])",
    "no mapping": "return Answer('holds', 'b', 5)",
    "a text to collect": "return Answer('undecided', 'b', {}, 'profkit')",
    "numbers to collect": "return Answer('undecided', 'b', {}, (5,))",
    "a whole number of 5,000 digits": "return decide(True, 'b', x=10**5000)",
    "a class": "return Answer",
}
MADE = {
    "needs of numbers": HEAD + CLAIM.replace('"me"', '"me", needs=[5]') + TRUE,
    "needs of lists": HEAD + CLAIM.replace('"me"', '"me", needs=[["a"]]') + TRUE,
    "needs a number": HEAD + CLAIM.replace('"me"', '"me", needs=5') + TRUE,
    "who is a number": HEAD + CLAIM.replace('"me"', "5") + TRUE,
    "a gate of numbers": HEAD + CLAIM + TRUE + "g = gate('g', [5])\n",
    "a gate of lists": HEAD + CLAIM + TRUE + "g = gate('g', [[c]])\n",
    "a title of blanks": '"  "\n' + HEAD + CLAIM + WRONG["a number"] + "\n",
    "a title of another type": "__doc__ = 5\n" + HEAD + CLAIM + WRONG["a number"] + "\n",
}


def write_source(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def indented(text: str) -> str:
    return text.replace("\n", "\n    ")


CLAIMS = {
    **{f"top: {name}": HEAD + text + "\n" + CLAIM + TRUE for name, text in (ENDS | AT_TOP).items()},
    **{f"claim: {name}": HEAD + CLAIM + indented(x) + "\n" for name, x in (ENDS | WRONG).items()},
    **MADE,
}


def test_no_file_of_claims_ends_profkit(shell: Callable[..., Any], tmp_path: Path) -> None:
    """62 files: each is an error of the file, exit status 2, in a document that can be read."""
    files = [
        write_source(tmp_path / f"c{number}.py", text)
        for number, text in enumerate(CLAIMS.values())
    ]
    done = shell("claims", *files, "--artifacts", "artifacts", "--json")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    said = json.loads(done.stdout)["files"]
    for name, file in zip(CLAIMS, said, strict=True):
        assert file["error"] or [x for x in file["claims"] if x["outcome"] == "errored"], name


def test_what_claims_print_is_not_in_the_document(
    shell: Callable[..., Any], tmp_path: Path
) -> None:
    """9 ways to print x 2 places."""
    files = []
    for number, text in enumerate(PRINTS.values()):
        at_top = HEAD + text + "\n" + CLAIM + TRUE
        inside = HEAD + CLAIM + text + "\n    " + TRUE
        files += [
            write_source(tmp_path / f"top{number}.py", at_top),
            write_source(tmp_path / f"claim{number}.py", inside),
        ]
    done = shell("claims", *files, "--artifacts", "artifacts", "--json")
    assert done.returncode == 0, done.stderr
    for file in json.loads(done.stdout)["files"]:
        assert [claim["outcome"] for claim in file["claims"]] == ["holds"], file
    assert "debugging" not in done.stdout


PROBLEMS = ENDS | AT_TOP


@pytest.fixture(scope="module")
def problem() -> str:
    return (ROOT / "tests/bad_kernels/problem.py").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("what", take_part(PROBLEMS, one_of=3))
def test_no_problem_ends_profkit(
    what: str, problem: str, shell: Callable[..., Any], tmp_path: Path
) -> None:
    """22 files: two lines, and exit status 2, which is not 1: wrong."""
    text = PROBLEMS[what]
    folder = tmp_path / "kernels" / "p"
    folder.mkdir(parents=True)
    (folder / "v1_x.cu").write_text("// a kernel\n")
    write_source(folder / "problem.py", problem + "\n" + text + "\n")
    done = shell("check", "--kernels", folder.parent, "--variant", "v1")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert "problem.py" in done.stderr


def test_a_file_that_takes_the_exit_away_decides_no_status(
    shell: Callable[..., Any], tmp_path: Path
) -> None:
    text = f"{HEAD}import sys\nsys.exit = print\n{CLAIM}return 5\n"
    done = shell("claims", write_source(tmp_path / "c.py", text))
    assert done.returncode == 2, done.stderr
