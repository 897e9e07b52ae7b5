"""SIGTERM  ->  what Ctrl-C does."""

from __future__ import annotations

import signal
import sys


def stop_on_term() -> None:
    """A polite kill ends what was started too, like Ctrl-C; neither is ever lost."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def again(lost: sys.UnraisableHookArgs) -> None:
        # Raised where an object is cleaned up, Python would print it and go on: raise it again, soon.
        if lost.exc_type is KeyboardInterrupt:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            sys.__unraisablehook__(lost)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGALRM, stop)
    sys.unraisablehook = again
