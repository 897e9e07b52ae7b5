"""Requests on stdin  ->  events on stdout; the process that holds one GPU.

`python -m profkit.lab.measure.server` is started by worker.py and lives through many requests:
libraries, inputs and references stay loaded. A kernel that hangs or loses the context takes this
process with it and nothing else. torch is imported only if a reference is asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from profkit.collect.process import exit_when_parent_ends
from profkit.errors import ProfkitError
from profkit.lab.measure import bench, check, data, subjects, worker
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.variants import problem
from profkit.lab.measure.worker import Begun, Entry, Reply

if TYPE_CHECKING:
    from profkit.units import CaseName


Say = Callable[[worker.Event], None]
LOST = 3  # exit status: the CUDA context is gone
_UNAVAILABLE = (subjects.ReferenceUnavailable, ImportError)


def _serve_jobs() -> int:
    exit_when_parent_ends()
    say = _open_event_stream()
    server: _WorkerServer | None = None
    for line in sys.stdin.buffer:
        request = worker.read_request(line)
        try:
            match request:
                case worker.Setup():
                    server = _WorkerServer(request, say)
                    server.prepare_inputs(request)
                case worker.Judge() if server:
                    server.judge_entry(request)
                case worker.Measure() if server:
                    server.measure_entries(request)
        except device.CudaError as error:
            lost = error.code in device.STICKY
            say(worker.Failed(error.message, error.hint, lost))
            if lost:
                return LOST
        except ProfkitError as error:
            say(worker.Failed(error.message, error.hint))
        say(worker.Ready())
    return 0


def _open_event_stream() -> Say:
    """Keep stdout for events: what kernels and libraries print goes to stderr."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def send_event(event: worker.Event) -> None:
        out.write(worker.encode_message_as_json_line(event))
        out.flush()

    return send_event


class _WorkerServer:
    """What the process keeps from one request to the next."""

    def __init__(self, request: worker.Setup, say: Say) -> None:
        self.say = say
        self.problem = problem.load_problem(request.problem)
        self.folder = request.build
        gpu = device.make_first_gpu_current()
        self.tools = library.Support(request.support, gpu)
        self.session = uuid4().hex  # of this process: what is timed in turns has one
        self.subjects: dict[tuple[str, str], bench.Subject] = {}
        self.gpu = device.add_gpu_uuid_and_driver(gpu)
        say(worker.Opened(self.gpu))

    def prepare_inputs(self, request: worker.Setup) -> None:
        for case, seed in request.checks:
            self.say(Begun("inputs and reference", case=case))
            self._load_data(case, seed, request.grid)
        if request.reference is not None and request.case is not None:
            # Where it cannot run, the first request to time it says so.
            with contextlib.suppress(*_UNAVAILABLE):
                self._prepare_subject(Entry(request.reference, grid=request.grid), request.case)

    def judge_entry(self, request: worker.Judge) -> None:
        entry = request.entry
        self.say(Begun("check", entry.name))
        loaded = self._load_library(entry)
        work = [self._load_data(case, seed, entry.grid) for case, seed in request.checks]
        judged = subjects.check_variant_on_all_inputs(
            entry.name, loaded, self.problem, work, self.tools
        )
        self.say(Reply(checks={entry.name: judged}))
        if judged.status == "right" and request.case in judged.correct_cases:
            launches = self._prepare_subject(entry, request.case).launches
            self.say(Reply(launches={entry.name: launches}))

    def measure_entries(self, request: worker.Measure) -> None:
        loaded = []
        for entry in request.entries:
            with self._report_refusals(entry):
                loaded.append(self._prepare_subject(entry, request.case))
        self.say(Reply(launches={subject.name: subject.launches for subject in loaded}))
        if not loaded or request.rounds is None:
            return
        self.say(Begun("bench", case=request.case))
        conditions = self.gpu, self.tools, request.cold, request.rounds
        timed = bench.time_subjects_in_turns(loaded, request.case, *conditions)
        for subject, times in zip(loaded, timed, strict=True):
            faults = subject.judge() if subject.judge else ()
            if faults:  # right once, but not after many launches: its times are of something else
                lines = tuple(f"after timing: {fault}" for fault in faults)
                judged = check.CaseCheck(request.case, 0, "wrong", faults=lines)
                self._send_check_event(subject.name, judged)
            else:
                self.say(Reply(times={subject.name: replace(times, session=self.session)}))

    def _send_check_event(self, name: str, judged: check.CaseCheck) -> None:
        checked = check.combine_case_checks(name, self.problem, [judged])
        self.say(Reply(checks={name: checked}))

    @contextlib.contextmanager
    def _report_refusals(self, entry: Entry) -> Iterator[None]:
        """Say what cannot run at a case; what loses the context ends the worker."""
        try:
            yield
        except device.CudaError as error:
            if error.code in device.STICKY:
                raise
            self.say(Reply(refused={entry.name: error.message}))
        except _UNAVAILABLE as error:
            first = (str(error).splitlines() or ["?"])[0]
            self.say(Reply(refused={entry.name: f"{entry.name} cannot run here: {first}"}))

    def _load_data(self, case: CaseName, seed: int, grid: str | None) -> data.CaseData:
        return data.load_or_compute_case_data(self.problem, case, seed, self.folder, grid)

    def _load_library(self, entry: Entry) -> ctypes.CDLL:
        if entry.library is None:
            raise ProfkitError(f"{entry.name} is not a variant: only variants are checked")
        return library.load_launcher_library(entry.library)  # loaded once: it stays in the process

    def _prepare_subject(self, entry: Entry, case: CaseName) -> bench.Subject:
        """Return an entry, ready to be timed; the values of a reference are judged on the way."""
        key = entry.name, case
        if key not in self.subjects:
            self.say(Begun("load", entry.name, case))
            at = self._load_data(case, 0, entry.grid)
            if entry.library is None:
                subject, judged = subjects.run_and_check_reference(entry.name, self.problem, at)
                self._send_check_event(entry.name, judged)
            else:
                loaded = self._load_library(entry)
                subject = subjects.run_native_subject(
                    entry.name, loaded, self.problem, at, self.tools
                )
            self.subjects[key] = subject
        return self.subjects[key]


if __name__ == "__main__":
    sys.exit(_serve_jobs())
