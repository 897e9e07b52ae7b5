"""The command line. A verb is one file in verbs/; see app.py."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    import sys

    from profkit.cli.signals import (
        INTERRUPTED,
        die_silently,
        is_lost,
        open_streams,
        say_lost,
    )

    die_silently()
    open_streams()
    try:
        from profkit.cli.app import app

        try:
            app(prog_name="profkit")
        finally:
            die_silently()
            sys.stdout.flush()
    except KeyboardInterrupt:  # between the verb and the end
        raise SystemExit(INTERRUPTED) from None
    except OSError as error:
        if not is_lost(error):
            raise
        raise SystemExit(say_lost(error)) from error
