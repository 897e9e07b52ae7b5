"""Launches whose line is hard to tell; the name of each one's kernel says which line it is of.

A comment at a line's end has the words by which its kernels are known.
"""

import threading

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Custom(torch.autograd.Function):
    """A function with a backward pass of its own, in Python."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.erf(x)  # erf_kernel

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.cosh(x)  # cosh_kernel


class Part(nn.Module):
    """What is computed once more in the backward pass."""

    def forward(self, x):
        return torch.atan(x)  # atan_kernel


class Net(nn.Module):
    """Tied weights, a recurrent layer, dropout, an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 256)
        self.part = Part()
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(256, 1000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words):
        x = self.words(words)  # indexSelect embedding_backward
        x = Custom.apply(x)
        x = checkpoint(self.part, x, use_reentrant=False)
        x = self.drop(x)  # fused_dropout masked_scale
        first, second = x.chunk(2, dim=-1)
        x = torch.cat([second, torch.asinh(first)], dim=-1)  # asinh_
        x = torch.log1p(x.abs())  # log1p abs_kernel
        return self.head(x)


def main() -> None:
    torch.manual_seed(0)
    net = Net().cuda()
    words = torch.randint(0, 1000, (16, 128), device="cuda")
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(4):
        opt.zero_grad()
        functional.cross_entropy(net(words).flatten(0, 1), words.flatten()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # lpnorm
        opt.step()
        values = torch.rand(1000, device="cuda", requires_grad=True)
        total = torch.tan(values).sum()  # tan_kernel
        (grad,) = torch.autograd.grad(total, values, create_graph=True)
        grad.pow(2).sum().backward()
        values.detach().sum().item()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()


def work() -> None:
    torch.lgamma(torch.rand(1000, device="cuda"))  # lgamma_kernel


if __name__ == "__main__":
    main()
