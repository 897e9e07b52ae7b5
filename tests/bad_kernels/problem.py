"""The attention problem, for kernels that are wrong on purpose; no library calls."""

from pathlib import Path

from profkit.lab.measure.variants.problem import load_problem

_attention = load_problem(Path(__file__).parents[2] / "kernels/attention").module

CASES = {"B": _attention.CASES["B"], "tiny": _attention.Case(1, 1, 17, 64)}
CHECKS = _attention.CHECKS
SEEDS = (0,)
ATOL, RTOL = _attention.ATOL, _attention.RTOL
arguments = _attention.arguments
inputs = _attention.inputs
outputs = _attention.outputs
reference = _attention.reference
operations = _attention.operations
compulsory_bytes = _attention.compulsory_bytes
