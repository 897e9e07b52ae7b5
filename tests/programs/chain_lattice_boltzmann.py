"""Flow around a cylinder with the lattice Boltzmann method (D2Q9, BGK), eight time steps.

Planted: the collision (moments, equilibrium, relaxation, bounce-back) is a chain of eager kernels.
Mend: the collision is one function under torch.compile.
"""

from __future__ import annotations

import base
import torch

CX = [0, 1, 0, -1, 0, 1, -1, -1, 1]
CY = [0, 0, 1, 0, -1, 1, 1, -1, -1]
OPPOSITE = [0, 3, 4, 1, 2, 7, 8, 5, 6]
WEIGHTS = [4 / 9] + [1 / 9] * 4 + [1 / 36] * 4


def build(mended: bool) -> base.Step:
    """A channel of 1536 x 3072 cells in fp32."""
    high, wide, steps = base.size(1536, 12), base.size(3072, 24), base.size(8, 2)
    tau, speed = 0.6, 0.05
    cx = torch.tensor(CX, device=base.DEVICE, dtype=torch.float32).view(9, 1, 1)
    cy = torch.tensor(CY, device=base.DEVICE, dtype=torch.float32).view(9, 1, 1)
    w = torch.tensor(WEIGHTS, device=base.DEVICE).view(9, 1, 1)
    opposite = torch.tensor(OPPOSITE, device=base.DEVICE)
    rows = torch.arange(high, device=base.DEVICE).view(-1, 1)
    columns = torch.arange(wide, device=base.DEVICE).view(1, -1)
    solid = (rows - high // 2) ** 2 + (columns - wide // 4) ** 2 < (high // 9) ** 2

    def equilibrium(rho: torch.Tensor, ux: torch.Tensor, uy: torch.Tensor) -> torch.Tensor:
        cu = cx * ux + cy * uy
        square = ux**2 + uy**2
        return w * rho * (1 + 3 * cu + 4.5 * cu**2 - 1.5 * square)

    def collide(f: torch.Tensor) -> torch.Tensor:
        rho = f.sum(0)
        ux = (f * cx).sum(0) / rho
        uy = (f * cy).sum(0) / rho
        relaxed = f - (f - equilibrium(rho, ux, uy)) / tau
        return torch.where(solid, f[opposite], relaxed)

    def stream(f: torch.Tensor) -> torch.Tensor:
        moved = [torch.roll(f[i], (CY[i], CX[i]), (0, 1)) for i in range(9)]
        return torch.stack(moved)

    def inflow(f: torch.Tensor) -> None:
        f[:, :, 0] = entering
        f[:, :, -1] = f[:, :, -2]

    ones = torch.ones(high, wide, device=base.DEVICE)
    state = [equilibrium(ones, ones * speed, ones * 0)]
    entering = state[0][:, :, 0].clone()
    if mended and not base.DRY:
        collide = torch.compile(collide)

    @torch.no_grad()
    def step() -> torch.Tensor:
        f = state[0]
        for _ in range(steps):
            f = stream(collide(f))
            inflow(f)
        state[0] = f
        return f

    return step


if __name__ == "__main__":
    base.main(build)
