"""A training step in which the order of the kernels tells which line and module each of them is of.

    python planted.py eager|fused|compile|reduce|hand [STEPS]

Eight blocks, each with an activation that no other has, so that its kernel's name says which block
it is; a comment at a line's end is its name. hand: captured by hand into a CUDA graph; reduce:
torch.compile(mode="reduce-overhead"), whose kernels are all in graphs.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

ACTIVATIONS = (
    nn.Tanh,
    nn.Sigmoid,
    nn.GELU,
    nn.SiLU,
    nn.ELU,
    nn.Softplus,
    nn.Mish,
    nn.Hardswish,
)
WIDTHS = range(256, 256 + 64 * 9, 64)
ROWS = 4096


class Block(nn.Module):
    """A product, a normalization, an activation of its own, a scale."""

    def __init__(self, number: int) -> None:
        super().__init__()
        wide, width = WIDTHS[number], WIDTHS[number + 1]
        self.fc = nn.Linear(wide, width)
        self.norm = nn.LayerNorm(width)
        self.act = ACTIVATIONS[number]()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)  # fc
        y = self.norm(y)  # norm
        y = self.act(y)  # act
        return y * self.scale  # scale


class Net(nn.Module):
    """All blocks, one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(number) for number in range(len(ACTIVATIONS))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def train(mode: str, steps: int) -> None:
    torch.manual_seed(0)
    net = Net().cuda()
    x = torch.randn(ROWS, WIDTHS[0], device="cuda")
    wanted = torch.randn(ROWS, WIDTHS[-1], device="cuda")
    kind = {"fused": True} if mode == "fused" else {"foreach": True}
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3, **kind)
    called = net
    if mode == "compile":
        called = torch.compile(net)
    elif mode == "reduce":
        called = torch.compile(net, mode="reduce-overhead")

    def learn() -> None:
        y = called(x)  # call
        loss = functional.smooth_l1_loss(y, wanted)  # loss
        loss.backward()

    if mode == "hand":
        replay = capture(learn, opt)
        for _ in range(steps):
            replay()
            opt.step()  # captured step
    else:
        for _ in range(steps):
            opt.zero_grad(set_to_none=True)
            learn()
            opt.step()  # step
    torch.cuda.synchronize()


def capture(learn, opt):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            opt.zero_grad(set_to_none=True)
            learn()
            opt.step()
    torch.cuda.current_stream().wait_stream(side)
    opt.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        learn()
    return graph.replay


if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 6)
