"""Two-stream instability: an electrostatic particle-in-cell code, one dimension, four time steps.

Planted: eight million particles deposit their charge with index_add_ into just 128 cells.
Mend: each 1024th particle shares a private copy of the grid; the copies are summed afterwards.
"""

from __future__ import annotations

import math

import base
import torch


def build(mended: bool) -> base.Step:
    """2**23 particles in fp32, linear weighting, the field by FFT."""
    count, cells, steps = base.size(2**23, 512), base.size(128, 16), base.size(4, 2)
    copies = base.size(1024, 4)
    length, dt = 2 * math.pi / 0.612, 0.05
    dx = length / cells
    charge = -length / count
    device = base.DEVICE
    place = torch.rand(count, device=device) * length
    beam = torch.where(torch.arange(count, device=device) % 2 == 0, 1.0, -1.0)
    speed = beam * (1 + 0.01 * torch.sin(2 * math.pi * place / length))
    own = torch.arange(count, device=device) % copies * cells
    k = 2 * math.pi * torch.fft.rfftfreq(cells, d=dx, device=device)
    inverse = torch.where(k > 0, 1 / k.clamp(min=1e-9), 0.0) * -1j

    def deposit(left: torch.Tensor, right: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        if mended:
            grid = torch.zeros(copies * cells, device=device)
            grid.index_add_(0, own + left, 1 - w).index_add_(0, own + right, w)
            grid = grid.view(copies, cells).sum(0)
        else:
            grid = torch.zeros(cells, device=device)
            grid.index_add_(0, left, 1 - w).index_add_(0, right, w)
        return grid * (charge / dx)

    @torch.no_grad()
    def step() -> torch.Tensor:
        field = None
        for _ in range(steps):
            scaled = place / dx
            left = scaled.long().clamp_(max=cells - 1)
            w = scaled.sub_(left)
            right = (left + 1) % cells
            density = deposit(left, right, w) + 1.0  # ions at rest
            field = torch.fft.irfft(torch.fft.rfft(density) * inverse, n=cells)
            force = torch.lerp(field[left], field[right], w)
            speed.sub_(force, alpha=dt)
            place.add_(speed, alpha=dt).remainder_(length)
        return field.square().sum() * dx / 2

    return step


if __name__ == "__main__":
    base.main(build)
