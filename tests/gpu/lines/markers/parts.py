"""What the models are made of: in a file of its own, as programs have it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Gate(torch.autograd.Function):
    """A function with a backward pass of its own, in Python."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """x * sigmoid(x)."""
        ctx.save_for_backward(x)
        return torch.sigmoid(x) * x  # gate

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Its derivative."""
        (x,) = ctx.saved_tensors
        part = torch.sigmoid(x)  # gate again
        return grad * (part + x * part * (1 - part))  # gate back


def log_calls(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Count the calls of a function."""

    @functools.wraps(function)
    def wrapped(*args: Any, **more: Any) -> Tensor:
        return function(*args, **more)

    return wrapped


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """What the function makes of it."""
        return self.function(x)


class Feed(nn.Module):
    """Two linear layers with a gate between them."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """Of tokens."""
        one, two = self.up(x).chunk(2, dim=-1)  # feed up
        y = functional.gelu(one) * two  # feed gelu
        return self.down(y)  # feed down


class ConvStage(nn.Module):
    """A convolution, a batch norm, an activation, and a way around them."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(given, made, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(made)
        self.skip = nn.Conv2d(given, made, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        y = self.conv(x)  # stage conv
        y = self.norm(y)  # stage norm
        y = functional.relu(y)  # stage relu
        around = self.skip(x)  # stage skip
        return y + around  # stage add


class UnetStage(nn.Module):
    """Two layers as a sequence."""

    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(4, made), nn.SiLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        return self.body(x)  # unet body
