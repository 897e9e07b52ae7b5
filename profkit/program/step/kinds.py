"""A kernel's name  ->  what kind of work it is, and in which precision it multiplies.

Names are all that a timeline has. Libraries name their kernels by what they do; what nobody knows
is `own`: the user's.
"""

from __future__ import annotations

import re
from functools import lru_cache

# First match wins, words as patterns. Of _HEADS only the name before its template arguments counts.
_HEADS: tuple[tuple[str, str], ...] = (
    ("optimizer", r"multi_tensor_apply_kernel|FusedAdam|fused_adam|fused_sgd"),
    ("elementwise", r"elementwise_kernel|vectorized_add|_elementwise"),
    ("reduce", r"::reduce_kernel|^reduce_kernel"),
)
_NAMES: tuple[tuple[str, str], ...] = (
    ("collective", "nccl rccl nvshmem cross_device_reduce all_?reduce all_?gather"),
    (
        "attention",
        "flash fmha sdpa mem_eff attention attn fusion::compute_dot_do_o fusion::convert_dq",
    ),
    ("softmax", "softmax"),
    (
        "norm",
        "layer_?norm batch_?norm group_?norm rms_?norm bn_fw bn_bw RowwiseMoments GammaBeta "
        "ComputeInternalGradients",
    ),
    ("layout", "nchwtonhwc nhwctonchw nchw2nhwc nhwc2nchw transpose permute tensorTransform"),
    (
        "conv",
        "implicit_gemm implicit_convolve fprop dgrad wgrad convolve conv[123]d winograd depthwise "
        "xmma__5x_cudnn",
    ),
    (
        "scatter",
        "scatter index_?add indexFunc index_?put.*accum indexing_backward embedding.*backward "
        "embedding.*grad histogram bincount atomic segment_?reduce grid_sampler_\\dd_backward "
        "upsample_\\w*linear\\w*backward",
    ),
    ("gemm", "gemm nvjet cutlass cublas wgmma splitkreduce gemv matmul s16816 s1688"),
    ("gather", "gather index_?select index_elementwise embedding index_kernel"),
    ("sort", "sort topk radix scan DeviceSelect unique"),
    ("random", "dropout philox distribution random"),
    ("concat", "CatArray"),
    ("reduce", "at::native.*reduce cub::.*reduce DeviceReduce"),
    ("elementwise", "^triton_poi_ ^wrapped_"),
    ("fused", r"^triton_(red|per|tem|mm|for)_ (^|_)fusion(_\d+)?$"),
    ("other", "at:: cub:: thrust:: cudnn cask cufft cusparse cusolver torch"),
)
_PATTERNS = [(kind, re.compile("|".join(words.split()), re.IGNORECASE)) for kind, words in _NAMES]
_FP32 = re.compile(r"(?i)simt|(?<![hd])sgemm|ffma|f32f32_f32f32_f32|convolve_sgemm|scudnn")
_TENSOR = re.compile(
    r"(?i)tensorop|tf32|s1688|s16816|bf16|f16|hmma|wgmma|nvjet|h884|i8816|fp8|e4m3"
)
_TF32 = re.compile(r"(?i)tf32|s1688(?!\d)|s1688gemm(?!_f16)")
_FP64 = re.compile(r"(?i)dgemm|f64|d884")
_LIBRARY = re.compile(
    r"(?i)^(void )?(nvjet|sm\d\d_|ampere_|volta_|turing_|maxwell_|cudnn|cutlass|cublas|triton_|nccl|"
    r"gemm|gemv|dot_kernel|splitk|fmha|flash|cask|cub|thrust|fft|regular_fft|vector_fft|mem(cpy|set)|"
    r"s884|h884|dgemm|sgemm|hgemm)|fusion|^(loop|input|wrapped)_"
)
_VECTOR = re.compile(r"(?i)gemv|gemvx|dot_kernel|splitkreduce|split_k_kernel")


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """What a kernel does: a word of _NAMES, convert, or own where nobody knows it: the user's."""
    head = name.split("<", 1)[0]
    for kind, pattern in _HEADS:
        if re.search(pattern, head):
            return _elementwise(name) if kind == "elementwise" else kind
    return next((kind for kind, pattern in _PATTERNS if pattern.search(name)), "own")


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
    if _FP64.search(name):
        return "fp64"
    if _FP32.search(name) and not re.search(r"(?i)tensorop|tf32|s1688|s16816", name):
        return "fp32"
    if _TF32.search(name) and not re.search(r"(?i)s1688gemm_(f16|bf16)", name):
        return "tf32"
    return "half" if _TENSOR.search(name) else "unknown"


@lru_cache(maxsize=65536)
def is_users(name: str) -> bool:
    """Whether no library that is known names its kernels like this: the user's own, CUDA or Triton."""
    return "::" not in name.split("(", 1)[0] and _LIBRARY.search(name) is None


def is_vector_product(name: str) -> bool:
    """A matrix times a vector, or the sum of partial products: bound by memory, not by pipes."""
    return _VECTOR.search(name) is not None
