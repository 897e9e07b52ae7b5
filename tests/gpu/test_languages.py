"""Triton variants beside CUDA ones, and launches of running programs, on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_profile import profkit

pytestmark = pytest.mark.gpu
pytest.importorskip("triton")


@pytest.mark.long
def test_attention_in_triton_is_right_and_profiled(tmp_path: Path) -> None:
    (check,) = json.loads(profkit("check", "--variant", "tritonflash", "--json"))["checks"]
    assert check["status"] == "right"
    where = ("--artifacts", str(tmp_path))
    names = ("--variant", "tritonflash", "--variant", "stage2", "--case", "B")
    profkit("profile", *names, "--json", *where)
    said = json.loads(profkit("compare", "stage2", "tritonflash", "--case", "B", *where, "--json"))
    assert len(said["changes"]) == 1
    report = next(tmp_path.rglob("tritonflash.ncu-rep"))
    lines = profkit("diagnose", str(report), "--lines", "3", "--quiet")
    assert "tritonflash_online_softmax.py:" in lines


HEAD = """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(out + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)
n = 1 << 20
x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
out = torch.empty_like(x)
grid = lambda meta: (triton.cdiv(n, meta["B"]),)
"""
COMPILED = """
import torch
model = torch.nn.Sequential(torch.nn.LayerNorm(1024), torch.nn.GELU()).cuda().half()
x = torch.randn(4096, 1024, device="cuda", dtype=torch.half)
f = torch.compile(lambda x: model(x) + x)
for _ in range(3):
    f(x)
torch.cuda.synchronize()
"""


def captured(tmp_path: Path, text: str, *options: str) -> list[dict[str, Any]]:
    program = tmp_path / "train.py"
    program.write_text(text)
    words = ["capture", *options, "--json", "-q", "-o", str(tmp_path / "captured")]
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *words, "--", sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, 2), done.stderr
    if done.returncode == 2:
        return [{"kernel": "", "why_not": done.stderr, "file": None}]
    rows: list[dict[str, Any]] = json.loads(done.stdout)["kernels"]
    return rows


@pytest.mark.long
@pytest.mark.parametrize("values", [(), ("--values",)], ids=["statistics", "values"])
def test_a_compiled_layer_norm_is_the_same_here(tmp_path: Path, values: tuple[str, ...]) -> None:
    (row,) = captured(tmp_path, COMPILED, "--all", *values)
    assert (row["equal"], row["launches"]) == ("bit-equal", 3)
    assert row["ratio"] == pytest.approx(1, abs=0.1)
    where = ("--kernels", str(tmp_path / "captured"))
    names = ("--variant", f"{Path(row['file']).parent.name}/captured")
    timed = json.loads(profkit("bench", *names, *where, "--json"))["cases"]["captured"]
    assert timed[0]["timing"]["l2"]["warm"]["median"] > 0
    profkit("profile", *names, *where, "--artifacts", str(tmp_path / "artifacts"))


@pytest.mark.parametrize(
    ("launch", "equal", "why"),
    [
        ("add[grid](x, y, out, n, 1024)", "bit-equal", None),
        ("add[grid](x, y, x, n, 1024)", "bit-equal", None),  # in place
        ("add[grid](x, y[:1].expand(n), out, 1, 1024)", "bit-equal", None),  # a stride of zero
        ("add[grid](x, y, out[:-8], n - 8, 1024); x = out", "bit-equal", None),
        ("add[(1,)](x, x[4:], x[2:], 4, 16)", None, "shares memory"),
    ],
)
def test_what_a_launch_may_be(
    tmp_path: Path, launch: str, equal: str | None, why: str | None
) -> None:
    (row,) = captured(tmp_path, f"{HEAD}\n{launch}\ntorch.cuda.synchronize()\n", "--kernel", "add")
    assert row.get("equal") == equal
    assert why is None or why in row["why_not"]


def test_a_launch_above_the_limit_or_in_a_graph_is_one_line(tmp_path: Path) -> None:
    launch = "add[grid](x, y, out, n, 1024)"
    (row,) = captured(tmp_path, HEAD + launch, "--limit", "1")
    assert "more than --limit" in row["why_not"]
    graph = "\ng = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(g):\n    "
    warm = "add.warmup(x, y, out, n, 1024, grid=grid)\n"
    replay = "\ng.replay()\ntorch.cuda.synchronize()\n"
    (tmp_path / "graph").mkdir()
    (row,) = captured(tmp_path / "graph", HEAD + warm + graph + launch + replay)
    assert "CUDA graph" in row["why_not"]
