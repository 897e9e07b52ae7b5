"""The attention problem, for kernels that are wrong on purpose; no library calls."""

from pathlib import Path

from profkit.measure.problem import load

_attention = load(Path(__file__).parents[2] / "kernels/attention").module

CASES = {"A": _attention.CASES["A"], "B": _attention.CASES["B"]}
CHECKS = _attention.CHECKS
SEEDS = (0,)
ATOL, RTOL = _attention.ATOL, _attention.RTOL
arguments = _attention.arguments
inputs = _attention.inputs
outputs = _attention.outputs
reference = _attention.reference
operations = _attention.operations
compulsory_bytes = _attention.compulsory_bytes
