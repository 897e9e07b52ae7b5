"""Memory fences that are issued and wait for nothing."""

from profkit.lab.ablation.removal import StatementsGone


class FencesGone(StatementsGone):
    id = "no-fences"
    title = "memory fences"
    rules = ("membar",)
    probes = ("membar",)
    keeps = "MEMBAR"
    opcodes = ("membar.", "fence.sc.", "fence.acq_rel.")
    unit = "fence"
    nothing = "it has no memory fence"


ABLATION = FencesGone
