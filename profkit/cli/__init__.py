"""The command line. A verb is one file in reading/, judging/ or measuring/; see app.py."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    import sys

    from profkit.cli.app import app

    # A name that the terminal's encoding cannot show must not stop the report.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="profkit")
