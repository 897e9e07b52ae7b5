"""--max-memory: an answer within it, or one line that it is too little; never that a file is damaged."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from profkit import files
from profkit.cli.app import import_verbs, list_verbs_alphabetically
from profkit.errors import ProfkitError
from profkit.evidence import samples
from tests.conftest import ROOT
from tests.reports import made
from tests.sweeps import take_part

pytestmark = pytest.mark.slow

REPORT = ROOT / "artifacts" / "attention" / "C" / "unfused.ncu-repz"


def asked(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "profkit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("size", ["40M", "60M", "70M"])
def test_too_little_is_said_in_two_lines(size: str) -> None:
    done = asked("--max-memory", size, "diagnose", REPORT)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"profkit: (\S+: )?out of memory\n  [^\n]+\n", done.stderr)


def test_enough_is_enough() -> None:
    whole, held = asked("diagnose", REPORT), asked("--max-memory", "1G", "diagnose", REPORT)
    assert (held.returncode, held.stdout, held.stderr) == (0, whole.stdout, "")


def test_a_report_that_takes_too_much_costs_itself_alone(tmp_path: Path) -> None:
    """Its second frame says that it has 4 GB, and the file is as long: a hole, which takes no disk."""
    start = made.report()[: 4 + len(made.frame(made.field(1, 7)))]
    most = 0xF000_0000
    hungry = tmp_path / "hungry.ncu-rep"
    with hungry.open("wb") as file:
        file.write(start + most.to_bytes(4, "little"))
        file.truncate(len(start) + 4 + most)
    good = tmp_path / "good.ncu-rep"
    good.write_bytes(made.report())
    alone = asked("--max-memory", "1G", "diagnose", good)
    both = asked("--max-memory", "1G", "diagnose", hungry, good)
    assert (both.returncode, both.stdout) == (2, alone.stdout)
    assert both.stderr == f"profkit: {hungry}: unreadable: out of memory\n  allow more of it\n"


def test_a_damaged_one_is_still_called_that(tmp_path: Path) -> None:
    path = tmp_path / "x.ncu-rep"
    path.write_bytes(made.report()[:-20])
    assert "damaged" in asked("--max-memory", "1G", "diagnose", path).stderr


MEASURED = """
import os, resource, subprocess, sys
with open(sys.argv[1], "wb") as out:
    subprocess.run([sys.executable, "-m", "profkit", "diagnose", *sys.argv[2:]], stdout=out, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def _diagnosed(path: Path, count: int, *flags: str) -> tuple[float, str]:
    """Peak memory and output of diagnose for a report of so many launches of 274 bytes."""
    report, out = path / f"{count}.ncu-rep", path / "out"
    report.write_bytes(made.numbered(count))
    command = [sys.executable, "-c", MEASURED, str(out), str(report), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout), out.read_text("utf-8")


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_many_small_launches_stay_small(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Memory grows by some kB a launch, whatever is said of each; so does the document."""
    few, _ = _diagnosed(tmp_path, 300, *flags)
    many, text = _diagnosed(tmp_path, 1800, *flags)
    assert (many - few) / 1500 < 12e3
    if flags:
        launches = json.loads(text)["launches"]
        assert [run["kernel"] for run in launches] == [f"kernel_{n}" for n in range(1800)]
        assert len(text) / 1800 < 13e3
        assert sum("kernel_" in line for line in text.splitlines()) == 1800, "a line for each"


VARIANT = ("--variant", "stage2", "--case", "B")
# What verbs answer on any machine; those for a GPU say that there is none. Any other is asked the first
# of its own examples, and may say that a file of it is not there.
ASKED = {
    "ablate": ("stage2", "--case", "B"),
    "bench": VARIANT,
    "capture": ("--all", "-o", "captured", "--", sys.executable, "-c", "pass"),
    "check": ("--build-only", *VARIANT[:2], "--arch", "banana"),
    "claims": (ROOT / "analyses" / "target_5us.py",),
    "compare": ("stage1.B", "stage2.B"),
    "decide": ("stage2.B",),
    "diagnose": (ROOT / "artifacts" / "copy.1GiB.ncu-rep",),
    "doctor": (),
    "explain": ("barrier-wait",),
    "gate": ("artifacts", "artifacts", "--case", "16k-8"),
    "history": ("--history", "kept"),  # the artifacts here are a link to those of the project
    "ladder": ("--case", "16k-8", "--brief"),
    "list": (),
    "mcp": (),
    "new": ("rowsum", "--kernels", "made"),
    "profile": VARIANT,
    "query": ("SELECT count(*) FROM runs",),
    "report": (ROOT / "artifacts" / "copy.1GiB.ncu-rep", "-o", "page.html"),
    "roofline": (ROOT / "artifacts" / "copy.1GiB.ncu-rep", "-o", "roof.png"),
    "triage": (ROOT / "tests/program/data/copy_results_to_host.planted.json.gz",),
    "tune": ("--variant", "v3", "--case", "B"),
    "whatif": ("stage2.B", "blocks*2"),
}


def list_words_of_example(verb: str) -> list[str]:
    """Return what follows the verb in the first example of its help."""
    example = import_verbs()[verb].verb.examples[0]
    return shlex.split(example)[2:]


LEAST = 150  # MB: with less, native libraries would end the process while they are imported


@pytest.mark.parametrize("megabytes", take_part([40, LEAST, 165, 190, 240, 400], one_of=6, first=1))
@pytest.mark.parametrize("verb", take_part(sorted(list_verbs_alphabetically()), one_of=3, first=1))
def test_every_verb_answers_or_says_that_it_has_too_little(
    verb: str, megabytes: int, tmp_path: Path
) -> None:
    for name in ("artifacts", "kernels"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "profkit", "--max-memory", f"{megabytes}M", verb]
    done = subprocess.run(
        [*command, *map(str, ASKED.get(verb) or list_words_of_example(verb))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "jemalloc" not in done.stderr
    assert "OpenBLAS error" not in done.stderr


@pytest.mark.parametrize(("more", "is_enough"), [(100 << 20, True), (30 << 20, False)])
def test_scipy_is_imported_only_with_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, more: int, is_enough: bool
) -> None:
    """Of addresses (`ulimit -v`), too: OpenBLAS asks for its 32 MB for ever."""
    limit = files._read_own_memory_status("VmSize") + more
    limits = {resource.RLIMIT_AS: (limit, resource.RLIM_INFINITY)}
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits.get(kind, unlimited))
    samples.import_scipy_special.cache_clear()
    if is_enough:
        assert samples.import_scipy_special().ndtri(0.5) == 0.0
    else:
        with pytest.raises(ProfkitError, match="out of memory"):
            samples.import_scipy_special()
    samples.import_scipy_special.cache_clear()


@pytest.mark.parametrize("size", ["x", "4", "-1G", "1e3G", "", "9999999G"])
def test_what_is_no_size(size: str) -> None:
    done = asked("--max-memory", size, "list")
    assert (done.returncode, done.stderr) == (
        2,
        f"profkit: --max-memory {size}: not understood\n  say 800M or 4G\n",
    )
