"""torch.ops.profkit.attention on a GPU: right on every shape, compiled, in a graph, forward only."""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
FOLDER = Path(__file__).parents[2] / "kernels" / "attention"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
        reason="the rungs in the table are built for sm_90a",
    ),
]
# The last two: more tiles of rows than SMs, and few tiles of keys.
SHAPES = (
    (1, 1, 1),
    (2, 3, 17),
    (1, 5, 255),
    (4, 4, 300),
    (1, 2, 1500),
    (3, 70, 130),
    (2, 128, 256),
)
OTHERS = {"sdpa", "qregisters"}  # in no table: the latter was wrong at the last two once


@pytest.fixture(scope="module")
def op() -> ModuleType:
    sys.path.insert(0, str(FOLDER))
    import torch_op

    return torch_op


def _drawn(b: int, h: int, s: int, d: int, dtype: Any = torch.float16) -> list[Any]:
    g = torch.Generator("cuda").manual_seed(s)
    return [torch.randn((b, h, s, d), generator=g, device="cuda").to(dtype) for _ in range(3)]


def _right(out: Any, q: Any, k: Any, v: Any, causal: bool, scale: float | None = None) -> bool:
    scores = q.double() @ k.double().transpose(-1, -2) * (scale or 1 / sqrt(q.shape[-1]))
    if causal:
        hidden = torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, -torch.inf)
    ref = torch.softmax(scores, -1) @ v.double()
    limit = 1e-3 + 1e-3 * ref.abs()
    return bool(((out.double() - ref).abs() <= limit).all()) and out.is_contiguous()


def _names(op: ModuleType) -> list[str]:
    return sorted({*op.picks.table().values()} | OTHERS)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_every_pick_is_right_on_shapes_that_no_record_has(
    op: ModuleType, monkeypatch: pytest.MonkeyPatch, d: int, causal: bool
) -> None:
    for name in _names(op):
        monkeypatch.setattr(op.picks, "pick", lambda _, name=name: name)
        for b, h, s in SHAPES:
            q, k, v = _drawn(b, h, s, d)
            assert op.chosen(q, k, v, causal) == name
            out = torch.ops.profkit.attention(q, k, v, causal)
            assert _right(out, q, k, v, causal), f"{name} at {(b, h, s, d)}"


def test_what_no_rung_handles_goes_to_the_library(op: ModuleType) -> None:
    q, k, v = _drawn(2, 4, 96, 64)
    swapped = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    for given in (
        swapped,
        [x.bfloat16() for x in (q, k, v)],
        [x[..., :32].contiguous() for x in (q, k, v)],
        [q, k[:, :, :50].contiguous(), v[:, :, :50].contiguous()],
    ):
        assert op.chosen(*given, False) == "sdpa"
        out = torch.ops.profkit.attention(*given)
        wide = torch.bfloat16 in {x.dtype for x in given}
        assert wide or _right(out, *given, False)
    assert _right(torch.ops.profkit.attention(q, k, v, False, -0.5), q, k, v, False, -0.5)


def test_it_compiles_whole_and_replays_in_a_graph(op: ModuleType) -> None:
    q, k, v = _drawn(1, 8, 512, 64)

    def layer(q: Any, k: Any, v: Any) -> Any:
        return torch.ops.profkit.attention(q * 2, k, v, True) + 1

    out = torch.compile(layer, fullgraph=True)(q, k, v)
    assert torch.equal(out, layer(q, k, v))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = layer(layer(q, k, v), k, v)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(kept, layer(layer(q, k, v), k, v))


def test_torch_finds_nothing_wrong_and_there_is_no_backward(op: ModuleType) -> None:
    q, k, v = _drawn(1, 2, 130, 64)
    torch.library.opcheck(torch.ops.profkit.attention.default, (q, k, v, True))
    q.requires_grad_()
    with pytest.raises(RuntimeError, match="autograd"):
        torch.ops.profkit.attention(q, k, v).sum().backward()
