"""Gaussian-process regression: the posterior mean by conjugate gradients on a dense kernel matrix.

Planted: the step lengths alpha and beta are Python floats (two .item() in each iteration).
Mend: they stay on the GPU as tensors, the stopping test looks at the residual every 40 iterations.
"""

from __future__ import annotations

import base
import torch


def solve_floats(
    kernel: torch.Tensor, y: torch.Tensor, most: int, tolerance: float
) -> torch.Tensor:
    """Conjugate gradients as in the textbook."""
    x, r, p = torch.zeros_like(y), y.clone(), y.clone()
    rr = torch.dot(r, r).item()
    for _ in range(most):
        kp = kernel @ p
        alpha = rr / torch.dot(p, kp).item()
        x.add_(p, alpha=alpha)
        r.sub_(kp, alpha=alpha)
        new = torch.dot(r, r).item()
        if new < tolerance:
            break
        p.mul_(new / rr).add_(r)
        rr = new
    return x


def solve_tensors(
    kernel: torch.Tensor, y: torch.Tensor, most: int, tolerance: float
) -> torch.Tensor:
    """The same, with the scalars where the vectors are."""
    x, r, p = torch.zeros_like(y), y.clone(), y.clone()
    rr = torch.dot(r, r)
    for i in range(most):
        kp = kernel @ p
        alpha = rr / torch.dot(p, kp)
        x.addcmul_(p, alpha)
        r.addcmul_(kp, alpha, value=-1)
        new = torch.dot(r, r)
        if i % 40 == 39 and new.item() < tolerance:
            break
        p = torch.addcmul(r, p, new / rr)
        rr = new
    return x


def build(mended: bool) -> base.Step:
    """8192 points in eight dimensions, an RBF kernel with noise, 160 iterations at most."""
    points, tests = base.size(8192, 32), base.size(1024, 8)
    most = base.size(160, 5)
    where = torch.randn(points, 8, device=base.DEVICE)
    asked = torch.randn(tests, 8, device=base.DEVICE)
    kernel = torch.exp(-0.5 * torch.cdist(where, where) ** 2 / 4)
    kernel.diagonal().add_(1e-3)
    cross = torch.exp(-0.5 * torch.cdist(asked, where) ** 2 / 4)
    y = torch.sin(where.sum(1)) + 0.03 * torch.randn(points, device=base.DEVICE)
    solve = solve_tensors if mended else solve_floats

    @torch.no_grad()
    def step() -> torch.Tensor:
        weights = solve(kernel, y, most, 1e-6)
        return cross @ weights

    return step


if __name__ == "__main__":
    base.main(build)
