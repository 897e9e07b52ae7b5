"""The rules of a step: one for each category that triage says first, found in this order in explain.

What can be found is in findings/, one function for each form of a rule; ORDER there says in which order
they are asked. A file there that has RULES of its own is found by being there.
"""

from __future__ import annotations

from profkit.program.example import BusyHost, Copy, Kernel, View, Wait
from profkit.program.findings import (
    ADDED_RULES,
    MODULES,
    StepRule,
    fusion,
    host,
    kernels,
    loops,
    moves,
    optimizers,
    products,
    redundant,
)
from profkit.program.findings.case import RuleTexts

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_ffma_execute_kernel__5x_cublas"
_LOOP = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}, "
    "std::array<char*, {}ul> >(int)"
)
MULTIPLY = _LOOP.format("BinaryFunctor<float, float, float, at::native::MulFunctor<float> >", 3)
EXPONENTIAL = _LOOP.format("exp_kernel_cuda", 2)
ADDCDIV = _LOOP.format("addcdiv_cuda_kernel", 4)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*)"
)
ADD_INTO = "void at::native::indexFuncLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)"
CONVOLUTION = (
    "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_cudnn"
)
TO_CHANNELS_LAST = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(int)"
)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

DIRECT_COPY = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda, "
    "std::array<char*, 2ul> >(int)"
)
PRODUCT = Kernel(name=GEMM, us=200.0)
# What the host launches far faster than the GPU works, on the tensor cores, without a wait.
LARGE_PRODUCTS = (PRODUCT,) * 10
FUSED_ATTENTION = Kernel(
    name="pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4> >", us=200.0
)
SCORES = Kernel(name=GEMM, us=150.0, op="aten::bmm", sizes=((64, 2048, 64), (64, 64, 2048)))
WEIGHTS = Kernel(name=SOFTMAX, us=400.0, op="aten::softmax", sizes=((4, 16, 2048, 2048),))
VALUES = Kernel(name=GEMM, us=150.0, op="aten::bmm", sizes=((64, 2048, 2048), (64, 2048, 64)))
UPDATE = Kernel(name=ADDCDIV, us=3.0, within="Optimizer.step#AdamW.step")
UPDATE_ALL = Kernel(
    name="void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4> >()",
    us=300.0,
    within="Optimizer.step#AdamW.step",
)


