"""Steps that replay a CUDA graph several times, or graphs that are alike: where does a step end?

python replays.py accumulate|layers|decode|only
"""

import sys
import time

import torch
from torch import nn

STEPS = 40
WIDTH, ROWS = 1024, 512


def capture(call):
    """Capture a call into a graph; what replays it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def make_net():
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(6)]
    return nn.Sequential(*layers).cuda()


def accumulate():
    """One graph of forward and backward, four times a step; the optimizer is called as it is."""
    net = make_net()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=True)
    given = torch.randn(ROWS, WIDTH, device="cuda")
    batches = torch.randn(4, ROWS, WIDTH, device="cuda")
    for parameter in net.parameters():
        parameter.grad = torch.zeros_like(parameter)
    replay = capture(lambda: net(given).square().mean().backward())

    def step(number):
        for batch in batches:
            given.copy_(batch)
            replay()
        opt.step()
        opt.zero_grad(set_to_none=False)

    return step


def layers():
    """A graph of each of eight equal layers, as a server may have, and a new input each step."""
    nets = [make_net().eval() for _ in range(8)]
    held = torch.randn(ROWS, WIDTH, device="cuda")
    replays = []
    with torch.no_grad():
        for net in nets:
            replays.append(capture(lambda net=net: held.copy_(net(held))))
    incoming = torch.randn(ROWS, WIDTH, device="cuda")

    def step(number):
        held.copy_(incoming)
        for replay in replays:
            replay()

    return step


def decode():
    """A prompt is read without a graph, then 48 words are made by one graph, each of which is read."""
    net = make_net().eval()
    word = torch.randn(8, WIDTH, device="cuda")
    prompt = torch.randn(4 * ROWS, WIDTH, device="cuda")
    with torch.no_grad():
        replay = capture(lambda: word.copy_(net(word)))

    @torch.no_grad()
    def step(number):
        word.copy_(net(prompt)[-8:])
        for _ in range(48):
            replay()
            word[0, 0].item()

    return step


def only():
    """One graph, five times a step, and nothing else but the host's work between two steps."""
    net = make_net().eval()
    word = torch.randn(ROWS, WIDTH, device="cuda")
    with torch.no_grad():
        replay = capture(lambda: word.copy_(net(word)))

    def step(number):
        for _ in range(5):
            replay()
        torch.cuda.synchronize()
        time.sleep(0.001)

    return step


def main():
    step = {f.__name__: f for f in (accumulate, layers, decode, only)}[sys.argv[1]]()
    torch.cuda.synchronize()
    begins = []
    for number in range(STEPS):
        begins.append(time.perf_counter())
        step(number)
    torch.cuda.synchronize()
    took = (time.perf_counter() - begins[10]) / (STEPS - 10)
    print(f"a step takes {1e3 * took:.3f} ms")


if __name__ == "__main__":
    main()
