"""A kernel's operator and name  ->  what kind of work it is, and in which precision it multiplies.

What a known library's kernel does, its name says. Of any other kernel the operator that launched it
says it; without one the name says at most what it is about, by whole words: what rests on that alone
is not said of it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.units import KernelName, OperatorName, TextOrEmpty


# First match wins: a kind, and words as patterns. Of _HEADS only what comes before a name's template
# arguments counts.
_HEADS = """
optimizer multi_tensor_apply_kernel FusedAdam fused_adam fused_sgd
elementwise elementwise_kernel vectorized_add _elementwise
reduce ::reduce_kernel ^reduce_kernel
"""
_NAMES = r"""
elementwise batch_norm_transform_input bn_fw_inf
attention flash_ flash:: fmha sdpa mem_eff attention attn fusion::compute_dot_do_o fusion::convert_dq
softmax softmax
norm layer_?norm batch_?norm group_?norm rms_?norm bn_fw bn_bw RowwiseMoments GammaBeta
norm ComputeInternalGradients
layout n(chw|hwc)(to|2)n(chw|hwc) tensorTransform ^wrapped_transpose
conv implicit_?gemm implicit_convolve fprop dgrad wgrad convolve conv[123]d winograd depthwise scudnn
conv xmma__5x_cudnn
sort sort topk DeviceScan tensor_kernel_scan DeviceSelect DeviceCompact unique
scatter scatter index_?add indexFunc index_?put.*accum indexing_backward
scatter embedding_backward_feature grid_sampler_\dd_backward upsample_\w*linear\w*backward
gemm gemm nvjet cutlass cublas wgmma splitkreduce gemv matmul s16816 s1688 ^Cijk_
gather gather index_?select index_elementwise embedding index_kernel
random dropout philox distribution random
concat CatArray
reduce at::native.*reduce cub::.*reduce DeviceReduce
elementwise ^wrapped_
fused (^|_)fusion(_\d+)?$
"""


def _parse_pattern_table(text: str, flags: int = 0) -> list[tuple[str, re.Pattern[str]]]:
    rows = []
    for line in text.strip().splitlines():
        rows.append(line.split())
    return [(kind, re.compile("|".join(words), flags)) for kind, *words in rows]


_BY_HEAD = _parse_pattern_table(_HEADS)
_BY_NAME = _parse_pattern_table(_NAMES, re.IGNORECASE)
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
# cuDNN's own engines and its Winograd transforms have the type of their tensors as an argument.
_FP32 = re.compile(
    r"(?i)simt|(?<![a-z])sgemm|(?<![a-z])ffma|f32f32_f32f32_f32|scudnn|"
    r"[dw]grad\w*_engine<float\b|winograd\w*<float, float>"
)
_TENSOR = re.compile(r"(?i)tensorop|tf32|s1688|s16816|f16|hmma|wgmma|nvjet|h884|i8816|fp8|e4m3")
_TF32 = re.compile(r"(?i)tf32|s1688(?!\d)|s1688gemm(?!_f16)")
_FP64 = re.compile(r"(?i)(?<![a-z\d])(dgemm|(f64)+(?![a-z\d])|d884)")
# Of a name before its arguments: namespaces of libraries, and what they call kernels outside of any.
_LIBRARY = re.compile(
    r"(?i)(^|::)(at|c10|torch|at_cuda_detail|cub|thrust|cutlass|cublas\w*|cudnn\w*|cask\w*|xmma\w*|"
    r"cufft|cusparse|cusolver|flash|pytorch_flash)::|"
    r"^(nvjet|sm\d\d_|ampere_|volta_|turing_|maxwell_|cudnn|cutlass|cublas|nccl|gemvn?s|gemv2|dot_kernel|"
    r"splitk|fmha|flash_(fwd|bwd)|cask|fft|regular_fft|vector_fft|mem(cpy|set)|s884|h884|[sdh]gemm_\d|"
    r"softmax_warp_|cunn_|[dw]grad\w*_engine$|indexing_backward_kernel|convolve_(common|sgemm)|n(chw|hwc)\w*Kernel|tensorTransform|multi_tensor_apply|"
    r"elementwise_kernel_with_index|Cijk_|"
    r"triton_(softmax|gemm)_|wrapped_[a-z]+(_\d+)?$|(loop|input|gemm)_(\w+_)?fusion|fusion)"
)
_VECTOR = re.compile(r"(?i)gemv|gemvx|dot_kernel|splitkreduce|split_k_kernel")
_RETURNS = re.compile(r"^(void|std::enable_if<.*?>::type) ")
# A name into words: HTTPServer2 is http, server and 2.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# Between GPUs. Words of libraries that do nothing else.
_BETWEEN_GPUS = frozenset(
    "nccl rccl nvshmem nvshmemi rocshmem mscclpp multimem userbuffers kuserbuffers mnnvl "
    "quickreduce".split()
)
# What is exchanged, as words that follow each other, or as one.
_EXCHANGES = (
    "all reduce",
    "all gather",
    "reduce scatter",
    "all to all",
    "cross device reduce",
)
# No block and no cluster does these with itself: the words alone say that it is between GPUs.
_ONLY_BETWEEN = (
    "all gather",
    "reduce scatter",
    "all to all",
    "all 2 all",
    "a 2 a",
    "cross device reduce",
)
# A block or a cluster can reduce too: these say that it is done between GPUs. By one or two passes
# over what peers wrote (Lamport's flags), through symmetric memory, or fused with what follows.
_ACROSS = frozenset(
    "oneshot twoshot lamport symm symmetric peer p2p fusion nvls vllm sglang trtllm tensorrt "
    "flashinfer aiter".split()
)
_EXPERT_PARALLEL = frozenset("dispatch combine notify barrier".split())
_OF_EXPERTS = frozenset("ep pplx".split())  # libraries that send tokens to experts: DeepEP, pplx

# What the words of a name of nobody's are about.
_PRODUCTS = frozenset("gemm gemms sgemm hgemm dgemm igemm gemv gemvx matmul bmm mm marlin".split())
_NORMS = frozenset("norm layernorm rmsnorm batchnorm groupnorm".split())
_ATTENDS = frozenset("attention attn fmha sdpa mha mla".split())
_ATTENDS_HOW = frozenset("fwd bwd fprop decode prefill splitkv varlen".split())
_PAGED = frozenset(("paged", "ragged"))
# What is done to attention's operands and results, before and after it.
_AROUND_ATTENTION = frozenset(
    "reshape concat copy convert quant quantize rope rotary merge store write gather metadata "
    "prepare preprocess".split()
)

# By operator: what it launches besides (casts, sums of parts, sets) has names of libraries.
_OPERATORS = {
    "gemm": (
        "mm bmm addmm baddbmm addbmm addmv mv dot vdot _scaled_mm _scaled_grouped_mm _grouped_mm "
        "_int_mm _addmm_activation linear matmul einsum _weight_int4pack_mm _weight_int8pack_mm"
    ),
    "conv": (
        "convolution _convolution cudnn_convolution cudnn_convolution_transpose miopen_convolution "
        "miopen_convolution_transpose miopen_depthwise_convolution convolution_backward "
        "_slow_conv2d_forward _slow_conv2d_backward _conv_depthwise2d conv_depthwise3d "
        "cudnn_convolution_relu cudnn_convolution_add_relu"
    ),
    "attention": (
        "_flash_attention_forward _flash_attention_backward _efficient_attention_forward "
        "_efficient_attention_backward _cudnn_attention_forward _cudnn_attention_backward "
        "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_cudnn_attention"
    ),
    "softmax": "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data",
    "norm": (
        "native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward "
        "native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward "
        "miopen_batch_norm miopen_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward"
    ),
}
_ATEN_PRODUCTS = frozenset("mm bmm addmm baddbmm".split())  # as Inductor names what it has fused
_BY_OPERATOR = {
    f"aten::{name}": kind for kind, names in _OPERATORS.items() for name in names.split()
}


def classify_by_name_then_operator(name: KernelName, op: OperatorName) -> str:
    """Return what a kernel does: by its name where a known library's, else by the operator that made it.

    Args:
        name: The kernel's, readable.
        op: The innermost recorded operator; empty where none was recorded.
    """
    by_name = classify_kernel(name)
    if not op or is_library_kernel(name) or by_name == "collective":
        return by_name
    by_operator = _classify_operator(op)
    if by_operator == "attention" and not _AROUND_ATTENTION.isdisjoint(split_kernel_name(name)):
        return by_name  # an operator of a server stores keys and values besides
    return by_operator or by_name


@lru_cache(maxsize=65536)
def _classify_operator(op: str) -> TextOrEmpty:
    """Return what an operator does with its tensors; empty where it is not known."""
    known = _BY_OPERATOR.get(op)
    if known or op.startswith(("aten::", "autograd::")):
        return known or ""
    words = split_kernel_name(op)
    if _has_phrase(words, _EXCHANGES):
        return "collective"
    return _find_subject_of_words(words)


@lru_cache(maxsize=65536)
def classify_kernel(name: KernelName) -> str:
    """Return what a kernel does, by its name: a word of _NAMES, collective, convert, other, unknown."""
    words = split_kernel_name(name)
    if compiled := _INDUCTOR.match(name):
        kinds, otherwise = _TEMPLATES[compiled[1]]
        named = (k for k, pattern in _BY_NAME if k in kinds and pattern.search(compiled["ops"]))
        is_product = "gemm" in kinds and not _ATEN_PRODUCTS.isdisjoint(words)
        return next(named, "gemm" if is_product else otherwise)
    if _is_communication_by_words(words):
        return "collective"
    if not is_library_kernel(name):
        return _find_subject_of_words(words) or "unknown"
    head = name.split("<", 1)[0]
    for kind, pattern in _BY_HEAD:
        if pattern.search(head):
            if kind == "elementwise":
                return _classify_elementwise(name)
            return kind
    return next((kind for kind, pattern in _BY_NAME if pattern.search(name)), "other")


@lru_cache(maxsize=65536)
def split_kernel_name(name: KernelName) -> tuple[str, ...]:
    """Return the words of a kernel's name before its arguments: my_RowSum<4>(int) is my, row and sum."""
    head = _RETURNS.sub("", name).replace("(anonymous namespace)", "")
    head = re.split(r"[<(]", head, maxsplit=1)[0]
    return tuple(word.lower() for word in _WORD.findall(head))


