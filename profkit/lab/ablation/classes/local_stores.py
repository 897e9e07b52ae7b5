"""Stores to a thread's own memory that are issued and write nothing."""

from profkit.lab.ablation.change import Refused
from profkit.lab.ablation.removal import StatementsGone
from profkit.lab.ablation.steering import find_what_steers_control_flow


class LocalStoresGone(StatementsGone):
    id = "no-local-stores"
    title = "stores to local memory"
    rules = ("local-memory",)
    probes = ("local-array",)
    keeps = "STL"
    opcodes = ("st.local.",)
    unit = "store"
    nothing = "its code has no array in local memory"

    def refuse_steering_statements(self) -> None:
        for kernel in self.code.module.kernels.values():
            if "local" in find_what_steers_control_flow(kernel).memories:
                raise Refused(
                    "steers",
                    "a value in local memory decides a branch or an address",
                    "none that does",
                    "index the array by constants: then it is in registers",
                )


ABLATION = LocalStoresGone
