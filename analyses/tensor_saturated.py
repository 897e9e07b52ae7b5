"""Are the tensor cores saturated in v6a and v7a?"""

from __future__ import annotations

from arithmetic import L4, L4_SPARSE, B, computed_l4

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence

V6A_TIME, V7A_TIME = 1177e-6, 1162e-6  # document 004, on an L4
SATURATED = 0.6  # of peak: the least that anybody has called saturated (70 % in the original's own)


@claim(who="document 004: the tensor cores are saturated, from times alone")
def saturated_by_the_documents_own_times(_: Evidence) -> Answer:
    """At their measured times v6a and v7a saturate an L4's tensor cores."""
    rate = B.operations / V7A_TIME
    return decide(
        rate / L4.tensor >= SATURATED,
        f"{B.operations / 1e9:.3f} GFLOP in {V7A_TIME * 1e6:.0f} us are {rate / 1e12:.2f} TFLOP/s,"
        f" {rate / L4.tensor:.2%} of the dense peak (v6a: {B.operations / V6A_TIME / L4.tensor:.2%})",
        share_of_dense_peak=rate / L4.tensor,
    )


@claim(who="documents 001 to 004: 242 TFLOP/s")
def peak_is_242(_: Evidence) -> Answer:
    """An L4's tensor cores do 242 TFLOP/s of dense fp16 work."""
    dense = L4.sms * 512 * 2 * L4.clock  # 512 fused multiply-adds per SM and cycle
    return decide(
        abs(L4_SPARSE - dense) < 0.1 * dense,
        f"58 SMs x 512 FMA x 2.04 GHz are {dense / 1e12:.0f} TFLOP/s; 242 is the rate with "
        "structured sparsity",
        dense_tflops=dense / 1e12,
    )


def _saturated(evidence: Evidence, variant: str) -> Answer:
    launch = evidence.load(variant, "B").launch
    busy = launch["tensor_busy"]
    return decide(
        busy >= SATURATED,
        f"the tensor pipe is busy {busy:.1%} of the elapsed and "
        f"{launch['tensor_busy_active']:.1%} of the active cycles, the issue slots "
        f"{launch['issue_busy']:.1%}",
        tensor_busy=busy,
        tensor_busy_active=launch["tensor_busy_active"],
        issue_busy=launch["issue_busy"],
    ).elsewhere(computed_l4(launch, B))


@claim(who="document 004, hypothesis 1", needs=["v2cv6a.B"])
def v6a_saturates_the_tensor_cores(evidence: Evidence) -> Answer:
    """v6a is limited by the tensor cores."""
    return _saturated(evidence, "v2cv6a")


@claim(who="document 004, hypothesis 1", needs=["v2cv7a.B"])
def v7a_saturates_the_tensor_cores(evidence: Evidence) -> Answer:
    """v7a is limited by the tensor cores."""
    return _saturated(evidence, "v2cv7a")


@claim(who="the report on stage 4: bound by compute", needs=["stage4.B"])
def stage4_is_compute_bound(evidence: Evidence) -> Answer:
    """Stage 4 is limited by arithmetic."""
    run = evidence.load("stage4", "B")
    verdict = run.diagnosis()
    return decide(
        verdict.bound == "compute",
        f"the verdict is {verdict.bound} ({verdict.limiter}): {verdict.because}",
        tensor_busy=run.launch["tensor_busy"],
        issue_busy=run.launch["issue_busy"],
    ).elsewhere(computed_l4(run.launch, B))
