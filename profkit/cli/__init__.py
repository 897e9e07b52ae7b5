"""The command line. A verb is one file in verbs/; see app.py."""

from __future__ import annotations

import sys

from profkit.errors import explain_resource_limit


def main() -> None:
    """Run what the command line asks for; the entry point of the console script."""
    try:
        from profkit.cli.app import run_verbs
    except (ImportError, MemoryError, OSError, SystemError) as error:
        limit = explain_resource_limit(error)
        if limit is None:
            raise
        print(f"profkit: {limit.message}\n  {limit.hint}", file=sys.stderr)
        raise SystemExit(2) from error
    run_verbs()
