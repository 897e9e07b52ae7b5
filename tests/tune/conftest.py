"""A variant with tunables on the stand-in machine: its time is what its macros say."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.measure.conftest import Machine, driver, machine, processes  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from profkit.lab.tune.run import SearchResult

KEYS = """tune: TILE=4,1,2,8,16 WARPS=2,1,4 MODE=0,1
   where: TILE % WARPS == 0
   takes: threads=32*WARPS smem=16384*TILE
   steer: grid-too-small=TILE- fixed-latency=WARPS+
   watch: stall_long_scoreboard-"""
# Microseconds, by the device's clock: fastest at TILE=2, WARPS=1 MODE=1.
INSIDE = """
  fake_take(1000L * (20 + 15 * (TILE > 2 ? TILE - 2 : 2 - TILE) + 10 * (WARPS - 1) + 5 * (1 - MODE)));
"""
WHICH = ("--variant", "knob", "--case", "B")
TOP = """
#include <ctime>
#include <cstdlib>
"""


@dataclass(frozen=True)
class Bench:
    """A machine with one tunable variant."""

    machine: Machine

    @property
    def out(self) -> Path:
        """Where a search leaves what it found."""
        return self.machine.artifacts / "tune/knob.B"

    def write(self, keys: str = KEYS, before: str = "", inside: str = INSIDE) -> None:
        """The variant `knob`."""
        path = self.machine.write("knob_x.cu", keys=keys, inside=inside, before=before)
        path.write_text(path.read_text().replace("#include <cstdint>", TOP + "#include <cstdint>"))

    def tune(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Run the verb."""
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def command(self, *words: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "profkit", "tune", *WHICH, *words]

    def search(
        self,
        resume: bool = False,
        visible: Sequence[str | None] = (None,),
        storage: str | None = None,
        **options: Any,
    ) -> "SearchResult":
        """A search in this process: no start of Python and no pictures."""
        from profkit.lab.measure import targets
        from profkit.lab.tune import run, task

        at = targets.LabFolders(self.machine.kernels)
        target = targets.find_target_by_options(at, ["knob"], False, ["B"], False)
        what = task.prepare_task(target, task.SearchOptions(**options))
        try:
            return run.search_fastest_config(
                what, storage or run.get_default_storage_url(what), resume, visible, lambda _: None
            )
        finally:
            what.cancel_builds_not_begun()


@pytest.fixture
def knob(machine: Machine) -> Bench:  # noqa: F811
    """The machine, with the variant written."""
    pytest.importorskip("optuna")
    made = Bench(machine)
    made.write()
    return made
