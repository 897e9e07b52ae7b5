"""Sleeps that do not sleep."""

from profkit.lab.ablation.removal import StatementsGone


class SleepsGone(StatementsGone):
    id = "no-sleeps"
    title = "sleeping"
    rules = ("sleeping",)
    probes = ("sleep",)
    keeps = "NANOSLEEP"
    opcodes = ("nanosleep.",)
    unit = "sleep"
    nothing = "it does not sleep"


ABLATION = SleepsGone