SMALL = Kernel(name=MULTIPLY, us=2.0)
SMALL_KERNELS = (SMALL,) * 100
AUGMENT = BusyHost(us=6000.0, function="train.py(42): augment")
READ_VALUE = Wait(op="aten::item")
PAGEABLE = Copy(bytes=40_000_000, us=5000.0)
PAGEABLE_BACK = Copy(bytes=40_000_000, us=10_000.0, direction="DtoH")
PINNED = Copy(bytes=1_000_000, us=19.0, pageable=False)
REDUCE = Kernel(name=ALL_REDUCE, us=800.0, stream=20, after=7)
AFTER_REDUCE = Kernel(name=GEMM, us=50.0, after=20)
SCALE = Kernel(name=MULTIPLY, us=250.0, op="aten::div")
LAYER = (PRODUCT, SCORES, SCALE, WEIGHTS, VALUES)
FUSED_LAYER = (PRODUCT, FUSED_ATTENTION)
FLOAT_PRODUCT = Kernel(name=SGEMM, us=600.0)
FLOAT_PRODUCTS = (FLOAT_PRODUCT,) * 8
LONG_MULTIPLY = Kernel(name=MULTIPLY, us=60.0)
LONG_EXPONENTIAL = Kernel(name=EXPONENTIAL, us=40.0)
ACTIVATION = Kernel(name=MULTIPLY, us=20.0)
CONVERT = Kernel(name=TO_CHANNELS_LAST, us=60.0)
CONVOLVE = Kernel(name=CONVOLUTION, us=150.0)
ADD_ROWS = Kernel(
    name=ADD_INTO,
    us=900.0,
    op="aten::index_add_",
    sizes=((64, 256), (), (262144,), (262144, 256)),
    types=("float", "Scalar", "long int", "float"),
    blocks=1056,
)
FEW_BLOCKS = Kernel(name="my_softmax", us=1500.0, blocks=16)
SLOW_SOFTMAX = Kernel(
    name=SOFTMAX, us=1500.0, op="aten::softmax", sizes=((8192, 8192),), types=("float",)
)
HALVES = ("c10::BFloat16", "c10::BFloat16")
LOGITS = Kernel(
    name=GEMM, us=900.0, op="aten::mm", sizes=((8192, 1024), (1024, 32000)), types=HALVES
)
LAST_POSITION = View(op="aten::select", sizes=((4, 2048, 32000),))
CHOOSE = Kernel(name=SOFTMAX, us=10.0, op="aten::_softmax", sizes=((4, 32000),), types=HALVES)
LOSS = Kernel(name=SOFTMAX, us=400.0, op="aten::_log_softmax", sizes=((8192, 32000),), types=HALVES)
ONE_HEAD = Kernel(
    name=GEMM, us=20.0, op="aten::mm", sizes=((128, 512), (512, 64)), types=HALVES, blocks=4
)
# Its result may be what the next one reads.
ONE_POWER = Kernel(
    name=GEMM, us=20.0, op="aten::mm", sizes=((512, 512), (512, 512)), types=HALVES, blocks=16
)
COPY_AGAIN = Kernel(
    name=DIRECT_COPY, us=120.0, op="aten::copy_", sizes=((8192, 8192),) * 2, types=HALVES
)
ENCODE = Kernel(name=GEMM, us=200.0, op="aten::addmm", needless="same")  # a prompt, in each step
NOT_COUNTED = Kernel(name="advance_kernel", us=1500.0)


