"""Which emulated kernels, and which texts that compilers take long for, passed as they are now.

Only what changed is compiled and run again.

    make emulate

runs all of them and writes passed.json anew. A pass counts as long as the kernel's text, all that it
includes, the emulator, what is asked of it and the compilers are those of then. As of budgets
(resources.py), a few are run each time, so that what is kept is known to be what there is.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.kernels.emulated import (
    AROUND,
    EMULATOR,
    FLAGS,
    KERNELS,
    SANITIZERS,
    SCHEDULES,
    UNWATCHED,
    cuda_include,
)

ALL = "PROFKIT_EMULATE_ALL" in os.environ  # make emulate
# Run each time, each in seconds: tensor cores and asynchronous copies, Hopper's products and copies,
# another problem; two that are broken, of which one shows in a race, one in values; what ptxas makes of
# a probe's changes, and a tolerance.
AGAIN = (
    "changes of conflict8",
    "fp8/tolerance at S17-causal",
    "attention/stage2",
    "attention/uniform",
    "layernorm/warprow",
    "mutant: a deleted barrier",
    "mutant: keys past the end not masked",
)
KEPT = Path(__file__).with_name("passed.json")
_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def hash_run(source: str, *asked: object) -> str:
    """Return a hash of all that decides whether a kernel, given as text, passes what is asked."""
    parts = [source, *list_included(source), repr(asked), find_versions(), describe_emulator()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def list_included(source: str) -> list[str]:
    """Return the texts of the kernels' files that a text includes, and that those include.

    They are found by their names alone: where two folders have one, both are of it.
    """
    found: dict[Path, str] = {}
    texts = [source]
    while texts:
        for words in _INCLUDE.findall(texts.pop()):
            for path in _index_kernels().get(Path(words).name, ()):
                if path not in found:
                    found[path] = path.read_text("utf-8")
                    texts.append(found[path])
    return [text for _, text in sorted(found.items())]


@functools.cache
def _index_kernels() -> dict[str, list[Path]]:
    """Return the name of a file -> the files under kernels/ that are called so."""
    named: dict[str, list[Path]] = {}
    for path in KERNELS.rglob("*.cu*"):
        named.setdefault(path.name, []).append(path)
    return named


@functools.cache
def describe_emulator() -> str:
    """Return all that is the same for every kernel: the emulator, and how it is compiled and run."""
    folders = [*EMULATOR.rglob("*"), *(KERNELS / "common").glob("*.cuh")]
    texts = [path.read_text("utf-8") for path in sorted(folders) if path.is_file()]
    return repr([texts, FLAGS, UNWATCHED, SANITIZERS, AROUND, SCHEDULES])


def describe_problem(file: Path) -> str:
    """Return the problem.py of a kernel's file, as code: how it is laid out does not count."""
    folder = KERNELS / file.relative_to(KERNELS).parts[0]
    return ast.dump(ast.parse((folder / "problem.py").read_text("utf-8")))


@functools.cache
def find_versions() -> str:
    """Return the versions of g++ and of the toolkit with the headers; skip where one is missing."""
    folder = cuda_include()
    gcc = subprocess.run(
        [shutil.which("g++") or "g++", "-dumpfullversion", "-dumpmachine"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    toolkit = re.search(
        r"define CUDART_VERSION\s+(\d+)", (folder / "cuda_runtime_api.h").read_text()
    )
    return " ".join(["g++", *gcc.split(), "CUDA", toolkit.group(1) if toolkit else "unknown"])


def read_kept() -> dict[str, dict[str, str]]:
    """Return the name of a run -> the hash of what passed, and what compiled it."""
    text = KEPT.read_text("utf-8") if KEPT.is_file() else ""
    return json.loads(text or "{}")


def is_kept(name: str, made_of: str) -> bool:
    """Return whether a run passed with all as it is now, and need not be run again."""
    return not ALL and name not in AGAIN and read_kept().get(name, {}).get("made_of") == made_of


def keep_pass(name: str, made_of: str) -> None:
    """Write that a run passed, in make emulate; several workers may do it at once."""
    if not ALL:
        return
    with KEPT.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        rows = read_kept()
        rows[name] = {"made_of": made_of, "by": find_versions()}
        lines = (f"{json.dumps(key)}: {json.dumps(row)}" for key, row in sorted(rows.items()))
        KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
