"""Signals  ->  an orderly end: no traceback, nothing left running, nothing half-written.

Until a verb runs, and after it, a signal ends the process as it always does, silently. While it
runs, each of SIGINT, SIGTERM and SIGHUP is what Ctrl-C is: everything that was started is ended.
"""

from __future__ import annotations

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