HOST_LAUNCH: StepRule = StepRule(
    id="host-launch",
    title="the GPU waits for the host to launch its next kernel",
    meaning=(
        "The GPU is idle, and it waits for a launch: the time between the end of a kernel and the "
        "launch of the next one is summed, without waits and copies. A long pause between two "
        "launches, in which the host does other work, is a separate finding."
    ),
    advice=(
        "Launch less often: capture the step in a CUDA graph, compile it, use larger batches. "
        "Where the host does other work, do that in advance in another process."
    ),
    checks=(host.find_slow_launches, host.find_long_host_work),
    fix=(
        "The replay takes the host's time for launches, or its pauses, down to what a graph or "
        "work done ahead leaves: 3 % of launches is expected, 35 % at worst."
    ),
    fires=(SMALL_KERNELS, (AUGMENT, *LARGE_PRODUCTS)),
    clear=(LARGE_PRODUCTS,),
)
HOST_SYNC: StepRule = StepRule(
    id="host-sync",
    title="the host waits for the GPU, and then the GPU waits for the host",
    meaning=(
        "Calls of the host that return only when the GPU has finished something (that read a value, "
        "synchronize, or allocate memory), with their operators and lines; and how long the GPU is "
        "idle between such a call and the next launch."
    ),
    advice=(
        "Keep the value on the GPU, or read it one step later; use fixed sizes; reuse buffers "
        "instead of allocating in every step."
    ),
    checks=(host.find_host_waits, host.find_repeated_allocations),
    fix=(
        "The estimate replays the step without the waits; kernels that only compute what is read may "
        "go, too."
    ),
    fires=((PRODUCT, READ_VALUE) * 10,),
    clear=(LARGE_PRODUCTS,),
)
COPY: StepRule = StepRule(
    id="copy",
    title="nothing computes while data moves between the host and the GPU",
    meaning=(
        "Copies to and from the host, with their bytes, rate and kind of memory; how long the "
        "GPU does nothing but copy; and pages of unified memory that move while a kernel runs."
    ),
    advice=(
        "Keep data that does not change on the GPU; pin the host memory and copy with "
        "non_blocking=True on a separate stream, one step ahead; merge many small copies into one."
    ),
    checks=(moves.find_exposed_copies, moves.find_small_copies, moves.find_waits_for_pages),
    fix=(
        "The replay gives each copy the rate of pinned memory and a separate stream; data that "
        "may stay on the GPU is not copied at all."
    ),
    fires=((PAGEABLE, *LARGE_PRODUCTS), (*LARGE_PRODUCTS, PAGEABLE_BACK)),
    clear=(LARGE_PRODUCTS, (PINNED, *LARGE_PRODUCTS)),
)
COLLECTIVE: StepRule = StepRule(
    id="collective",
    title="nothing computes while ranks exchange data",
    meaning=(
        "Collectives are recognized by the names of their kernels (NCCL and those of inference "
        "servers); only the time in which nothing else runs counts. With a recording of every "
        "rank, waiting for another rank is distinguished from transferring."
    ),
    advice=(
        "Start collectives before their result is needed, in buckets as gradients become ready; "
        "give the ranks equal work."
    ),
    checks=(moves.find_exposed_collectives,),
    fix=(
        "The replay puts collectives on a separate stream; at worst all of their time remains "
        "exposed."
    ),
    fires=((*LARGE_PRODUCTS[:5], REDUCE, AFTER_REDUCE),),
    clear=(LARGE_PRODUCTS,),
)
OPTIMIZER: StepRule = StepRule(
    id="optimizer",
    title="the optimizer updates its parameters one by one",
    meaning=(
        "Kernels inside the optimizer's range, or kernels that only an optimizer runs (addcdiv, "
        "square roots of many sizes): many that each update one parameter, or each do one "
        "operation for all."
    ),
    advice="Use an optimizer with fused=True, or compile its step.",
    checks=(optimizers.find_unfused_optimizer,),
    fix="The replay replaces all of them by one kernel, which moves the bytes that Adam needs.",
    fires=((*LARGE_PRODUCTS, *(UPDATE,) * 360),),
    clear=((*LARGE_PRODUCTS, UPDATE_ALL),),
)
ATTENTION_UNFUSED: StepRule = StepRule(
    id="attention-unfused",
    title="attention writes its scores to memory and reads them again",
    meaning=(
        "Two products with a softmax between them, whose sizes (or times, where no sizes were "
        "recorded) are those of scores and values, and the kernels between them."
    ),
    advice="Call torch.nn.functional.scaled_dot_product_attention, or another fused attention.",
    checks=(fusion.find_unfused_attention,),
    fix=(
        "The replay leaves half of the products' time, since they no longer write and read the "
        "scores, and none of the kernels between them."
    ),
    fires=(LAYER * 4,),
    clear=(FUSED_LAYER * 4, (*LARGE_PRODUCTS, WEIGHTS)),
)
FP32_MATMUL: StepRule = StepRule(
    id="fp32-matmul",
    title="products run in float32 on the FP32 pipes, or in float64",
    meaning=(
        "Products, convolutions and attention in float32 that use the FP32 pipes, by their kernels' "
        "names or by the types of their operators, on a GPU with tensor cores for them; and in "
        "float64, also on tensor cores, which multiply that more slowly than TF32 or half precision."
    ),
    advice=(
        "Allow TF32 (torch.set_float32_matmul_precision('high')), or autocast to bfloat16, where "
        "the results tolerate it."
    ),
    checks=(products.find_fp32_products, products.find_float64_work),
    fix=(
        "The replay speeds each product up by the ratio in the GPU table: on an H200 TF32 is 5.5 "
        "times as fast as float32."
    ),
    fires=(FLOAT_PRODUCTS,),
    clear=(LARGE_PRODUCTS,),
)
ELEMENTWISE_CHAIN: StepRule = StepRule(
    id="elementwise-chain",
    title="elementwise kernels run back to back where one kernel would read and write less",
    meaning=(
        "Runs of at least three elementwise kernels on one stream, all in the forward or all in the "
        "backward pass; norms, softmaxes, reductions and concatenations between them count. Two equal "
        "copies in a row are of different tensors, and end a run. Also tensors that are cast again at "
        "each use, and kernels in float64."
    ),
    advice="Compile the function that launches them, or write one kernel; cast each tensor once.",
    checks=(
        fusion.find_repeated_autocasts,
        fusion.find_unfused_elementwise,
        fusion.find_repeated_casts,
        fusion.find_small_kernels_in_graphs,
    ),
    fix=(
        "The replay replaces each run by one kernel, which reads the run's inputs and writes its "
        "result; a repeated cast of the same tensor disappears."
    ),
    fires=((PRODUCT, PRODUCT, *(LONG_MULTIPLY, LONG_EXPONENTIAL) * 6),),
    clear=(LARGE_PRODUCTS, (PRODUCT, ACTIVATION) * 8),
)
LAYOUT: StepRule = StepRule(
    id="layout",
    title="kernels only change the layout of tensors, or concatenate them",
    meaning=(
        "Transposing copies, conversions between channels first and last, and concatenations, by "
        "operator and by the names of their kernels; gradients that autograd concatenates do not count. "
        "Where sizes are recorded, a growing cache is recognized by a concatenation whose result is the "
        "largest part of the next step's."
    ),
    advice=(
        "Keep tensors in the layout that the next kernel reads (memory_format=channels_last "
        "around convolutions); write parts into their place instead of concatenating them."
    ),
    checks=(moves.find_growing_caches, moves.find_layout_copies, moves.find_concatenations),
    fix=(
        "The replay removes copies that the program or a library asks for; a copy that an operator "
        "makes for itself is not a finding, and where no operator is known it may have to stay."
    ),
    fires=((CONVERT, CONVOLVE) * 6,),
    clear=((CONVOLVE,) * 12,),
)
ATOMICS: StepRule = StepRule(
    id="atomics",
    title="many threads add into the same few locations, and wait for each other",
    meaning=(
        "Kernels that add by index or scatter, at least twice as long as the bytes of their "
        "operator need; where the sizes are not known, those that take a fifth of the step."
    ),
    advice="Sort or group rows by target and sum each group; sum in shared memory first.",
    checks=(kernels.find_contended_atomics,),
    fix="The replay leaves the minimum for the bytes of the operator.",
    fires=((PRODUCT, PRODUCT, ADD_ROWS),),
    clear=(LARGE_PRODUCTS,),
)
KERNEL: StepRule = StepRule(
    id="kernel",
    title=(
        "one kernel is the problem: too few blocks, an unfortunate size, or far from the minimum "
        "for its bytes"
    ),
    meaning=(
        "A kernel that takes a good part of the step and is far from its floor: the bytes and "
        "operations of its operator at the rates that the GPU reaches, its grid against the "
        "number of multiprocessors, or counters that were taken of it."
    ),
    advice=(
        "Pad odd sizes to a multiple of 64, split the work into more blocks, use topk instead of "
        "a sort; otherwise profile the kernel (profkit profile) and read its diagnosis."
    ),
    checks=(
        products.find_odd_sized_products,
        products.find_odd_sized_products_by_name,
        products.find_products_with_wasted_tiles,
        kernels.find_sorts_for_top_values,
        kernels.find_small_grid,
        kernels.find_slow_kernels,
    ),
    fix="The replay gives the kernel the time of its floor.",
    fires=((PRODUCT, PRODUCT, FEW_BLOCKS), (PRODUCT, PRODUCT, SLOW_SOFTMAX)),
    clear=(LARGE_PRODUCTS,),
)
REDUNDANT: StepRule = StepRule(
    id="redundant",
    title="work is thrown away, repeated in every step, or launched piece by piece",
    meaning=(
        "By the tensors of operators, which a live recording has: work that reads nothing that changes "
        "from step to step, and gradients that nothing reads. By lines, modules or operators: layers "
        "that the backward pass runs forward again. By sizes: embedding tables whose rows are all "
        "updated where an eighth or less was read; a product whose result "
        "is sliced to an eighth or less before anything reads it whole, with the elementwise kernels "
        "that carry it there; copies within the GPU that the program asks for, between tensors of the "
        "same size and type; four or more passes, each over a few rows more than the one before; and "
        "eight or more equal iterations of a loop (four for modules in a list) that do not depend on "
        "each other; a recurrent cell that is called for eight or more time steps."
    ),
    advice=(
        "Compute once what is the same in each step; keep the results of layers where the memory is "
        "there; make gradients of tables sparse; slice first and compute only the rest; read data "
        "in place instead of copying it; launch equal operators of a loop as one batch."
    ),
    checks=(
        redundant.find_needless_work,
        redundant.find_layers_run_again,
        optimizers.find_updates_of_unread_rows,
        redundant.find_recomputed_rows,
        redundant.find_sliced_products,
        redundant.find_copies_on_device,
        loops.find_cells_in_loops,
        loops.find_batchable_launches,
    ),
    fix=(
        "The replay leaves out what is the same in each step and layers that run again; it keeps the "
        "share of rows that were read; it keeps the used share of a product "
        "(four times that at worst), and nothing of a copy (half at worst); equal launches become "
        "one, whose blocks fill the GPU, with the bytes and operations of all (at worst only launches "
        "are saved)."
    ),
    fires=(
        (*LARGE_PRODUCTS, LOGITS, LAST_POSITION, CHOOSE),
        (*LARGE_PRODUCTS, *(COPY_AGAIN,) * 6),
        (*LARGE_PRODUCTS, *(ONE_HEAD,) * 64),
        (*LARGE_PRODUCTS, *(ENCODE,) * 4),
    ),
    clear=(
        (ENCODE,) * 10,
        (*LARGE_PRODUCTS, LOGITS, LOSS),
        (*LARGE_PRODUCTS, LOGITS, LAST_POSITION, LOSS),
        (*LARGE_PRODUCTS, *(ONE_POWER,) * 64),
    ),
)
HEALTHY: StepRule = StepRule(
    id="healthy",
    title="the GPU computes nearly all the time, close to the minimum of its kernels",
    meaning=(
        "The GPU computes in at least 85 % of the step, half of that or more in kernels that are "
        "known to be near their floor (copies never are), and no known fix is expected to save 5 %, or "
        "none surely what two runs of a program differ by."
    ),
    advice="Compute less (a smaller model, lower precision), or look into the kernels.",
    checks=(),
    fix="Nothing is replayed.",
    fires=(LARGE_PRODUCTS,),
    clear=(SMALL_KERNELS, FLOAT_PRODUCTS),
)
UNKNOWN: StepRule = StepRule(
    id="unknown",
    title="nothing was found, and too little is known to call the step healthy",
    meaning=(
        "The GPU is idle for a reason that was not recorded, most of its time goes to kernels "
        "whose minimum time is unknown, or the replay of the unchanged step misses the recording "
        "by more than 5 %. The largest unknown is named."
    ),
    advice="Record the missing part: all streams and ranks, graph nodes, operators, or counters.",
    checks=(),
    fix="Nothing is replayed.",
    fires=((NOT_COUNTED, PRODUCT),),
    clear=(LARGE_PRODUCTS,),
)
RULES = (
    HOST_LAUNCH,
    HOST_SYNC,
    COPY,
    COLLECTIVE,
    OPTIMIZER,
    ATTENTION_UNFUSED,
    FP32_MATMUL,
    ELEMENTWISE_CHAIN,
    LAYOUT,
    ATOMICS,
    KERNEL,
    REDUNDANT,
    *ADDED_RULES,
    HEALTHY,
    UNKNOWN,
)
BY_ID = {rule.id: rule for rule in RULES}


def list_rule_texts(rule: str) -> list[RuleTexts]:
    """Return the words of each form of a rule."""
    found = []
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, RuleTexts) and value.rule == rule:
                found.append(value)
    return found
