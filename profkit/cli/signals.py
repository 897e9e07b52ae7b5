"""Signals and streams  ->  an orderly end: no traceback, nothing left running, nothing half-written.

Until a verb runs, and after it, a signal ends the process as it always does, silently. While it
runs, each of SIGINT, SIGTERM and SIGHUP is what Ctrl-C is: everything that was started is ended.
stdout and stderr are open whatever the shell did, and given up quietly when nobody takes them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_GRACE = 5.0  # seconds in which a second signal does not stop the tidying up after the first


_came: list[int] = []  # signals that were answered since the process began


def was_stopped() -> bool:
    """Whether a signal asked for the end: whatever is raised from then on is of that."""
    return bool(_came)


def die_silently() -> None:
    """What a signal does by itself: Python's own handler would print where it was."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup asked for that
            signal.signal(number, signal.SIG_DFL)


def stop_on_term() -> None:
    """A polite kill ends what was started too, like Ctrl-C; neither is ever lost."""
    last = 0.0

    def stop(*_: object) -> None:
        nonlocal last
        now = time.monotonic()
        if last and now - last < _GRACE:
            return
        last = now
        _came.append(signal.SIGINT)
        raise KeyboardInterrupt

    def again(lost: sys.UnraisableHookArgs) -> None:
        # Raised where an object is cleaned up, Python would print it and go on: raise it again, soon.
        nonlocal last
        if lost.exc_type is KeyboardInterrupt:
            last = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(lost)

    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    signal.signal(signal.SIGALRM, stop)
    sys.unraisablehook = again


INTERRUPTED = 130
PIPE_CLOSED = 141  # what a shell shows for a program that ends because its reader went away
# What a write to stdout or stderr fails with when the disk is full or the reader went away. Files
# are written by profkit.files, whose errors are others.
_LOST = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPIPE, errno.EFBIG, errno.EBADF}


def open_streams() -> None:
    """A name that the terminal's encoding cannot show must not stop the report, nor `>&-`."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - till the end
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def say_lost(error: OSError) -> int:
    """Say why an answer did not get out, unless its reader went away; return the exit status.

    An error that is not of a stream that takes nothing more is raised again.
    """
    from profkit.cli.options import COULD_NOT

    if error.errno not in _LOST or error.filename is not None:
        raise error
    gone = error.errno == errno.EPIPE
    if not gone:
        with contextlib.suppress(OSError):
            print(f"profkit: the answer could not be written: {error.strerror}", file=sys.stderr)
            sys.stderr.flush()
    drop_streams()
    return PIPE_CLOSED if gone else COULD_NOT


def drop_streams() -> None:
    """What is left to print goes nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
