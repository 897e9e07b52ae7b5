"""An agent's questions over the Model Context Protocol  ->  answers about one folder.

# Serve the current folder; an agent's settings have this command.
profkit mcp
# Serve another folder.
profkit mcp --root runs/
# Print instructions for an agent that has a shell.
profkit mcp --skill
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import typer

from profkit.cli import options
from profkit.errors import ProfkitError
from profkit.files import confine_reading_to_folder, read_text

SKILL = Path(__file__).parents[2] / "SKILL.md"
GROUP = "Serve agents and CI"
SUMMARY = "Serve the reports in a folder to an agent over MCP."


@options.verb(GROUP, SUMMARY, forms="")
def serve_agents(
    root: Path = typer.Option(
        Path(),
        "--root",
        metavar="DIR",
        help="Allow reading in this folder only. Default: the current one.",
        show_default=False,
    ),
    skill: bool = typer.Option(
        False, "--skill", help="Print SKILL.md, which tells an agent when and how to use profkit."
    ),
) -> int:
    if skill:
        print(read_text(SKILL), end="")
        return options.DONE
    from profkit.cli.protocol import (
        make_filtered_request_stream,
        make_mcp_server,
        reserve_stdout_for_protocol,
    )
    from profkit.reports.isolated import ROOM

    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        os.environ.pop(name, None)  # whatever the agent's terminal can, an answer is plain text
    # Of a wrong type the sentence is enough; and no log lines of the library's, with rich.
    os.environ.setdefault("PYDANTIC_ERRORS_INCLUDE_URL", "0")
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    if sys.stdin is None:
        raise ProfkitError(
            "stdin is closed, so no request can arrive", "agents start this command themselves"
        )
    server = make_mcp_server(root)
    ROOM.forbid_reading_here()  # it lives for days, and the library gives nothing back
    reserve_stdout_for_protocol()
    sys.stdin = make_filtered_request_stream(0, sys.stdout)
    try:
        with confine_reading_to_folder(root):
            server.run("stdio")
    except KeyboardInterrupt:
        os._exit(options.INTERRUPTED)  # a thread of the library waits for a line of stdin, for ever
    return options.DONE
