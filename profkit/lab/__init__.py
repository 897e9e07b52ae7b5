"""Kernels become runs: measure, and ablation and tune on top of it. Only verbs import it."""
