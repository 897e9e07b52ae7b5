"""Barriers of a block that nobody waits at."""

from profkit.lab.ablation.change import Refused, say_unchanged
from profkit.lab.ablation.removal import StatementsGone


class BarriersGone(StatementsGone):
    id = "no-barriers"
    title = "barriers"
    rules = ("barrier-wait",)
    probes = ("barrier", "mio-phases", "lg-phases")
    keeps = "BAR"
    opcodes = ("bar.sync.", "bar.cta.sync.", "barrier.sync.", "barrier.cta.sync.")
    unit = "barrier"
    nothing = "it has no barrier of a block"

    def refuse_steering_statements(self) -> None:
        for access in self.code.list_executed_accesses(("shared",), ("load", "atomic")):
            if access.steers:
                raise Refused(
                    "steers",
                    "a value in shared memory decides a branch or an address",
                    "none that barriers keep in order",
                    "look at who arrives last: the work before the barrier is not spread evenly",
                )

    def say_what_is_unchanged(self) -> str:
        waits = self.code.find_executed_statements("mbarrier.try_wait.", "mbarrier.test_wait.")
        return say_unchanged(len(waits), "waits for copies")


ABLATION = BarriersGone