def _is_communication_by_words(words: tuple[str, ...]) -> bool:
    """Return whether a kernel exchanges data with other GPUs, by the words of its name."""
    if not _BETWEEN_GPUS.isdisjoint(words):
        return True
    if not _OF_EXPERTS.isdisjoint(words) and not _EXPERT_PARALLEL.isdisjoint(words):
        return "layout" not in words
    if _has_phrase(words, _ONLY_BETWEEN):
        return True
    joined = "_".join(words)
    across = not _ACROSS.isdisjoint(words) or "one_shot" in joined or "two_shot" in joined
    return across and _has_phrase(words, _EXCHANGES)


def _has_phrase(words: tuple[str, ...], phrases: tuple[str, ...]) -> bool:
    """Return whether words hold a phrase: its words one after another, or written as one."""
    text = f" {' '.join(words)} "
    for phrase in phrases:
        # AlltoAll is the words allto and all: any of the blanks may be missing.
        pattern = phrase.replace(" ", " ?")
        if re.search(f" {pattern} ", text):
            return True
    return False


def _find_subject_of_words(words: tuple[str, ...]) -> TextOrEmpty:
    """Return what words say that something is about; empty where they say nothing."""
    named = frozenset(words)
    around = not _AROUND_ATTENTION.isdisjoint(named)
    attends = not _ATTENDS.isdisjoint(named)
    flash = "flash" in named and not _ATTENDS_HOW.isdisjoint(named)
    paged = not _PAGED.isdisjoint(named) and not _ATTENDS_HOW.isdisjoint(named)
    if (attends or flash or paged) and not around:
        return "attention"
    if "softmax" in named or _has_phrase(words, ("soft max",)):
        return "softmax"
    if not _NORMS.isdisjoint(named):
        return "norm"
    if not _PRODUCTS.isdisjoint(named) or _has_phrase(words, ("fused moe",)):
        return "gemm"
    return ""


