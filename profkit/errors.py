"""A mistake the user can mend  ->  one line that says what, one that says how."""

from __future__ import annotations


class ProfkitError(Exception):
    """Something a user can mend. Every verb prints it as two lines and exits with status 2.

    Args:
        message: What is wrong, naming the file or the flag.
        hint: What to do about it; empty when the message says it already.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
