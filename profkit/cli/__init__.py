"""The command line. A verb is one file in verbs/; see app.py."""

from profkit.cli.app import main

__all__ = ["main"]
