"""stdout and stderr  ->  open whatever the shell did, and given up quietly when nobody takes them."""

from __future__ import annotations

import errno
import os
import sys

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


def is_lost(error: OSError) -> bool:
    """Whether an error is that of a stream that takes nothing more."""
    return error.errno in _LOST and error.filename is None


def drop_streams() -> None:
    """What is left to print goes nowhere: Python would try again when it ends, and complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