def _classify_elementwise(name: KernelName) -> str:
    """A copy of a tensor into another type or order is a conversion, not arithmetic."""
    if re.search(r"direct_copy|copy_kernel", name):
        return "convert"
    # The same kernel gathers, scatters and sums: by its functor. Opaque types are moved, never added.
    if re.search(r"(?i)index_put|scatter", name) and not re.search(
        r"TensorAssign|OpaqueType", name
    ):
        return "scatter"
    if re.search(r"(?i)index_|scatter|gather", name):
        return "gather"
    return "elementwise"


@lru_cache(maxsize=65536)
def find_product_precision(name: KernelName) -> str:
    """Return the precision of a gemm or conv: fp32 (off the tensor cores), tf32, fp64, half, unknown."""
    if not is_library_kernel(name):
        return "unknown"
    if _FP64.search(name):
        return "fp64"
    if _FP32.search(name) and not re.search(r"(?i)tensorop|tf32|s1688|s16816", name):
        return "fp32"
    if _TF32.search(name) and not re.search(r"(?i)s1688gemm_(f16|bf16)", name):
        return "tf32"
    if _TENSOR.search(name):
        return "half"
    return "unknown"


def is_inductor_kernel(name: KernelName) -> bool:
    """Return whether Inductor wrote a kernel: what it could fuse is fused."""
    return _INDUCTOR.match(name) is not None


@lru_cache(maxsize=65536)
def is_library_kernel(name: KernelName) -> bool:
    """Return whether a known library names its kernels so: then the name tells what it does."""
    head = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    head = re.split(r"[<(]", head, maxsplit=1)[0]
    return is_inductor_kernel(name) or _LIBRARY.search(head) is not None


def is_memory_bound_product(name: KernelName) -> bool:
    """Return whether it is a matrix times a vector, or sums partial products: bound by memory."""
    return _VECTOR.search(name) is not None
