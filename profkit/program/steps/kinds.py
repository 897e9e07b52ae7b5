"""A kernel's name  ->  what kind of work it is, and in which precision it multiplies.

Names are all that some timelines have. Of a library's kernels the name says what they do. Of any
other it says at most what they are about: what rests on a name alone is not said of them.
"""

from __future__ import annotations

import re
from functools import lru_cache

# First match wins: a kind, and words as patterns. Of _HEADS only what comes before a name's template
# arguments counts.
_HEADS = """
optimizer multi_tensor_apply_kernel FusedAdam fused_adam fused_sgd
elementwise elementwise_kernel vectorized_add _elementwise
reduce ::reduce_kernel ^reduce_kernel
"""
_NAMES = r"""
collective nccl rccl nvshmem cross_device_reduce all_?reduce all_?gather
attention flash fmha sdpa mem_eff attention attn fusion::compute_dot_do_o fusion::convert_dq
softmax softmax
norm layer_?norm batch_?norm group_?norm rms_?norm bn_fw bn_bw RowwiseMoments GammaBeta
norm ComputeInternalGradients
layout n(chw|hwc)(to|2)n(chw|hwc) tensorTransform ^wrapped_transpose
conv implicit_?gemm implicit_convolve fprop dgrad wgrad convolve conv[123]d winograd depthwise
conv xmma__5x_cudnn
sort sort topk DeviceScan tensor_kernel_scan DeviceSelect DeviceCompact unique
scatter scatter index_?add indexFunc index_?put.*accum indexing_backward
scatter embedding_backward_feature grid_sampler_\dd_backward upsample_\w*linear\w*backward
gemm gemm nvjet cutlass cublas wgmma splitkreduce gemv matmul s16816 s1688
gather gather index_?select index_elementwise embedding index_kernel
random dropout philox distribution random
concat CatArray
reduce at::native.*reduce cub::.*reduce DeviceReduce
elementwise ^wrapped_
fused (^|_)fusion(_\d+)?$
"""


def _table(text: str, flags: int = 0) -> list[tuple[str, re.Pattern[str]]]:
    rows = [line.split() for line in text.strip().splitlines()]
    return [(kind, re.compile("|".join(words), flags)) for kind, *words in rows]


_BY_HEAD, _BY_NAME = _table(_HEADS), _table(_NAMES, re.IGNORECASE)
# Inductor puts every operator that it fused into a name: what the kernel does is its template.
_INDUCTOR = re.compile(r"triton_(poi|red|per|tem|mm|for)_fused_?(?P<ops>\w*)")
_TEMPLATES: dict[str, tuple[tuple[str, ...], str]] = {
    "poi": ((), "elementwise"),
    "red": (("softmax", "norm"), "reduce"),
    "per": (("softmax", "norm"), "reduce"),
    "tem": (("attention", "conv", "gemm"), "fused"),
    "mm": ((), "gemm"),
    "for": ((), "fused"),
}
# What a name of nobody we know may be called all the same: no finding rests on these words alone.
_ABOUT = {"attention", "softmax", "norm", "gemm"}
_FP32 = re.compile(r"(?i)simt|(?<![a-z])sgemm|(?<![a-z])ffma|f32f32_f32f32_f32|scudnn")
_TENSOR = re.compile(r"(?i)tensorop|tf32|s1688|s16816|f16|hmma|wgmma|nvjet|h884|i8816|fp8|e4m3")
_TF32 = re.compile(r"(?i)tf32|s1688(?!\d)|s1688gemm(?!_f16)")
_FP64 = re.compile(r"(?i)(?<![a-z\d])(dgemm|(f64)+(?![a-z\d])|d884)")
# Of a name before its arguments: namespaces of libraries, and what they call kernels outside of any.
_LIBRARY = re.compile(
    r"(?i)(^|::)(at|c10|torch|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn\w*|cask\w*|xmma\w*|"
    r"cufft|cusparse|cusolver|flash|pytorch_flash)::|"
    r"^(nvjet|sm\d\d_|ampere_|volta_|turing_|maxwell_|cudnn|cutlass|cublas|nccl|gemvn?s|gemv2|dot_kernel|"
    r"splitk|fmha|flash_(fwd|bwd)|cask|fft|regular_fft|vector_fft|mem(cpy|set)|s884|h884|[sdh]gemm_\d|"
    r"softmax_warp_|cunn_|indexing_backward_kernel|convolve_(common|sgemm)|n(chw|hwc)\w*Kernel|tensorTransform|multi_tensor_apply|"
    r"elementwise_kernel_with_index|"
    r"triton_(softmax|gemm)_|wrapped_[a-z]+(_\d+)?$|(loop|input|gemm)_(\w+_)?fusion|fusion)"
)
_VECTOR = re.compile(r"(?i)gemv|gemvx|dot_kernel|splitkreduce|split_k_kernel")


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """What a kernel does: a word of _NAMES, convert, other, or unknown."""
    if compiled := _INDUCTOR.match(name):
        kinds, otherwise = _TEMPLATES[compiled[1]]
        named = (k for k, pattern in _BY_NAME if k in kinds and pattern.search(compiled["ops"]))
        return next(named, otherwise)
    if not is_librarys(name):
        return next(
            (k for k, pattern in _BY_NAME if k in _ABOUT and pattern.search(name)), "unknown"
        )
    head = name.split("<", 1)[0]
    for kind, pattern in _BY_HEAD:
        if pattern.search(head):
            return _elementwise(name) if kind == "elementwise" else kind
    return next((kind for kind, pattern in _BY_NAME if pattern.search(name)), "other")


def _elementwise(name: str) -> str:
    """A copy of a tensor into another type or order is a conversion, not arithmetic."""
    if re.search(r"direct_copy|copy_kernel", name):
        return "convert"
    # The same kernel gathers, scatters and sums: by its functor. Opaque types are moved, never added.
    if re.search(r"(?i)index_put|scatter", name) and not re.search(
        r"TensorAssign|OpaqueType", name
    ):
        return "scatter"
    return "gather" if re.search(r"(?i)index_|scatter|gather", name) else "elementwise"


@lru_cache(maxsize=65536)
def precision_of(name: str) -> str:
    """Of a gemm or conv: fp32 (off the tensor cores), tf32, fp64, half, or unknown."""
    if not is_librarys(name):
        return "unknown"
    if _FP64.search(name):
        return "fp64"
    if _FP32.search(name) and not re.search(r"(?i)tensorop|tf32|s1688|s16816", name):
        return "fp32"
    if _TF32.search(name) and not re.search(r"(?i)s1688gemm_(f16|bf16)", name):
        return "tf32"
    return "half" if _TENSOR.search(name) else "unknown"


def is_compiled(name: str) -> bool:
    """Whether Inductor wrote a kernel: what it could fuse is fused."""
    return _INDUCTOR.match(name) is not None


@lru_cache(maxsize=65536)
def is_librarys(name: str) -> bool:
    """Whether a known library names its kernels like this, so that the name tells what it does."""
    head = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", head, maxsplit=1)[0]
    return is_compiled(name) or _LIBRARY.search(head) is not None


def is_vector_product(name: str) -> bool:
    """A matrix times a vector, or the sum of partial products: bound by memory, not by pipes."""
    return _VECTOR.search(name) is not None
