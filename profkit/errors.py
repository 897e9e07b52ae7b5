"""A mistake the user can mend  ->  one line that says what, one that says how."""

from __future__ import annotations

from collections.abc import Iterable


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


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that is not known: the nearest ones, else all of a few, else `otherwise`.

    Args:
        name: What was given.
        known: What there is.
        otherwise: What to do where nothing is near and there is too much to list.
    """
    from difflib import get_close_matches

    names = list(known)
    near = get_close_matches(name, names, 3, 0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return (
        otherwise if otherwise and len(names) > 12 else f"there are: {', '.join(names) or 'none'}"
    )
