"""What was run, as hashes  ->  whether two measurements ran the same: the one place that says so.

Equal kernels are not enough. A launcher that hands them another number, or starts them over another
grid, is other code with the same SASS; so its own code has to be known to be the same: by its
source, or by its hash. The source is asked first, because two versions of a host compiler make two
hashes of one source.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MachineCode:
    """The code of one measurement at one case."""

    sources: frozenset[str]  # hashes of its source: today's, and the one that it was measured with
    flags: tuple[str, ...]  # what the compiler was given
    sass: str | None  # hash of the kernels' machine code; None: not known
    host: str | None  # hash of the launcher's; None: not known
    launches: tuple[str, ...]  # what was started, a line each; empty: not known

    def same_as(self, other: MachineCode) -> bool:
        """Whether both are known to have run the same instructions on the same numbers.

        Not known is not the same: then times have to tell.
        """
        if self.sass is None or self.sass != other.sass:
            return False
        if self.launches and other.launches and self.launches != other.launches:
            return False
        if self.sources & other.sources and self.flags == other.flags:
            return True
        return self.host is not None and self.host == other.host
