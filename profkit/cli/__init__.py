"""The command line. A verb is one file in verbs/; see app.py."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    import sys

    from profkit.cli import signals

    signals.die_silently()
    signals.open_streams()
    try:
        from profkit.cli.app import app

        try:
            app(prog_name="profkit")
        finally:
            signals.die_silently()
            sys.stdout.flush()
    except KeyboardInterrupt:  # between the verb and the end
        raise SystemExit(signals.INTERRUPTED) from None
    except OSError as error:
        raise SystemExit(signals.say_lost(error)) from error
