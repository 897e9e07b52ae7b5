"""Cases and a Dask scheduler  ->  each case profiled by a worker that has a GPU, on any host.

A worker of one GPU is `CUDA_VISIBLE_DEVICES=0 dask worker ADDRESS --nthreads 1 --resources GPU=1`.
Kernels and artifacts lie on a disk that all hosts share. What is compared at a case stays on one GPU,
so a case is one task; a worker that dies gives its case back to the scheduler.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.errors import ProfkitError, needing

_RETRIES = 2


@dataclass(frozen=True)
class HostResult:
    """What came of one case."""

    case: str
    host: str  # where; "" where its workers were lost
    status: int  # exit status of `profkit profile` there
    errors: str


def profile_on_hosts(
    client: Any, words: Sequence[str], cases: Sequence[str], finished: Callable[[HostResult], None]
) -> list[HostResult]:
    """Run `profkit profile` once a case, wherever a GPU is free.

    `words` is what `profkit profile` is told beside the case; `finished` gets each result at once.

    Raises:
        ProfkitError: No worker has a GPU to give.
    """
    with needing("distributed", "measuring on other hosts"):
        from distributed import as_completed
    workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not any(worker["resources"].get("GPU") for worker in workers):
        raise ProfkitError(
            "no worker of this scheduler has a GPU to give",
            "CUDA_VISIBLE_DEVICES=0 dask worker ADDRESS --nthreads 1 --resources GPU=1",
        )
    options = {"resources": {"GPU": 1}, "pure": False, "retries": _RETRIES}
    tasks = {client.submit(profile_case, tuple(words), case, **options): case for case in cases}
    results: dict[str, HostResult] = {}
    for task in as_completed(list(tasks)):
        case, lost = tasks[task], task.exception()
        why = f"its workers were lost ({type(lost).__name__})"
        results[case] = task.result() if lost is None else HostResult(case, "", 2, why)
        finished(results[case])
    return [results[case] for case in cases]


def profile_case(words: Sequence[str], case: str) -> HostResult:
    """What a worker does: one case, in a process of its own on the worker's GPU."""
    command = [sys.executable, "-m", "profkit", "profile", *words, "--case", case, "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return HostResult(case, socket.gethostname(), done.returncode, done.stderr.strip())
