"""Layers that run forward again in the backward pass, and tables whose every row is updated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.program.example import STEPS, THREAD, Kernel, run_example
from profkit.program.findings.case import StepFinding
from profkit.program.timeline import HostSpan, Timeline
from profkit.program.triage import triage_timeline

NODE = "autograd::engine::evaluate_function: Node0"
LAYERS = 12
UPDATE = Kernel(
    name="adam_kernel", us=3000.0, op="aten::_foreach_mul_", within="Optimizer.step#Adam.step"
)
FORWARD = tuple(Kernel(name=f"layer{i}", us=200.0, op=f"lib::layer{i}") for i in range(LAYERS))
BACKWARD = tuple(
    Kernel(name=f"back{i}", us=400.0, op=f"lib::back{i}") for i in reversed(range(LAYERS))
)


def run_training(
    forward: Sequence[Kernel], backward: Sequence[Kernel], update: Kernel = UPDATE
) -> Timeline:
    """Return steps that go forward and backward, and update their weights."""
    parts = [*forward, *backward, update]
    timeline = run_example(parts)
    (process,) = timeline.processes
    spans = list(process.spans)
    for number in range(STEPS):
        first = number * len(parts) + len(forward)
        calls = process.calls[first : first + len(backward)]
        spans.append(HostSpan("op", NODE, calls[0].start - 10, calls[-1].end + 10, THREAD))
    spans.sort(key=lambda span: (span.start, -span.end))
    return replace(timeline, processes=[replace(process, spans=spans)])


def find_redundant(timeline: Timeline) -> list[StepFinding]:
    return [found for found in triage_timeline(timeline).findings if found.rule == "redundant"]


def test_layers_that_run_again_are_named_with_what_they_take() -> None:
    again = [*FORWARD[6:], *BACKWARD[:6], *FORWARD[:6], *BACKWARD[6:]]
    (found,) = find_redundant(run_training(FORWARD, again))
    assert "12 of 24 kernels of the backward pass run layers forward again" in found.cause
    assert abs(found.saving.expected - LAYERS * 0.2) < 0.1
    assert found.saving.low == 0.0  # memory may be short


def test_a_backward_pass_that_has_the_kernels_in_its_own_order_runs_nothing_again() -> None:
    assert not find_redundant(run_training(FORWARD, [*BACKWARD, *reversed(FORWARD)]))


def test_a_few_equal_kernels_are_no_layer() -> None:
    assert not find_redundant(run_training(FORWARD, [*BACKWARD, *FORWARD[:4]]))


def train_table(used: int, rows: int = 1_000_000) -> Timeline:
    """Return steps that read some rows of a table, and update all."""
    width = 64
    backward = [
        Kernel(name="clear", us=100.0, op="aten::zero_", sizes=((rows, width),)),
        Kernel(
            name="sum_rows",
            us=10.0,
            op="aten::embedding_dense_backward",
            sizes=((used, width), (used,)),
        ),
        *BACKWARD,
    ]
    timeline = run_training(FORWARD, backward)
    (process,) = timeline.processes
    inner = []
    for span in process.spans:
        if span.name == NODE:
            # One operator clears the gradient and sums into it.
            calls = [call for call in process.calls if span.start <= call.start <= span.end][:2]
            inner.append(replace(span, name="aten::embedding_backward", end=calls[1].end + 5))
    spans = sorted([*process.spans, *inner], key=lambda span: (span.start, -span.end))
    return replace(timeline, processes=[replace(process, spans=spans)])


def test_an_optimizer_that_goes_through_rows_that_were_not_read_is_named() -> None:
    (found,) = find_redundant(train_table(used=8192))
    assert "1,000,000 rows are cleared and updated per step, and at most 8,192" in found.cause
    assert 2.7 <= found.saving.expected <= 3.1


def test_a_table_of_which_much_is_read_has_a_dense_gradient() -> None:
    assert not find_redundant(train_table(used=500_000))


def test_a_table_whose_sizes_are_not_known_is_no_finding() -> None:
    clear = Kernel(name="clear", us=3000.0, op="aten::zero_")
    rows = Kernel(name="rows", us=10.0, op="aten::embedding_dense_backward", sizes=((8, 64), (8,)))
    assert not find_redundant(run_training(FORWARD, [clear, rows, *BACKWARD]))


POSITIONS, WIDTH, WORDS, MASKED = 16_384, 512, 30_000, 1280
SCORES = Kernel(
    name="nvjet_scores",
    us=3000.0,
    op="aten::mm",
    sizes=((POSITIONS, WIDTH), (WIDTH, WORDS)),
    types=("c10::BFloat16", "c10::BFloat16"),
)
CHOSEN = Kernel(
    name="select_rows",
    us=50.0,
    op="aten::index_select",
    sizes=((POSITIONS, WORDS), (), (MASKED, WORDS)),
)
LOSS = Kernel(name="loss", us=50.0, op="aten::_log_softmax", sizes=((MASKED, WORDS),))
ZEROS = Kernel(name="zeros", us=500.0, op="aten::fill_", sizes=((POSITIONS, WORDS),))
GRADIENT = Kernel(
    name="nvjet_gradient", us=2000.0, op="aten::mm", sizes=((POSITIONS, WORDS), (WORDS, WIDTH))
)


def test_rows_that_are_selected_are_all_that_is_used_forward_and_backward() -> None:
    forward = [*FORWARD, SCORES, CHOSEN, LOSS]
    (found,) = find_redundant(run_training(forward, [ZEROS, GRADIENT, *BACKWARD]))
    assert "of 491,520,000 computed values are used" in found.cause
    used = MASKED / POSITIONS
    assert abs(found.saving.expected - 5.5 * (1 - used)) < 0.2


def test_rows_that_are_chosen_by_indices_are_all_that_is_used() -> None:
    """`logits[rows, places]`: of the indices no sizes are recorded."""
    chosen = Kernel(name="index", us=50.0, op="aten::index", sizes=((64, 256, WORDS), ()))
    (found,) = find_redundant(run_training([*FORWARD, SCORES, chosen, LOSS], [ZEROS, *BACKWARD]))
    assert "of 491,520,000 computed values are used" in found.cause


def test_scores_that_a_loss_reads_whole_are_used() -> None:
    whole = Kernel(name="loss", us=50.0, op="aten::_log_softmax", sizes=((POSITIONS, WORDS),))
    forward = [*FORWARD, SCORES, whole]
    assert not find_redundant(run_training(forward, [ZEROS, GRADIENT, *BACKWARD]))


def find_sorts(*after: Kernel) -> list[StepFinding]:
    """Judge a sort, of which no slice was recorded, with what comes after it."""
    sort = Kernel(name="radixSort", us=4000.0, op="aten::sort", sizes=((1024, 120_000),))
    found = triage_timeline(run_example([sort, *after, *FORWARD])).findings
    return [row for row in found if "only the first few are used" in row.cause]


def test_a_sort_of_which_the_first_columns_are_read_next_could_be_topk() -> None:
    (found,) = find_sorts(Kernel(name="hits", us=5.0, op="aten::eq", sizes=((1024, 20), (1024, 1))))
    assert 2.4 <= found.saving.expected <= 3.2


def test_what_an_order_chooses_tells_how_much_of_it_is_read() -> None:
    """`persons[order[:, :50]]`: of indices no sizes are recorded, but of what they choose."""
    chosen = Kernel(name="index", us=6.0, op="aten::index", sizes=((120_000,), ()))
    hits = Kernel(name="hits", us=5.0, op="aten::eq", sizes=((1024, 50), (1024, 1)))
    assert find_sorts(chosen, hits)
    assert not find_sorts(chosen)


def test_a_sort_that_is_read_whole_is_needed() -> None:
    first = Kernel(name="hits", us=5.0, op="aten::eq", sizes=((1024, 20), (1024, 1)))
    whole = Kernel(name="sums", us=400.0, op="aten::cumsum", sizes=((1024, 120_000),))
    assert not find_sorts(first, whole)
    assert not find_sorts(Kernel(name="hits", us=5.0, op="aten::eq", sizes=((512, 20),)))
