"""Where kernels come from: lines, functions and modules, from what the recorder writes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.program.document import make_triage_document
from profkit.program.readers import injected, read_timeline, store
from profkit.program.readers.frames import (
    GraphOrigin,
    PythonFrame,
    PythonStack,
    convert_dynamo_module_path,
    find_innermost_module,
    find_place_of_stack,
)
from profkit.program.recorded import triage
from profkit.program.steps.idle import describe_launch_place
from profkit.program.steps.places import (
    describe_place,
    find_main_place,
    merge_module_paths,
    replace_layer_numbers,
)
from profkit.program.timeline import SourcePlace, Timeline
from profkit.program.triage import triage_timeline
from tests.program.made import Program, ran
from tests.program.recorded_lines import (
    AFTER,
    CALL,
    MODEL,
    NODE,
    TORCH,
    USER,
    LinesRecording,
    record_training,
)

LIBRARY = "/env/lib/python3.12/site-packages/transformers/models/gpt2/modeling_gpt2.py"


def places_by_kernel(timeline: Timeline) -> dict[str, set[SourcePlace]]:
    (process,) = timeline.processes
    found: dict[str, set[SourcePlace]] = {}
    for activity in process.activities:
        place = process.places[activity.origin] if activity.origin >= 0 else SourcePlace()
        found.setdefault(activity.name, set()).add(place)
    return found


def test_each_kernel_has_the_line_of_who_launched_it(tmp_path: Path) -> None:
    found = places_by_kernel(injected.read_injected_recording(record_training(tmp_path / "r")))
    layers = [
        SourcePlace(
            f"{MODEL}:64",
            "Attention.forward",
            f"h.{layer}.attn",
            "Attention",
            f"{USER}:88",
            "forward",
        )
        for layer in range(2)
    ]
    assert found["attention"] == set(layers)
    back = {(place.line, place.module, place.part) for place in found["attention_backward"]}
    assert back == {(f"{MODEL}:64", f"h.{layer}.attn", "backward") for layer in range(2)}
    (add,) = found["add"]  # a sum of gradients: what ran before it on its thread
    assert (add.line, add.module) == (f"{MODEL}:64", "h.0.attn")
    (copied,) = found["copy_backward"]  # on the thread that waits for the engine
    assert (copied.line, copied.module, copied.part) == (f"{MODEL}:64", "h.1.attn", "backward")
    (adam,) = found["adam"]
    assert (adam.line, adam.part, adam.module) == (f"{USER}:91", "optimizer", "")
    assert found["replayed"] == {layers[1]}
    assert found["unknown"] == {SourcePlace()}


def test_a_graph_s_memset_has_the_line_that_was_captured(tmp_path: Path) -> None:
    of = LinesRecording(tmp_path / "r")
    captured = of.stack((MODEL, 64, "Attention.forward"))
    replay = of.stack((USER, 95, "train"))
    of.captured(500, stack=captured)
    of.memset(replay, graph_node=500)
    of.memset(captured)
    of.kernel("attention", captured)
    (process,) = injected.read_injected_recording(of.write()).processes
    sets = [a for a in process.activities if a.kind == "set"]
    assert [process.places[a.origin].line for a in sets] == [f"{MODEL}:64"] * 2
    assert [a.graph for a in sets] == [True, False]


def test_places_are_kept_and_read_again(tmp_path: Path) -> None:
    timeline = injected.read_injected_recording(record_training(tmp_path / "r"))
    store.write_timeline(timeline, tmp_path / "kept")
    again = read_timeline(tmp_path / "kept")
    assert again.processes[0].places == timeline.processes[0].places
    assert again.processes[0].activities == timeline.processes[0].activities
    assert again.processes[0].calls == timeline.processes[0].calls


def test_a_kept_folder_of_before_is_read(tmp_path: Path) -> None:
    import pandas as pd

    timeline = injected.read_injected_recording(record_training(tmp_path / "r"))
    store.write_timeline(timeline, tmp_path / "kept")
    (tmp_path / "kept" / "places.parquet").unlink()
    for table in ("activities", "calls"):
        file = tmp_path / "kept" / f"{table}.parquet"
        pd.read_parquet(file).drop(columns="origin").to_parquet(file, index=False)
    again = read_timeline(tmp_path / "kept")
    assert {a.origin for a in again.processes[0].activities} == {-1}


def test_a_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    import pandas as pd

    timeline = injected.read_injected_recording(record_training(tmp_path / "r"))
    store.write_timeline(timeline, tmp_path / "kept")
    file = tmp_path / "kept" / "activities.parquet"
    frame = pd.read_parquet(file)
    frame["origin"] = 1_000_000
    frame.to_parquet(file, index=False)
    with pytest.raises(store.ProfkitError, match="cannot be read as a timeline: place 1000000"):
        read_timeline(tmp_path / "kept")


def test_the_document_has_lines_and_sums_them(tmp_path: Path) -> None:
    answer = triage_timeline(injected.read_injected_recording(record_training(tmp_path / "r", 12)))
    content = make_triage_document(answer)
    rows = {row["name"]: row for row in content["kernels"]}
    assert rows["attention"]["line"] == f"{MODEL}:64"
    assert rows["attention"]["module"] == "h.*.attn"
    assert rows["unknown"]["line"] is None
    origins = content["origins"]
    assert sum(row["calls"] for row in origins) == sum(r["calls"] for r in content["kernels"])
    assert sum(row["ms"] for row in origins) == pytest.approx(sum(r["ms"] for r in rows.values()))
    most = origins[0]
    assert (most["line"], most["part"], most["called"]) == (f"{MODEL}:64", "backward", f"{USER}:88")


def test_frames_of_a_notebook_have_the_columns(tmp_path: Path) -> None:
    timeline = injected.read_injected_recording(record_training(tmp_path / "r", 12))
    store.write_timeline(timeline, tmp_path / "kept")
    kernels = triage(tmp_path / "kept").kernels
    assert {"line", "module", "op"} <= set(kernels.columns)
    assert kernels.set_index("name").loc["adam", "line"] == f"{USER}:91"


def frames(*rows: tuple[str, int, str]) -> tuple[PythonFrame, ...]:
    return tuple(PythonFrame(*row) for row in rows)


EINOPS = "/env/lib/python3.12/site-packages/einops/einops.py"
GPT2 = (LIBRARY, 569, "GPT2Attention.forward")
FORWARD = (MODEL, 64, "Attention.forward")


@pytest.mark.parametrize(
    ("rows", "line", "called"),
    [
        # the user's own, under torch's
        ([(f"{TORCH}/nn/functional.py", 9, "linear"), FORWARD, CALL, (USER, 8, "f")], 64, USER),
        # a function of a library that the user's line calls
        ([(EINOPS, 3, "rearrange"), FORWARD, CALL, (USER, 8, "f")], 64, USER),
        # a library's model: its line, and the user's call
        ([GPT2, CALL, (LIBRARY, 800, "GPT2Model.forward"), CALL, (USER, 8, "f")], 569, USER),
        # a library's function inside of its model
        ([(LIBRARY, 60, "eager_attention"), GPT2, CALL, (USER, 8, "f")], 60, USER),
        # no model
        ([(USER, 8, "f"), (USER, 30, "<module>")], 8, ""),
        # an optimizer of a training library
        ([(f"{TORCH}/optim/adam.py", 3, "step"), (USER, 8, "f")], 8, ""),
    ],
)
def test_the_line_is_the_one_that_says_what_is_computed(
    rows: list[tuple[str, int, str]], line: int, called: str
) -> None:
    place = find_place_of_stack(PythonStack(frames(*rows)))
    assert place.line.endswith(f":{line}")
    assert place.called == (f"{called}:8" if called else "")


def test_what_an_optimizer_has_computed_for_it_is_not_its_own() -> None:
    step = (f"{TORCH}/optim/sgd.py", 3, "step")
    assert find_place_of_stack(PythonStack(frames(step, (USER, 8, "f")))).part == "optimizer"
    closure = (USER, 5, "closure")
    assert find_place_of_stack(PythonStack(frames(closure, step, (USER, 8, "f")))).part == "forward"


def test_a_stack_of_libraries_alone_has_the_nearest_model_or_nothing() -> None:
    assert find_place_of_stack(PythonStack(frames(GPT2, CALL))).line == f"{LIBRARY}:569"
    assert find_place_of_stack(PythonStack(frames((f"{TORCH}/x.py", 1, "f")))) == SourcePlace()
    assert find_place_of_stack(PythonStack(())) == SourcePlace()


def test_of_a_compiled_kernel_the_line_with_most_of_the_work_is_first() -> None:
    def origin(line: int, weight: int, module: str) -> GraphOrigin:
        return GraphOrigin(frames((MODEL, line, "Block.forward")), module, "Block", False, weight)

    origins = (origin(5, 10, "h.0"), origin(7, 100, "h.0.norm"), origin(5, 20, "h.0"))
    stack = PythonStack(
        frames=frames(("/cache/ab/cab.py", 90, "call"), FORWARD, CALL, (USER, 88, "train")),
        generated="/cache/ab/cab.py",
        origins=origins,
    )
    place = find_place_of_stack(stack)
    assert place.line == f"{MODEL}:7"
    assert place.lines == (f"{MODEL}:7", f"{MODEL}:5")
    assert (place.module, place.called) == ("h.0.norm", f"{USER}:88")


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("L['self'].blocks[0].act", "blocks.0.act"),
        ("L['self']._modules['blocks']._modules['0']", "blocks.0"),
        ("L['net']._orig_mod.blocks[3]", "blocks.3"),
        ("L__self___blocks", "blocks"),
        ("", ""),
    ],
)
def test_what_dynamo_calls_a_module_is_its_path(path: str, plain: str) -> None:
    assert convert_dynamo_module_path(path) == plain


def test_wrappers_are_no_part_of_a_path() -> None:
    modules = [("_orig_mod.h.0.attn", "Attention"), ("", "OptimizedModule")]
    assert find_innermost_module(modules) == ("h.0.attn", "Attention")
    assert find_innermost_module([("module.h.0", "Block"), ("", "DistributedDataParallel")]) == (
        "h.0",
        "Block",
    )
    wrapped = [("module", "Net"), ("", "DistributedDataParallel")]
    assert find_innermost_module(wrapped) == ("", "Net")
    assert find_innermost_module([("module.0", "Linear"), ("", "Net")]) == ("module.0", "Linear")
    assert find_innermost_module([("", "Net")]) == ("", "Net")
    assert find_innermost_module([(None, "Stranger"), ("", "Net")]) == ("", "Net")
    assert find_innermost_module([]) == ("", "")


def test_a_place_in_words() -> None:
    place = SourcePlace(f"{MODEL}:64", "Attention.forward", "h.*.attn", "Attention", f"{USER}:88")
    assert describe_place(place) == "model.py:64 Attention (h.*.attn), called at train.py:88"
    inside = SourcePlace(f"{LIBRARY}:569", "GPT2Attention.forward")
    said = "transformers/models/gpt2/modeling_gpt2.py:569 GPT2Attention.forward"
    assert describe_place(inside) == said


def test_paths_are_joined_where_they_differ() -> None:
    assert merge_module_paths(["h.0.attn", "h.1.attn"]) == "h.*.attn"
    assert merge_module_paths(["h.0.ln", "ln_f"]) == "*.*"
    assert merge_module_paths(["h.0.ln"]) == "h.0.ln"
    assert replace_layer_numbers("h.11.attn.c_proj") == "h.*.attn.c_proj"


def test_of_works_of_many_lines_the_one_of_most_time_is_named() -> None:
    first, second = SourcePlace("a.py:1", part="forward"), SourcePlace("b.py:2", part="forward")
    found = find_main_place([(first, 10), (second, 100), (first, 20), (None, 1000)])
    assert found is not None
    assert (found.place.line, found.others) == ("b.py:2", 1)
    assert find_main_place([(None, 5)]) is None


def test_stacks_that_say_anything_do_not_stop_the_reader(tmp_path: Path) -> None:
    folder = record_training(tmp_path / "r")
    good = (folder / "7.stacks").read_text().splitlines()
    bad = [
        *('{"id": "x"}', "[1]", '{"id": 1}', '{"id": 1, "frames": [[1]], "modules": []}', "{"),
        '{"id": 1, "frames": [["f", "no", "g"]], "modules": []}',
        '{"id": 1, "frames": [], "modules": [], "origins": [{"frames": 3}]}',
        '{"id": 1, "frames": [], "modules": [], "origins": 7}',
        json.dumps({"id": 1, "frames": [["\x1b]0;x\x07", 1, "f"]], "modules": [["a", "b"]]}),
    ]
    for line in bad:
        (folder / "7.stacks").write_text("\n".join([line, *good[1:]]) + "\n")
        (process,) = injected.read_injected_recording(folder).processes
        assert any(a.origin >= 0 for a in process.activities)


def test_what_has_no_line_is_said_with_its_cause(tmp_path: Path) -> None:
    notes = injected.read_injected_recording(record_training(tmp_path / "r")).notes
    assert any("1 nodes of CUDA graphs have no line" in note for note in notes)
    assert not any("torch.compile" in note for note in notes)
    of = LinesRecording(tmp_path / "s")
    compiled = ("/var/cache/inductor/ab/cabcd.py", 90, "call")
    of.kernel("triton_add", of.stack(compiled, (USER, 88, "train")))
    timeline = injected.read_injected_recording(of.write())
    assert any("torch.compile have only the line of their call" in n for n in timeline.notes)
    (place,) = timeline.processes[0].places
    assert place.line == f"{USER}:88"


def test_what_was_recorded_with_lines_is_not_asked_for_again(tmp_path: Path) -> None:
    """A kernel of Numba has a line and no operator: what the host does there is for others to show."""
    of = LinesRecording(tmp_path / "n")
    stack = of.stack((USER, 88, "train"))
    for _ in range(20):
        of.kernel("blur", stack, micros=1)
        of.clock += 200_000
    said = triage_timeline(injected.read_injected_recording(of.write())).verdict.say
    assert "py-spy record" in said
    assert "profkit triage" not in said


def test_a_capture_before_the_recording_is_said_where_operators_were_recorded(
    tmp_path: Path,
) -> None:
    of = LinesRecording(tmp_path / "r")
    replay = of.stack((f"{TORCH}/cuda/graphs.py", 88, "CUDAGraph.replay"), (USER, 95, "train"))
    capture = of.stack((MODEL, 64, "Attention.forward"), CALL, (USER, 88, "train"))
    of.captured(500, stack=capture, call=77)  # which is not kept: it was made before --after
    of.captured(900, original=500)
    of.kernel("replayed", replay, graph_node=900)
    of.kernel("replayed", replay, graph_node=900)
    folder = of.write()
    assert not injected.read_injected_recording(folder).notes
    (folder / "7.captured").write_text("")
    (note,) = injected.read_injected_recording(folder).notes
    assert "operators of 1 nodes of CUDA graphs are not known" in note
    assert "before --after" in note


REDUCES = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
OWN_REDUCES = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def record_replicas(folder: Path, *, is_replicated: bool = True) -> dict[str, set[SourcePlace]]:
    """Two steps of a backward pass, called at lines 89 and 90, with a collective after each."""
    of = LinesRecording(folder)
    wrapper = (f"{TORCH}/nn/parallel/distributed.py", 1666, "DistributedDataParallel.forward")
    inside = (CALL, wrapper) if is_replicated else (CALL,)
    stack = of.stack((MODEL, 64, "Attention.forward"), *inside, (USER, 88, "train"))
    reduced = of.stack((f"{TORCH}/distributed/c10d.py", 9, "all_reduce"), (USER, 93, "train"))
    of.kernel(f"{REDUCES}_early", 0, 0, NODE | AFTER)
    for step, line in enumerate((89, 90)):
        of.kernel("mul", stack)
        of.node(step, stack)
        ones = (f"{TORCH}/autograd/__init__.py", 139, "_make_grads")
        call = (f"{TORCH}/autograd/__init__.py", 340, "backward")
        tensor = (f"{TORCH}/_tensor.py", 625, "Tensor.backward")
        of.kernel("fill", of.stack(ones, call, tensor, (USER, line, "train")))
        of.kernel("mul_backward", 0, step, NODE)
        of.kernel(REDUCES, 0, step, NODE | AFTER)
        of.kernel(OWN_REDUCES, reduced)  # the program's own
    return places_by_kernel(injected.read_injected_recording(of.write()))


def test_a_collective_of_a_backward_pass_has_the_line_that_calls_it(tmp_path: Path) -> None:
    found = record_replicas(tmp_path / "r")
    assert {place.line for place in found[REDUCES]} == {f"{USER}:89", f"{USER}:90"}
    assert {(place.kind, place.module, place.part) for place in found[REDUCES]} == {
        ("DDP bucket", "", "backward")
    }
    assert found[f"{REDUCES}_early"] == {SourcePlace()}  # no backward pass was called before it
    (own,) = found[OWN_REDUCES]
    assert own.line == f"{USER}:93"
    (forward,) = found["mul_backward"]
    assert forward.line == f"{MODEL}:64"


def test_a_collective_of_an_unknown_library_has_no_line(tmp_path: Path) -> None:
    found = record_replicas(tmp_path / "r", is_replicated=False)
    assert found[REDUCES] == {SourcePlace()}
    (own,) = found[OWN_REDUCES]
    assert own.line == f"{USER}:93"


def trained(p: Program) -> None:
    """A step with Python frames: two products forward, their gradients in the other order."""
    begin = 2 * p.step_number
    with p.op("train.py(80): step", kind="python_function"):
        for number, name in enumerate(("attend", "feed")):
            with p.op(f"model.py({10 * (number + 1)}): {name}", kind="python_function"):
                numbers = {"Sequence number": begin + number, "Fwd thread id": 0}
                with p.op("aten::linear", **numbers), p.op("aten::addmm", **numbers):
                    p.launch(f"{name}_kernel", 300.0)
        for number, name in reversed(list(enumerate(("attend", "feed")))):
            numbers = {"Sequence number": begin + number, "Fwd thread id": 1}
            node = "autograd::engine::evaluate_function: AddmmBackward0"
            with p.op(node, **numbers), p.op("AddmmBackward0", **numbers), p.op("aten::mm"):
                p.launch(f"{name}_gradient", 400.0)
        with p.op("autograd::engine::evaluate_function: AccumulateGrad"):
            p.launch("sum_of_gradients", 50.0)


def test_a_trace_s_backward_kernels_have_the_function_of_their_forward(tmp_path: Path) -> None:
    timeline = read_timeline(ran(trained).write(tmp_path / "trace.json"))
    for recorded in (timeline, kept_again(timeline, tmp_path / "kept")):
        answer = triage_timeline(recorded)
        places = {
            g.name: describe_launch_place(answer.steps.typical.works[g.works[0]])
            for g in answer.groups
        }
        for name, line in (("attend", 10), ("feed", 20)):
            assert places[f"{name}_kernel"] == f"in {name} (model.py:{line})"
            assert places[f"{name}_gradient"] == f"in {name} (model.py:{line})"
        assert places["sum_of_gradients"] == "in step (train.py:80)"


def kept_again(timeline: Timeline, folder: Path) -> Timeline:
    store.write_timeline(timeline, folder)
    return read_timeline(folder)
