"""What the recorder would leave of a training step whose lines are known, without a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from profkit.program.readers import injected, places

USER = "/src/train.py"
MODEL = "/src/model.py"
TORCH = "/env/lib/python3.12/site-packages/torch"
CALL = (f"{TORCH}/nn/modules/module.py", 1776, "Module._call_impl")
NODE, AFTER = 1, 2  # in `how`
NO_NODE = places.NO_NODE


class LinesRecording:
    """Files of one process, as profkit/collect/injection writes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.rows: dict[str, list[tuple[Any, ...]]] = {
            kind: [] for kind in ("kernels", "copies", "calls", "launches", "nodes", "graphs")
        }
        self.stacks: list[dict[str, Any]] = []
        self.names: list[str] = ["cudaLaunchKernel_v7000"]
        self.clock = 1_000_000
        self.correlation = 0

    def stack(self, *frames: tuple[str, int, str], **more: Any) -> int:
        """A stack, innermost frame first; its number."""
        number = len(self.stacks) + 1
        modules = more.pop("modules", [])
        self.stacks.append({"id": number, "frames": frames, "modules": modules, **more})
        return number

    def kernel(
        self,
        name: str,
        stack: int = 0,
        sequence: int = NO_NODE,
        how: int = 0,
        graph_node: int = 0,
        micros: int = 50,
    ) -> int:
        """A kernel and its launch; the launch's number."""
        if name not in self.names:
            self.names.append(name)
        self.correlation += 1
        number = self.correlation
        start = self.clock
        self.clock += micros * 1_000 + 10_000
        self.rows["calls"].append((start, start + 4_000, number, 1, 0))
        self.rows["kernels"].append(
            (
                *(start + 8_000, start + 8_000 + micros * 1_000, graph_node, number, 0, 7),
                *(self.names.index(name), int(graph_node > 0), (8, 1, 1), (128, 1, 1), 0, 32),
            )
        )
        self.rows["launches"].append((sequence, number, stack, 1, how))
        return number

    def memset(self, stack: int, graph_node: int = 0) -> None:
        """A memset and its call."""
        self.correlation += 1
        number, start = self.correlation, self.clock
        self.clock += 12_000
        self.rows["copies"].append(
            (
                *(start, start + 2_000, graph_node, 4_096, number, 0, 7, int(graph_node > 0)),
                *(injected.MEMSET, 0, 3, 0),
            )
        )
        self.rows["launches"].append((NO_NODE, number, stack, 1, 0))

    def node(self, sequence: int, stack: int, parent: int = NO_NODE) -> None:
        """A node of autograd that a stack made."""
        self.rows["nodes"].append((sequence, parent, 1, stack, 1, 0))

    def captured(self, node: int, original: int = 0, stack: int = 0, call: int = 0) -> None:
        """A node of a graph: captured by a stack and a call, or copied from another."""
        self.rows["graphs"].append((node, original, NO_NODE, call, stack, 0, 0))

    def write(self) -> Path:
        import numpy as np

        for kind, rows in self.rows.items():
            if kind in places.LAYOUTS:
                layout = places._parse_row_type(places.LAYOUTS[kind][0])
                path = self.folder / f"7-7.{kind}"
            else:
                layout = injected.make_row_type(kind)
                path = self.folder / f"7.{kind}"
            unused = b"\0" * layout.itemsize * 3  # as a file that is longer than its rows ends
            path.write_bytes(np.array(rows, layout).tobytes() + unused * (kind in places.LAYOUTS))
        (self.folder / "7.names").write_text("\n".join(self.names) + "\n")
        (self.folder / "7.meta").write_text("whole\t1\n")
        stacks = "".join(json.dumps(stack) + "\n" for stack in self.stacks)
        (self.folder / "7.stacks").write_text(stacks)
        return self.folder


def record_training(folder: Path, steps: int = 6) -> Path:
    """Steps of a model of two layers: forward, backward, optimizer, a graph."""
    of = LinesRecording(folder)
    outside = (USER, 88, "train")
    forward = []
    for layer in range(2):
        modules = [(f"h.{layer}.attn", "Attention"), (f"h.{layer}", "Block"), ("", "Net")]
        frames = ((MODEL, 64, "Attention.forward"), CALL, (MODEL, 30, "Block.forward"), CALL)
        forward.append(
            of.stack(*frames, (MODEL, 12, "Net.forward"), CALL, outside, modules=modules)
        )
    step = of.stack((f"{TORCH}/optim/adamw.py", 9, "adamw"), (USER, 91, "train"))
    engine = of.stack(
        (f"{TORCH}/autograd/graph.py", 824, "_engine_run_backward"), (USER, 90, "train")
    )
    replay = of.stack((f"{TORCH}/cuda/graphs.py", 88, "CUDAGraph.replay"), (USER, 95, "train"))
    of.captured(500, stack=forward[1])
    of.captured(900, original=500)
    sequence = 0
    for _ in range(steps):
        made = []
        for stack in forward:
            of.kernel("attention", stack, micros=200)
            of.node(sequence, stack)
            made.append(sequence)
            sequence += 1
        for number in reversed(made):
            of.kernel("attention_backward", 0, number, NODE, micros=400)
        of.kernel("add", 0, made[0], AFTER)
        of.kernel("copy_backward", engine, made[1], NODE)
        of.kernel("adam", step, micros=100)
        of.kernel("replayed", replay, graph_node=900)
        of.kernel("unknown", 0, graph_node=901)
    return of.write()
