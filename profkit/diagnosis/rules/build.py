"""How it was compiled: counters of a build that no counter can explain."""

from __future__ import annotations

from profkit.diagnosis.rule import Hit, Rule, examples
from profkit.model.launch import Launch, Threshold
from profkit.reports.figures import share

MOVES = Threshold(
    0.25,
    "Register moves among the instructions: 30 to 61 % in 26 launches of five authors' builds with -G "
    "(7.5, 8.6), 22 % at most in 366 optimised ones (7.0 to 12.0), tiny stores of a constant.",
)
GENERIC = Threshold(
    0.01,
    "Loads and stores that have to find out their address space: unoptimised code has hardly any "
    "others.",
)


def _debug(launch: Launch) -> Hit | None:
    launch.need("inst_mov", "inst_generic", "instructions")
    instructions = max(launch["instructions"], 1.0)
    moves, generic = launch["inst_mov"] / instructions, launch["inst_generic"] / instructions
    if moves < MOVES or generic < GENERIC:
        return None
    return Hit(
        f"{share(moves)} of the instructions move registers and {share(generic)} are generic loads and "
        "stores: code that was not optimised"
    )


RULES = (
    Rule(
        id="debug-build",
        title="Compiled without optimisation",
        meaning="nvcc -G (--device-debug) turns the compiler's optimisation off: every variable "
        "is moved about, addresses remain generic, nothing is unrolled or fused. What the counters "
        "say of such a build says nothing of the kernel.",
        advice="Compile without -G (CMake: Release; -lineinfo keeps the source lines) and measure "
        "again before anything else: 10 to 200 times faster has been seen.",
        check=_debug,
        looks="inst_mov inst_generic instructions local_instructions",
        fires=examples(
            "inst_mov=4.4e6 inst_generic=2.3e5 instructions=1e7",
            "inst_mov=2.6e6 inst_generic=1.1e5 instructions=1e7",
        ),
        clear=examples(
            "inst_mov=4e5 inst_generic=0 instructions=1e7",
            "inst_mov=4.4e6 inst_generic=0 instructions=1e7",
            "inst_mov=5e4 inst_generic=3.4e6 instructions=1e7",
        ),
        leads=True,
    ),
)
