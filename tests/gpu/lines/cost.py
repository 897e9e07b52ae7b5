"""What lines cost over a recording without them, in one process by turns: the lower quartile of pairs.

    CUDA_INJECTION64_PATH=... PROFKIT_TIMELINE=... python cost.py [ROUNDS [DEPTH ...]]

A loop of one tiny kernel, a step that is bound by its launches, one that keeps the GPU busy. With depths
the loop alone, behind so many frames of Python more, by turns of 25 rounds.
"""

import ctypes
import os
import sys
import time

import torch
from torch import nn

# Width, heads, layers, rows and their length.
SIZES = {
    "launch-bound step": (64, 4, 4, 4, 16),
    "GPU-bound step": (1024, 16, 6, 16, 512),
    "step of nanoGPT's size": (768, 12, 12, 12, 1024),
}
LAUNCHES = {"launch-bound step": 296, "GPU-bound step": 441, "step of nanoGPT's size": 870}


class Net(nn.Module):
    """Layers of a transformer."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 1000)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.words(words)
        for layer in self.layers:
            x = layer(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), words.flatten())


def make_step(width, heads, layers, rows, length):
    torch.manual_seed(0)
    net = Net(width, heads, layers).cuda()
    if width > 512:
        net = net.to(torch.bfloat16)
    words = torch.randint(0, 1000, (rows, length), device="cuda")
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)

    def step() -> None:
        opt.zero_grad(set_to_none=True)
        net(words).backward()
        opt.step()

    return step


def make_loop():
    x = torch.ones(8, device="cuda")

    def step() -> None:
        for _ in range(300):
            x.add_(1)

    return step


def time_host(step, count: int) -> float:
    """Microseconds that the host takes for a step."""
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    for _ in range(count):
        step()
    ended = time.perf_counter_ns()
    torch.cuda.synchronize()
    return (ended - began) / count / 1e3


def time_whole(step, count: int) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - began) / count / 1e3


def time_by_turns(step, timer, count, rounds):
    """Return pairs of times, with lines and without; which is first changes from pair to pair."""
    library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
    for on in (1, 0, 1):
        library.ProfkitWatchLines(on)
        timer(step, 3)
    pairs = []
    for number in range(rounds):
        took = {}
        for on in (0, 1) if number % 2 else (1, 0):
            library.ProfkitWatchLines(on)
            timer(step, 1)
            took[on] = timer(step, count)
        pairs.append((took[1], took[0]))
    return pairs


def compare(name, step, timer, count, rounds, launches):
    print_costs(name, time_by_turns(step, timer, count, rounds), launches)


def print_costs(name, pairs, launches):
    """Print what lines cost: the lower quartile of pairs, their median and upper quartile."""
    ratio = find_quartiles([on / off for on, off in pairs])
    more = find_quartiles([(on - off) / launches for on, off in pairs])
    without = find_quartiles([off for _, off in pairs])
    print(
        f"{name}: without {without[0]:.1f} us; with lines "
        f"{ratio[0]:.3f}x ({ratio[1]:.3f}, {ratio[2]:.3f}), a launch "
        f"{more[0]:+.3f} us ({more[1]:+.3f}, {more[2]:+.3f}); lower quartile of "
        f"{len(pairs)} pairs (median, upper)",
        flush=True,
    )


def find_quartiles(values):
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return ordered[quarter], ordered[len(ordered) // 2], ordered[-1 - quarter]


def deepen(depth, call):
    return call() if depth == 0 else deepen(depth - 1, call)


def compare_depths(rounds, depths):
    """Print what lines cost in the loop behind so many frames."""
    step = make_loop()
    pairs = {depth: [] for depth in depths}
    for _ in range(rounds // 25):
        for depth in depths:
            pairs[depth] += deepen(depth, lambda: time_by_turns(step, time_host, 1, 25))
    for depth in depths:
        print_costs(f"a loop behind {depth} frames", pairs[depth], 300)


def main() -> None:
    if sys.argv[2:]:
        compare_depths(int(sys.argv[1]), [int(depth) for depth in sys.argv[2:]])
    else:
        compare_all()


def compare_all() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    compare("a loop of one tiny kernel", make_loop(), time_host, 3, rounds, 300)
    for name, sizes in SIZES.items():
        launches = LAUNCHES[name]
        compare(name, make_step(*sizes), time_whole, 4, rounds, launches)


if __name__ == "__main__":
    deepen(0 if sys.argv[2:] else 20, main)
