"""The commands of README.md that need a GPU, run for real and in its order."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest

from profkit.lab.measure.variants import variants
from tests import readme
from tests.conftest import ROOT
from tests.test_readme import NEEDS_GPU, prepare

pytestmark = pytest.mark.gpu
FOUND = [c for c in readme.commands() if c.split()[1] in NEEDS_GPU and c.startswith("profkit")]
# What stands again with an option more (a search, with its default of trials) runs once, so.
COMMANDS = [c for c in FOUND if not any(other.startswith(f"{c} ") for other in FOUND)]
NAMED = {name for command in COMMANDS for name in re.findall(r"--variant (\w+)", command)}
# Launches a softmax of PyTorch's own and a Triton kernel, as the commands ask of train.py; the kernel on
# arrays of two sizes, which are captured as layer_norm and layer_norm-2.
TRAIN = """
import torch
import triton
import triton.language as tl

@triton.jit
def layer_norm(x, y, width, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < width
    values = tl.load(x + tl.program_id(0) * width + at, mask=inside, other=0.0)
    away = tl.where(inside, values - tl.sum(values, 0) / width, 0.0)
    spread = tl.sqrt(tl.sum(away * away, 0) / width + 1e-5)
    tl.store(y + tl.program_id(0) * width + at, away / spread, mask=inside)

for width in (999, 1000):
    x = torch.rand(999, width, device="cuda")
    y = torch.empty_like(x)
    layer_norm[(999,)](x, y, width, 1024)
torch.softmax(x, 1)
torch.cuda.synchronize()
"""

# What docs/why/ablation.md describes in its launch.toml: two arrays, the rows, a number and a struct.
MINE = """
struct Scale { float factor; const float* weights; };
__global__ void mine(const float* x, float* y, const int* rows, unsigned n, Scale scale) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scale.factor * x[rows[i]] + scale.weights[i % 1024];
}
"""
# The problems that are there for --all to choose from: with all of kernels/ it takes half an hour.
CHOSEN = {"attention", "common", "layernorm"}
FEW = {"v1", "tritonflash"}  # what --all profiles: a variant of each language, and all references


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme")
    prepare(folder)
    (folder / "train.py").write_text(TRAIN)
    lay_kernel_of_one_s_own(folder)
    (folder / "shared").mkdir()
    (folder / "kernels").unlink()
    _lay_part_of_kernels(folder / "kernels", NAMED)
    _lay_part_of_kernels(folder / "few", FEW)
    return folder


def _lay_part_of_kernels(folder: Path, names: set[str]) -> None:
    """Copy the chosen problems; of attention's ladder, variants by name and what stands before them."""
    shutil.copytree(ROOT / "kernels", folder, ignore=_leave_out_other_problems)
    kept = set(names)
    for variant in reversed(variants.read_all_variants(folder, "attention")):
        if variant.id in kept:  # who comes after another stands behind it
            kept |= {variant.header.after} if variant.header.after else set()
        else:
            variant.path.unlink()


def _leave_out_other_problems(folder: str, names: list[str]) -> set[str]:
    if Path(folder) != ROOT / "kernels":
        return set()
    return {name for name in names if (ROOT / "kernels" / name).is_dir()} - CHOSEN


def lay_kernel_of_one_s_own(folder: Path) -> None:
    """Write my.cu, the page's own launch.toml and the rows that it names."""
    page = (ROOT / "docs" / "why" / "ablation.md").read_text("utf-8")
    (launch,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (folder / "my.cu").write_text(MINE)
    (folder / "include").mkdir()
    (folder / "launch.toml").write_text(launch)
    rows = numpy.random.default_rng(1).permutation(1_048_576)
    numpy.save(folder / "rows.npy", rows.astype(numpy.int32))


def test_there_are_some() -> None:
    assert {command.split()[1] for command in COMMANDS} == NEEDS_GPU


def _list_units(commands: list[str]) -> list[Any]:
    """Make a test of each command, and one of those that read what an earlier one wrote."""
    of_captured = [command for command in commands if "captured" in command.split()]
    alone = [command for command in commands if command not in of_captured]
    units = [(command,) for command in alone] + [tuple(of_captured)]
    return [
        pytest.param(unit, id=", ".join(unit), marks=pytest.mark.long if _is_long(unit) else ())
        for unit in units
    ]


def _is_long(unit: tuple[str, ...]) -> bool:
    """Return whether commands take a minute: they search, measure all, or ablate what they captured."""
    return len(unit) > 1 or any(word in unit[0].split() for word in ("tune", "--all"))


@pytest.mark.parametrize("commands", _list_units(COMMANDS))
def test_they_run(commands: tuple[str, ...], place: Path) -> None:
    for command in commands:
        done = readme.run(_shorten(command, place), place)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout


def _shorten(command: str, place: Path) -> str:
    """Return a command of a page as it runs here: in its folder, and in a minute or two."""
    command = command.replace("journal:///shared", f"journal://{place}/shared")
    verb = command.split()[1]
    if verb == "tune":
        return f"{command} --trials 4"  # a search of the default length compiles for minutes
    if verb == "profile" and "--all" in command:
        return f"{command} --kernels few"
    return command


def test_doctor_finds_nothing_missing(place: Path) -> None:
    done = readme.run("profkit doctor --json", place)
    assert done.returncode == 0
    assert "missing" not in {f["status"] for f in json.loads(done.stdout)["findings"]}
