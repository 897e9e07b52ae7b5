"""torch.ops.profkit.attention: softmax(scale q k^T) v by whatever was recorded to be fastest at a shape.

    import torch_op                                  # with kernels/attention on sys.path
    out = torch.ops.profkit.attention(q, k, v, True) # is_causal

Inference only: there is no backward. It may stand in torch.compile and in a CUDA graph; call it once
before a capture, as any operator, since the first call of a rung builds (nvcc, a minute, kept in
build/) and loads it. What no rung handles goes to scaled_dot_product_attention, and so does every shape
at which no rung was the fastest; `chosen` says which.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import picks
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from profkit.lab.measure.cuda import library
from profkit.lab.measure.cuda.library import Args
from profkit.lab.measure.variants import build, variants

KERNELS = Path(__file__).resolve().parents[1]
ARCH = (9, 0)  # the table was recorded on one of these, and the rungs in it are built for it
MOST = 65535, 1 << 20  # heads and rows that a rung takes
_BACKENDS = {
    "sdpa-cudnn": SDPBackend.CUDNN_ATTENTION,
    "sdpa-flash": SDPBackend.FLASH_ATTENTION,
    "sdpa-efficient": SDPBackend.EFFICIENT_ATTENTION,
}
_ANY = [*_BACKENDS.values(), SDPBackend.MATH]


@torch.library.custom_op("profkit::attention", mutates_args=())
def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention: softmax(scale q k^T) v.

    Args:
        q: (B, H, S, D).
        k: (B, H, T, D).
        v: (B, H, T, D).
        is_causal: Row i sees keys 0 to i.
        scale: Of the scores; 1 / sqrt(D) when None.

    Returns:
        (B, H, S, D), contiguous, of q's type.
    """
    name = chosen(q, k, v, is_causal)
    if name.startswith("sdpa"):
        return _library_call(name, q, k, v, is_causal, scale)
    out = torch.empty_like(q)
    factor = 1 / sqrt(q.shape[-1]) if scale is None else scale
    with torch.cuda.device(q.device):
        library.call_launcher(_rung(name), _arguments((q, k, v), out, is_causal, factor))
    return out


@attention.register_fake
def _like(
    q: torch.Tensor,
    k: torch.Tensor,  # noqa: ARG001
    v: torch.Tensor,
    is_causal: bool = False,  # noqa: ARG001
    scale: float | None = None,  # noqa: ARG001
) -> torch.Tensor:
    """The output's size and type, for torch.compile."""
    return q.new_empty((*q.shape[:-1], v.shape[-1]))


def chosen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool) -> str:
    """What a call with these tensors runs: a rung's id, `sdpa` or one of its backends."""
    x = picks.Shape(q.shape[-2], q.shape[:-2].numel(), q.shape[-1], is_causal)
    return picks.pick(x) if _fits(q, k, v, x) else "sdpa"


def _fits(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, x: picks.Shape) -> bool:
    """Whether a rung can be asked: fp16 on a Hopper, one contiguous size for all three."""
    three = (q, k, v)
    return (
        q.dim() == 4
        and all(t.is_cuda and t.device == q.device and t.dtype == torch.float16 for t in three)
        and all(t.shape == q.shape and t.is_contiguous() for t in three)
        and all(t.data_ptr() % 16 == 0 for t in three)
        and x.D in picks.DIMENSIONS
        and 0 < x.heads <= MOST[0]
        and 0 < x.rows <= MOST[1]
        and _arch(q.device.index) == ARCH
    )


@lru_cache
def _arch(index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


@lru_cache
def _rung(name: str) -> Any:
    """A rung's library, built if it is not yet."""
    variant = variants.select_variant_by_id(variants.read_all_variants(KERNELS, "attention"), name)
    arch = "{}{}".format(*ARCH)
    (made,) = build.compile_variants_not_built_yet(
        [variant], [arch], build.choose_build_folder_of_kernels(KERNELS)
    )
    return library.load_launcher_library(build.require_library(made))


def _arguments(
    tensors: tuple[torch.Tensor, ...], out: torch.Tensor, is_causal: bool, scale: float
) -> Args:
    args = Args()
    for i, x in enumerate(tensors):
        args.input[i] = x.data_ptr()
    args.out[0] = out.data_ptr()
    for i in range(4):
        args.size[i], args.stride[i] = out.shape[i], out.stride(i)
    args.scale, args.causal = scale, int(is_causal)
    args.stream = torch.cuda.current_stream(out.device).cuda_stream
    return args


def _library_call(
    name: str,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """PyTorch's own, the backend picked first and any other if that one cannot."""
    if name not in _BACKENDS:
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale).contiguous()
    first = _BACKENDS[name]
    with sdpa_kernel([first, *(b for b in _ANY if b is not first)], set_priority=True):
        return scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale).contiguous()
