"""Planted: a JAX step without jit, one dispatch an operation. Mend: `jax.jit`."""

from __future__ import annotations

from typing import Any

import base


def build(mended: bool) -> base.Step:
    """Forward and backward of twelve small layers with a norm each, and an update."""
    import jax
    import jax.numpy as jnp

    width, batch = base.size(512), base.size(256)
    keys = jax.random.split(jax.random.PRNGKey(0), base.size(12, 2))
    weights = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
    x = jnp.ones((batch, width))

    def loss(parts: list[Any]) -> Any:
        h = x
        for w in parts:
            y = jnp.tanh(h @ w)
            h = h + (y - y.mean(-1, keepdims=True)) / (y.std(-1, keepdims=True) + 1e-5)
        return (h * h).mean()

    def train(parts: list[Any]) -> list[Any]:
        return [w - 1e-3 * g for w, g in zip(parts, jax.grad(loss)(parts), strict=True)]

    call = jax.jit(train) if mended else train
    state = {"weights": weights}
    base.WAITS.append(lambda: jax.block_until_ready(state["weights"]))

    def step() -> None:
        state["weights"] = call(state["weights"])

    return step


if __name__ == "__main__":
    base.main(build)
